"""Positions of readers: the offset at which each answer had to begin, if the history shows it.

A read that states its `start` begins there. Any other read begins where the last records of its
process ended, or at a higher start that an answer without records has stated since, unless an
assignment or a crash dropped that position, or the process subscribed and a rebalance may have
moved it since: then the position is not known. A final reader begins at 0. No position is known of
a read while which the partition was rebalanced.

Retention deletes the oldest records. What an answer has of them, or says of the start of the log,
shows from which offset on nothing had been deleted when an earlier read was answered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from checker.evidence.columns import Mask
from checker.evidence.contents import NEVER, Columnar, Evidence, evidence, first_of
from checker.evidence.facts import Deletions, Outcome, Polls, Resets
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
    """Positions of ok reads, a row for each run of records or answer without records. `floor`: the
    offset from which on nothing had been deleted when the read was answered; `low`: where the read
    had to begin; `begin`, `end`: what it returned (both `low` if no record); `ended`: the
    end of the log that the answer stated; `origin`: where the reader began before it read up to
    here without a break; `t0`: when the read was invoked. UNKNOWN_POSITION stands for an unknown
    offset."""

    floor: I64
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
        """The reads that passed over offsets in front of the first record that they returned,
        though these had not been deleted."""
        return self.take((self.low >= 0) & (self.begin > self.due))

    @property
    def due(self) -> I64:
        """The lowest offset from which on each read had to return what is there."""
        found: I64 = np.maximum(self.low, self.floor)
        return found


def positions(known: Evidence) -> Positions:
    """Return the positions of all ok reads of a partition, made once for all checks."""
    return known.group.memo(_positions)


def _positions(group: Group) -> Positions:
    known = evidence(group)
    ok = known.polls.outcome == Outcome.OK
    reads = known.polls.take(ok)
    some, begin = reads.count > 0, begins_at(reads)
    went_on = _went_on(known)[ok]
    low = np.where(begin >= 0, begin, went_on)
    begins = (went_on < 0) | (low != went_on)
    origin = low[np.maximum.accumulate(np.where(begins, np.arange(len(reads)), 0))]
    end = np.where(some, reads.end, low)
    begin, floor = np.where(some, reads.offset, low), undeleted_from(known, reads)
    # If all behind it may have been deleted, the log need not end where a reader got nothing,
    # unless that was a final reader which had just got there.
    ends = reads.at_end & last_of_answers(reads)
    if log_start_open(known.group):
        ends &= some | (low >= floor) | (reads.final & (low > origin))
    ended = np.where(reads.hw >= 0, reads.hw, np.where(ends, end, UNKNOWN_POSITION))
    return Positions(floor, low, begin, end, ended, origin, reads.invoke_us, ~some, reads.final)


def last_of_answers(reads: Polls) -> Mask:
    """Select the last row of each answer."""
    found = np.ones(len(reads), dtype=bool)
    found[:-1] = (reads.op[1:] != reads.op[:-1]) | (reads.seq[1:] != reads.seq[:-1])
    return found


def begins_at(reads: Polls) -> I64:
    """Return the offset at which each run of a read had to begin by itself, whatever its process
    read before: where its read states to begin, and 0 for the first answer to a final reader;
    UNKNOWN_POSITION for others, and if the partition was rebalanced meanwhile."""
    opens = (reads.idx == 0) & ~reads.rebalanced
    found = np.where(opens & (reads.start >= 0), reads.start, UNKNOWN_POSITION)
    if not (lost := opens & reads.final & (found < 0)).any():
        return found
    moved = (reads.outcome == Outcome.OK) & ((reads.count > 0) | (reads.start >= 0))
    before = np.cumsum(moved) - moved
    first = first_of(reads.process)
    lengths = np.diff(np.append(first, len(reads)))
    found[lost & (before == np.repeat(before[first], lengths))] = 0
    return found


def undeleted_from(known: Evidence, reads: Polls) -> I64:
    """Return for each run of a read the offset from which on nothing had been deleted when it was
    answered; NEVER if that is not known of any offset."""
    promise, open_ = known.group.meta.promise, log_start_open(known.group)
    found = np.full(len(reads), NEVER if open_ else known.deleted_below)
    if promise.compaction or not found.any():
        return found
    if known.group.clocks_sound:
        found = np.minimum(found, _undeleted_by(known, reads))
        found = np.where(reads.log_start >= 0, np.minimum(found, reads.log_start), found)
    # An answer is of one moment: it cannot lack what stands behind a record that it has.
    return np.where(reads.idx > 0, 0, found)


def _undeleted_by(known: Evidence, reads: Polls) -> I64:
    """Return the same, as far as reads that began later show it, or traces until then."""
    every = known.polls.take(known.polls.outcome == Outcome.OK)
    seen = np.where(every.count > 0, every.offset, NEVER)
    seen = np.minimum(seen, np.where(every.log_start >= 0, every.log_start, NEVER))
    # What one replica deleted, another may still have.
    found = np.full(len(reads), NEVER)
    for node in np.unique(reads.node).tolist():
        own = reads.node == node
        anywhere = (every.node == node) | (every.node == 0) | (node == 0)
        found[own] = _lowest_since(every.invoke_us, seen, anywhere, reads.complete_us[own])
    deletions = known.group.of(Deletions)
    if _traced(known.group) and known.deleted_below == deletions.start.max(initial=0):
        highest = np.append(0, np.maximum.accumulate(deletions.start))
        by_then = highest[np.searchsorted(deletions.t_us, reads.complete_us, "right")]
        found = np.minimum(found, np.where(reads.complete_us >= 0, by_then, NEVER))
    return found


def _lowest_since(t_us: I64, seen: I64, which: Mask, since_us: I64) -> I64:
    """Return the lowest of `which` offsets in reads that were invoked at each time or later."""
    order = np.argsort(t_us[which], kind="stable")
    lowest = np.minimum.accumulate(seen[which][order][::-1])[::-1]
    found: I64 = np.append(lowest, NEVER)[np.searchsorted(t_us[which][order], since_us)]
    return found


def stood(group: Group) -> tuple[I64, I64, Mask]:
    """Return for each run of a poll the row of the last records of its process (its own if it has
    none since it dropped its position), where its process stood after them and after ok answers
    without records (UNKNOWN_POSITION if neither shows it), and whether a rebalance may have moved
    it since."""
    polls = evidence(group).polls
    resets, moved = resets_before(group.of(Resets), polls.process, polls.order)
    ok, some = polls.outcome == Outcome.OK, polls.count > 0
    states = ok & ~polls.rebalanced & (~moved | polls.final) & group.history_whole
    value = np.where(states, polls.start, UNKNOWN_POSITION)
    ranks, rank = np.unique(np.where(ok & some, polls.end, value), return_inverse=True)
    apart = np.ones(len(polls), dtype=bool)
    apart[1:] = (polls.process[1:] != polls.process[:-1]) | (resets[1:] != resets[:-1])
    # One maximum does for all stretches that begin with records, because they are numbered.
    stretch = np.cumsum(apart | (ok & some)) * len(ranks)
    after = ranks[np.maximum.accumulate(stretch + rank) % max(1, len(ranks))]
    found = np.where(apart | polls.rebalanced, UNKNOWN_POSITION, np.roll(after, 1))
    own = np.arange(len(polls))
    last = np.append(-1, np.maximum.accumulate(np.where(ok & some, own, -1)))[:-1]
    same = (last >= 0) & (polls.process[last] == polls.process) & (resets[last] == resets)
    return np.where(same, last, own), found, moved


def _went_on(known: Evidence) -> I64:
    """Return where each run of a poll stood if it went on from the one before of its process."""
    polls, whole = known.polls, known.group.history_whole
    before, found, moved = known.group.memo(stood)
    inside = polls.op == polls.op[before]
    # A rebalance may move a subscriber from one poll to the next; a final reader is alone. A poll
    # in between may be missing, but not inside an operation.
    found = np.where(inside | (whole & (~moved | polls.final)), found, UNKNOWN_POSITION)
    # If polls before it were left out, it begins where the last of them ended.
    return np.where(known.follows & whole, polls.offset, found)


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


def proves_nothing(group: Group, name: str) -> str:
    """Say that what looks like the anomaly `name` may be the work of retention."""
    return f"what looks like {name} proves nothing: {log_start_open(group)}"


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
    if _traced(group):
        return ""
    return (
        f"the promise has retention, and nothing says where the log of {group.partition} begins: "
        "that takes the logs or the traces of its replicas"
    )


def _traced(group: Group) -> bool:
    """Return whether the trace of every replica is there."""
    return "trace" in group.meta.capabilities and set(group.replicas) <= group.traced
