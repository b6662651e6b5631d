"""Positions of readers: the offset at which each answer had to begin, if the history says it.

A read that states its `start` stands there. One that does not goes on where the last records of its
process ended, unless an assignment or a crash dropped that position, or the partition was
rebalanced while it ran. The position of any other read is not known.
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
    """Return for each operation, by its process and its place in the order of that, how often the
    process had dropped its position before, and whether it was subscribed then.

    An assign or subscribe keeps the position in the partitions it names and drops it in others.
    """
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
    """One row a run of records of an ok read, or an ok read without records: `low` is where it
    stood (or UNKNOWN_POSITION), `begin` and `end` what it returned (nothing: both where it stood).
    `ended`: the end of the log that the answer stated, or UNKNOWN_POSITION. `origin`: where its
    reader stood at first, since when it only went on."""

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
        """Select the reads that passed over offsets before the first that they returned."""
        return self.take((self.low >= 0) & (self.begin > self.low))


def positions(known: Evidence) -> Positions:
    """Return where every ok read of a partition stood."""
    ok = known.polls.outcome == Outcome.OK
    reads = known.polls.take(ok)
    some, stated = reads.count > 0, (reads.idx == 0) & (reads.start >= 0)
    # The end of what a process got before; a read without records says where it stood.
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
    # If polls in order before it were left out, it begins where the last of them ended.
    found: I64 = np.where(follows, reads.offset, np.where(same, reached[before], UNKNOWN_POSITION))
    return found


def latest_over(points: I64, begin: I64, end: I64, t_us: I64) -> I64:
    """Return for each point the latest time of an interval that holds it, -1 where none does."""
    order = np.argsort(points, kind="stable")
    ordered = points[order]
    found = np.full(len(points), -1, np.int64)
    first, after = np.searchsorted(ordered, begin), np.searchsorted(ordered, end)
    rows = np.flatnonzero(after > first)
    for row in rows[np.argsort(t_us[rows], kind="stable")].tolist():
        found[order[first[row] : after[row]]] = t_us[row]
    return found


def log_start_open(group: Group) -> str:
    """Say why the start of a partition's log is unknown; "" if it is known, or if nothing is ever
    deleted."""
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
