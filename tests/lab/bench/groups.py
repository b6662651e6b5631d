"""Makes histories of a consumer group of any size, as `synthetic.py` does, for the bench.

A member polls two records at a time, soon after they landed, and acks them; one poll in twenty is
not acked, and its records come again later. At the end is a quiet drain. In three partitions
something is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from msgspec import structs

from harness.formats.history import Op
from tests.lab.bench.anomaly_injection import InjectedAnomaly
from tests.lab.bench.repeated_tables import RepeatedTables
from tests.lab.bench.synthetic import Did, Maker

_AT_ONCE: Final = 2
_LAG_US, _POLL_US, _THINK_US = 10_000, 300, 500
_WAIT_US, _QUIET_US = 2_100_000, 10_000_000
_UNSETTLED: Final = 20
_PROMISE: Final = {"ack_wait_ms": 2_000, "redelivery_ms": 5_000, "counts": True}
_WRONG: Final = ("acked-redelivered", "not-redelivered", "undelivered")
"""What is wrong with one poll of each of the first keys."""
_MEMBERS: Final = 1 << 34
"""Each operation of the group is of a process of its own, from this one on."""


class GroupMaker(Maker):
    """Makes one history of a group, stretch by stretch."""

    def readers(self, landed: list[Did]) -> Iterator[Did]:
        """Let the member read these records, and settle them."""
        for nth, at in enumerate(range(0, len(landed), _AT_ONCE)):
            batch = landed[at : at + _AT_ONCE]
            records = [(each.at, each.value) for each in batch]
            poll = _did("poll", batch[-1].landed_us + _LAG_US, batch[0].key, records)
            yield poll
            if nth % _UNSETTLED == 1:
                poll = replace(poll, t0_us=poll.t0_us + _WAIT_US, t1_us=poll.t1_us + _WAIT_US)
                poll.times = 2
                yield poll
            yield replace(poll, f="ack", t0_us=poll.t1_us + 1, t1_us=poll.t1_us + _THINK_US)

    def begun(self) -> list[Did]:
        """Return the first stretch, after a join, with what is wrong in it."""
        did = [_did("join", 1_000, 0, []), *self.stretch(0)]
        known = {each.value for each in did if each.offset >= 0}
        self.injected = []
        for key, name in enumerate(_WRONG):
            own = [each for each in did if each.key == key and each.f in ("poll", "ack")]
            poll, ack = next(
                (one, other)
                for one, other in pairwise(own)
                if (one.f, other.f, one.times) == ("poll", "ack", 1)
                and len(one.records) == _AT_ONCE
                and known.issuperset(value for _, value in one.records)
            )
            if name == "acked-redelivered":
                late_us = poll.t0_us + _WAIT_US
                did.append(replace(poll, t0_us=late_us, t1_us=late_us + _POLL_US, times=2))
            else:
                did.remove(ack)
            if name == "undelivered":
                did.remove(poll)
            wrong = InjectedAnomaly(self.names[key], name, poll.records[0][0], _AT_ONCE)
            self.injected.append(wrong)
        return did

    def told(self, did: Any, first: int) -> list[Op]:
        """Return the lines of operations, those of the group with processes of their own."""
        lines = super().told(did, first)
        return [
            line if line.f == "send" else structs.replace(line, process=_MEMBERS + line.op)
            for line in lines
        ]

    def drain(self) -> list[Op]:
        """Return the lines of the last polls, which get nothing."""
        end_us = self.end_us + _WAIT_US + _QUIET_US
        polls = [_did("poll", t_us, 0, []) for t_us in (end_us, end_us + _QUIET_US)]
        return self.told([replace(each, final=True) for each in polls], self._before(self.times))

    def write_tables(self, folder: Path) -> dict[str, int]:
        made = RepeatedTables(folder, self.names)
        # What every partition must know of the group is told by a part with all partitions.
        made.append([*self.lines(0), *self.drain()])
        made.repeat(self.lines, 1, self.times)
        return made.close()

    def about(self) -> dict[str, Any]:
        return {"promise": {"groups": _PROMISE}, "phases": {"start_us": 1}}


def _did(f: str, t0_us: int, key: int, records: list[tuple[int, int]]) -> Did:
    """Return an operation of the member."""
    return Did(t0_us, t0_us + _POLL_US, 0, key, f, records=records, times=1, client="c")
