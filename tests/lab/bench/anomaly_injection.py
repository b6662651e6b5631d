"""Injects anomalies into a stretch of a generated history, each with known consequences.

Each changes one record of its own key in the middle of the stretch, so that they do not overlap.
The expected findings are written here by hand, from the definitions in docs/checks.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec

from harness.formats.history import VALUES_PER_PROCESS
from node.formats.errors import UsageError

if TYPE_CHECKING:
    from tests.lab.bench.synthetic import Did

_SOON_US: Final = 5_000
_RETIRED: Final = 1 << 33  # with its value the process of a send of unknown outcome
_UNKNOWN_PROCESSES: Final = 900  # numbers of processes that only injected anomalies use


class InjectedAnomaly(msgspec.Struct, frozen=True, array_like=True, order=True):
    """An anomaly to report: partition, name, offset, and the number of its cases."""

    partition: str
    name: str
    offset: int
    count: int


class Place:
    """The operations of one key that an anomaly may change, around one record. `expected` collects
    the findings (name, offset, count) that the checker must then report."""

    def __init__(self, did: list[Did], key: int) -> None:
        self.key = key
        self.did = did
        self.polls = [each for each in did if each.f == "poll" and each.key == key]
        sent = [each for each in did if each.f == "send" and each.key == key and each.offset >= 0]
        sent.sort(key=lambda each: each.offset)
        middle = len(sent) // 2
        while not _close(sent[middle], sent[middle + 1]):
            middle += 1
        self.own, self.next = sent[middle], sent[middle + 1]
        self.offset = self.own.offset
        at = next(n for n, each in enumerate(self.polls) if self.offset in dict(each.records))
        self.poll, self.later = self.polls[at : at + 2]
        """The first poll that returned the record, and the next of the same consumer."""
        self.after = self.polls[at + 2]
        self.expected: list[tuple[str, int, int]] = []

    def expect(self, name: str, offset: int, count: int = 1) -> None:
        """Note a finding that the checker must report."""
        self.expected.append((name, offset, count))

    def send(self, key: int | None = None, *, outcome: str = "info") -> int:
        """Add a send without offset at the time of the record's own send; return its value."""
        process = _UNKNOWN_PROCESSES + self.key
        value = process * VALUES_PER_PROCESS
        added = replace(self.own, process=process, value=value, outcome=outcome, offset=-1)
        added.key = self.key if key is None else key
        added.client = f"p{process}"
        self.did.append(added)
        return value

    def forget(self) -> None:
        """Give the record's own send an unknown outcome, so the record need not be there."""
        self.own.process, self.own.outcome = _RETIRED + self.own.value, "info"
        self.own.offset = -1

    def show(self, value: int, *, to_all: bool = True) -> None:
        """Let all reads, or only the first, return `value` at the offset."""
        for each in self.polls if to_all else [self.poll]:
            each.records = [(at, value if at == self.offset else v) for at, v in each.records]


def _close(one: Did, following: Did) -> bool:
    """Return whether the next record was acknowledged soon, before this one was read."""
    return following.offset == one.offset + 1 and following.t1_us < one.landed_us + _SOON_US


def _lost(at: Place) -> None:
    at.show(at.send())
    at.expect("lost", at.offset)
    at.expect("inconsistent-offsets", at.offset)


def _unseen(at: Place) -> None:
    at.send(outcome="ok")
    at.expect("unseen", -1)


def _duplicate(at: Place) -> None:
    at.forget()
    at.show(at.next.value)
    at.expect("duplicate", at.offset)


def _aborted_read(at: Place) -> None:
    at.own.outcome, at.own.offset = "fail", -1
    at.expect("aborted-read", at.offset)


def _phantom(at: Place) -> None:
    at.forget()
    at.show((_UNKNOWN_PROCESSES + at.key) * VALUES_PER_PROCESS + 7)
    at.expect("phantom", at.offset)


def _misrouted(at: Place) -> None:
    at.forget()
    at.show(at.send(at.key + 1))
    at.expect("misrouted", at.offset)


def _inconsistent(at: Place) -> None:
    at.show(at.send(), to_all=False)
    at.expect("inconsistent-offsets", at.offset)
    at.expect("divergence", at.offset)
    at.expect("vanished", at.offset)


def _realtime(at: Place) -> None:
    begun = at.next.t1_us + 1
    at.own.t0_us, at.own.t1_us = begun, begun + 1
    at.own.process = _UNKNOWN_PROCESSES + at.key
    at.expect("realtime-order", at.offset)


def _poll_skip(at: Place) -> None:
    at.did.remove(at.poll)
    # It does not say that it was asked to begin there.
    at.later.start = -1
    at.expect("poll-skip", at.poll.records[-1][0] + 1)


def _poll_back(at: Place) -> None:
    at.later.start = at.after.start = -1
    at.later.records = at.poll.records
    first = at.poll.records[0][0]
    at.expect("nonmonotonic-poll", first)
    at.expect("poll-skip", first + 2 * len(at.poll.records))


def _beyond_hw(at: Place) -> None:
    last = at.poll.records[-1][0]
    at.poll.hw = last - 1
    at.expect("read-beyond-hw", last - 1, 2)


def _hole(at: Place) -> None:
    at.poll.start -= 1
    at.expect("offset-hole", at.poll.start)
    at.expect("poll-skip", at.poll.start + 1)


INJECTIONS: Final[dict[str, Callable[[Place], None]]] = {
    "lost": _lost,
    "unseen": _unseen,
    "duplicate": _duplicate,
    "aborted-read": _aborted_read,
    "phantom": _phantom,
    "misrouted": _misrouted,
    "inconsistent-offsets": _inconsistent,
    "realtime-order": _realtime,
    "poll-skip": _poll_skip,
    "nonmonotonic-poll": _poll_back,
    "read-beyond-hw": _beyond_hw,
    "offset-hole": _hole,
}


def check_names(names: Sequence[str], keys: int) -> None:
    """Raise UsageError for an unknown anomaly, or more of them than keys."""
    for name in names:
        if name not in INJECTIONS:
            raise UsageError(f"cannot inject '{name}'; there are {', '.join(INJECTIONS)}")
    if len(names) >= keys:
        raise UsageError(f"{len(names)} anomalies need more than {keys} keys: raise --keys")


def inject(name: str, did: list[Did], key: int) -> list[tuple[str, int, int]]:
    """Inject an anomaly into a key; return the findings that must be reported there."""
    at = Place(did, key)
    INJECTIONS[name](at)
    return at.expected
