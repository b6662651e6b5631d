"""Injects anomalies into a generated history, each at a known place and with known consequences.

Each changes one record of its own key in the middle of the history, so that they do not overlap.
The expected findings are written here by hand, from the definitions in docs/checks.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
import numpy.typing as npt

from harness.formats.history import VALUES_PER_PROCESS
from node.formats.errors import UsageError

if TYPE_CHECKING:
    from tests.lab.bench.synthetic import PollRows, SendRows

I64 = npt.NDArray[np.int64]
OK, INFO, FAIL = 0, 1, 2
_SOON_US: Final = 5_000
_RETIRED: Final = 1 << 33  # with its value the process of a send of unknown outcome
_UNKNOWN_PROCESSES: Final = 900  # numbers of processes that only injected anomalies use


class InjectedAnomaly(msgspec.Struct, frozen=True, array_like=True, order=True):
    """An anomaly to report: partition, name, offset, and the number of its cases."""

    partition: str
    name: str
    offset: int
    count: int


class Stretch:
    """A part of a generated history that one anomaly may change, around one record of one key.
    `expected` collects the findings (name, offset, count) that the checker must then report."""

    def __init__(self, sends: SendRows, polls: dict[int, PollRows], key: int) -> None:
        self.sends = type(sends)(*(column.copy() for column in sends))
        self.polls = polls
        own = polls[key]
        self.own = type(own)(*(column.copy() for column in own))
        self.key = key
        mine = np.flatnonzero((sends.key == key) & (sends.outcome == OK))
        mine = mine[np.argsort(sends.offset[mine])]
        middle = len(mine) // 2
        while not self._close(int(mine[middle]), int(mine[middle + 1])):
            middle += 1
        self.row, self.next_row = int(mine[middle]), int(mine[middle + 1])
        self.offset, self.value = int(sends.offset[self.row]), int(sends.value[self.row])
        self.instead: int | None = None
        self.expected: list[tuple[str, int, int]] = []

    def _close(self, row: int, following: int) -> bool:
        """Return whether the next record was acknowledged soon, before this one was read."""
        soon_us = self.sends.landed_us[row] + _SOON_US
        return bool(
            self.sends.offset[following] == self.sends.offset[row] + 1
            and self.sends.t1[following] < soon_us
        )

    def expect(self, name: str, offset: int, count: int = 1) -> None:
        """Note a finding that the checker must report."""
        self.expected.append((name, offset, count))

    def send_unknown(self, key: int | None = None, *, outcome: int = INFO) -> int:
        """Add a send with `outcome` at the time of the record's own send, and return its value."""
        process = _UNKNOWN_PROCESSES + self.key
        value = process * VALUES_PER_PROCESS
        row = {name: getattr(self.sends, name)[self.row] for name in self.sends._fields}
        row |= {
            "process": process,
            "value": value,
            "outcome": outcome,
            "offset": -1,
            "stated": -1,
            "key": self.key if key is None else key,
        }
        self.sends = self.sends._replace(
            **{n: np.append(getattr(self.sends, n), v) for n, v in row.items()}
        )
        return value

    def forget(self) -> None:
        """Give the record's own send an unknown outcome, so the record need not be there."""
        self.sends.outcome[self.row] = INFO
        self.sends.process[self.row] = _RETIRED + self.sends.value[self.row]
        self.sends.stated[self.row] = -1

    def show(self, value: int, *, to_all: bool = True) -> None:
        """Let all reads, the final one too, or only the first return `value` at the offset."""
        rows = np.flatnonzero(self.own.record_offset == self.offset)
        self.own.record_value[rows if to_all else rows[:1]] = value
        if to_all:
            self.instead = value

    def poll(self) -> int:
        """Return the row in `own` of the first poll that returned the record at `offset`."""
        return int(self.own.record_poll[np.argmax(self.own.record_offset == self.offset)])


def _lost(at: Stretch) -> None:
    at.show(at.send_unknown())
    at.expect("lost", at.offset)
    at.expect("inconsistent-offsets", at.offset)


def _unseen(at: Stretch) -> None:
    at.send_unknown(outcome=OK)
    at.expect("unseen", -1)


def _duplicate(at: Stretch) -> None:
    at.forget()
    at.show(int(at.sends.value[at.next_row]))
    at.expect("duplicate", at.offset)


def _aborted_read(at: Stretch) -> None:
    at.sends.outcome[at.row] = FAIL
    at.sends.stated[at.row] = -1
    at.expect("aborted-read", at.offset)


def _phantom(at: Stretch) -> None:
    at.forget()
    at.show((_UNKNOWN_PROCESSES + at.key) * VALUES_PER_PROCESS + 7)
    at.expect("phantom", at.offset)


def _misrouted(at: Stretch) -> None:
    at.forget()
    at.show(at.send_unknown(at.key + 1))
    at.expect("misrouted", at.offset)


def _inconsistent(at: Stretch) -> None:
    at.show(at.send_unknown(), to_all=False)
    at.expect("inconsistent-offsets", at.offset)
    at.expect("divergence", at.offset)
    at.expect("vanished", at.offset)


def _realtime(at: Stretch) -> None:
    begun = int(at.sends.t1[at.next_row]) + 1
    at.sends.t0[at.row], at.sends.t1[at.row] = begun, begun + 1
    at.sends.process[at.row] = _UNKNOWN_PROCESSES + at.key
    at.expect("realtime-order", at.offset)


def _poll_skip(at: Stretch) -> None:
    gone = at.poll()
    after = at.own.record_offset[at.own.record_poll == gone].max() + 1
    kept = at.own.record_poll != gone
    polls = np.arange(len(at.own.t0)) != gone
    renumbered = np.cumsum(polls) - 1
    # It does not say that it was asked to begin there.
    at.own.start[gone + 1 : gone + 2] = -1
    at.own = at.own._replace(
        **{n: getattr(at.own, n)[polls] for n in ("t0", "t1", "process", "start", "hw")},
        record_poll=renumbered[at.own.record_poll[kept]],
        record_offset=at.own.record_offset[kept],
        record_value=at.own.record_value[kept],
    )
    at.expect("poll-skip", int(after))


def _poll_back(at: Stretch) -> None:
    poll = at.poll()
    here, later = (np.flatnonzero(at.own.record_poll == p) for p in (poll, poll + 1))
    at.own.start[poll + 1 : poll + 3] = -1
    at.own.record_offset[later] = at.own.record_offset[here]
    at.own.record_value[later] = at.own.record_value[here]
    first = int(at.own.record_offset[here[0]])
    at.expect("nonmonotonic-poll", first)
    at.expect("poll-skip", first + 2 * len(here))


def _beyond_hw(at: Stretch) -> None:
    poll = at.poll()
    last = int(at.own.record_offset[at.own.record_poll == poll].max())
    at.own.hw[poll] = last - 1
    at.expect("read-beyond-hw", last - 1, 2)


def _hole(at: Stretch) -> None:
    poll = at.poll()
    at.own.start[poll] -= 1
    at.expect("offset-hole", int(at.own.start[poll]))
    at.expect("poll-skip", int(at.own.start[poll]) + 1)


INJECTIONS: Final[dict[str, Callable[[Stretch], None]]] = {
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


class AnomalyInjector:
    """The anomalies to inject into one history, the n-th into the n-th key."""

    def __init__(self, names: tuple[str, ...], keys: int) -> None:
        """Check the names. Raises UsageError for an unknown one, or more anomalies than keys."""
        for name in names:
            if name not in INJECTIONS:
                raise UsageError(f"cannot inject '{name}'; there are {', '.join(INJECTIONS)}")
        if len(names) >= keys:
            raise UsageError(f"{len(names)} anomalies need more than {keys} keys: raise --keys")
        self._waiting = list(names)
        self._injected: list[InjectedAnomaly] = []
        self._finally: dict[int, tuple[int, int]] = {}

    def apply(
        self, sends: SendRows, polls: dict[int, PollRows], *, last: bool
    ) -> tuple[SendRows, dict[int, PollRows]]:
        """Inject anomalies into a part of the history: half of them into the first part, the rest
        into the last. Return the changed sends, and the changed polls by key."""
        count = len(self._waiting) if last else (len(self._waiting) + 1) // 2
        for _ in range(count):
            key, name = len({each.partition for each in self._injected}), self._waiting.pop(0)
            at = Stretch(sends, polls, key)
            INJECTIONS[name](at)
            sends, polls = at.sends, {**polls, key: at.own}
            if at.instead is not None:
                self._finally[key] = (at.offset, at.instead)
            self._injected += [InjectedAnomaly(f"key-{key:02}", *each) for each in at.expected]
        return sends, polls

    def finally_read(self, key: int, start: int, values: I64) -> I64:
        """Return what the final reads of a key return from `start` on for `values`."""
        offset, value = self._finally.get(key, (-1, -1))
        if start <= offset < start + len(values):
            values = values.copy()
            values[offset - start] = value
        return values

    def injected(self) -> tuple[InjectedAnomaly, ...]:
        """Return all anomalies that the checker must report."""
        return tuple(sorted(self._injected))
