"""Positions of readers: the offset at which each answer had to begin, if the history shows it.

A read that states its `start` begins there. Any other read begins where the last records of its
process ended, unless an assignment or a crash dropped that position, or the partition was
rebalanced while the read ran: then the position is not known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from checker.evidence.columns import Mask
from checker.evidence.contents import Columnar, Evidence
from checker.evidence.facts import Outcome, Polls, Resets
from checker.evidence.group import Group
from checker.evidence.sorting import I64

UNKNOWN_POSITION: Final = -1


def resets_before(resets: Resets, process: I64, order: I64) -> tuple[I64, Mask]:
    """Return for each operation how often its process had dropped its position before, and whether
    the process was subscribed then. `order` is the place of the operation among those of its
    process. An assign or subscribe keeps the position in the partitions that it names, and drops it
    in others."""
    count = np.zeros(len(process), np.int64)
    subscribed = np.zeros(len(process), dtype=bool)
    for each in np.unique(resets.process):
        mine = resets.take(resets.process == each)
        here = np.flatnonzero(process == each)
        dropped = np.concatenate(([0], np.cumsum(~mine.named)))
        before = np.searchsorted(mine.order, order[here])
        count[here] = dropped[before]
        subscribed[here] = (before > 0) & mine.subscribed[np.maximum(before - 1, 0)]
    return count, subscribed


@dataclass(frozen=True)
class Positions(Columnar):
    """Positions of ok reads, a row for each run of records or answer without records. `low`: where
    the read had to begin; `begin`, `end`: what it returned (both `low` if no record); `ended`: the
    end of the log that the answer stated; `origin`: where the reader began before it read up to
    here without a break; `t0`: when the read was invoked. UNKNOWN_POSITION stands for an unknown
    offset."""

    low: I64
    begin: I64
    end: I64
    ended: I64
    origin: I64
    t0: I64
    empty: Mask
    final: Mask

    @property
    def gap(self) -> Positions:
        """The reads that passed over offsets in front of the first record that they returned."""
        return self.take((self.low >= 0) & (self.begin > self.low))


def positions(known: Evidence) -> Positions:
    """Return the positions of all ok reads of a partition."""
    ok = known.polls.outcome == Outcome.OK
    reads = known.polls.take(ok)
    some, stated = reads.count > 0, (reads.idx == 0) & (reads.start >= 0)
    # Where a process stands after each read; a read without records stays at its start.
    reached = np.where(some, reads.end, np.where(stated, reads.start, UNKNOWN_POSITION))
    went_on = _went_on(known, reads, known.follows[ok], reached)
    low = np.where(stated, reads.start, went_on)
    begins = (went_on < 0) | (low != went_on)
    origin = low[np.maximum.accumulate(np.where(begins, np.arange(len(reads)), 0))]
    end = np.where(some, reads.end, low)
    ended = np.where(reads.hw >= 0, reads.hw, np.where(reads.at_end, end, UNKNOWN_POSITION))
    begin = np.where(some, reads.offset, low)
    return Positions(low, begin, end, ended, origin, reads.invoke_us, ~some, reads.final)


def _went_on(known: Evidence, reads: Polls, follows: Mask, reached: I64) -> I64:
    """Return where each read stood if it went on from the one before of its process."""
    if not len(reads):
        return reached
    resets, _ = resets_before(known.group.of(Resets), reads.process, reads.order)
    last = np.maximum.accumulate(np.where(reached >= 0, np.arange(len(reads)), -1))
    before = np.append(-1, last[:-1])
    same = (before >= 0) & (reads.process[before] == reads.process)
    same &= (resets[before] == resets) & ~reads.rebalanced
    # If polls before it were left out, it begins where the last of them ended.
    found: I64 = np.where(follows, reads.offset, np.where(same, reached[before], UNKNOWN_POSITION))
    return found


def latest_over(points: I64, begin: I64, end: I64, t_us: I64) -> I64:
    """Return for each point the latest `t_us` of the intervals [begin, end) around it, or -1."""
    order = np.argsort(points, kind="stable")
    ordered = points[order]
    found = np.full(len(points), -1, np.int64)
    first, after = np.searchsorted(ordered, begin), np.searchsorted(ordered, end)
    rows = np.flatnonzero(after > first)
    for row in rows[np.argsort(t_us[rows], kind="stable")].tolist():
        found[order[first[row] : after[row]]] = t_us[row]
    return found


def log_start_open(group: Group) -> str:
    """Say why it is unknown where the log of a partition starts; "" if it is known, or if the run
    promises that nothing is deleted."""
    promise = group.meta.promise
    if promise.compaction:
        return (
            f"the promise has compaction, which may delete any record of {group.partition}, and a "
            "history names no keys"
        )
    if not promise.retention or group.logs_complete:
        return ""
    if "trace" in group.meta.capabilities and set(group.replicas) <= group.traced:
        return ""
    return (
        f"the promise has retention, and nothing says where the log of {group.partition} begins: "
        "that takes the logs or the traces of its replicas"
    )
