"""Polls in order: skips and steps back, between the polls of one process and inside one poll.

Distances are counted in dense indices, the places among those offsets at which any record is known:
a gap without a known record is no skip. The classes are those of Jepsen's Kafka checker, with two
changes: a poll without records is not what the next poll is compared with (it would hide a skip),
and a record counts at the offset at which it was read.
"""

from __future__ import annotations

import numpy as np

from checker.checks.findings import Finding, anomaly, op_name, plural, read_witness
from checker.checks.registry import per_partition
from checker.evidence.columns import Mask
from checker.evidence.contents import Evidence, evidence, first_of
from checker.evidence.facts import Outcome, Polls, Resets
from checker.evidence.group import Group
from checker.evidence.needs import Need
from checker.evidence.positions import begins_at, proves_nothing, resets_before, undeleted_from
from checker.evidence.sorting import I64
from checker.formats.anomalies import OFFSETS, WITNESS_CAP
from checker.formats.verdict import Anomaly, Witness

_WEAK = "it passed over records that were only acknowledged, with acks 0 or 1, and may be lost"
_SUBSCRIBED = "a subscribed consumer may be moved by a rebalance"


@per_partition(
    "int-nonmonotonic-poll",
    "int-poll-skip",
    "nonmonotonic-poll",
    "poll-skip",
    needs=(Need.HISTORY,),
)
def judge(group: Group) -> Finding:
    known = evidence(group)
    some = known.polls.count > 0
    reads = known.polls.take(some)
    if not len(reads):
        return Finding(property=OFFSETS)
    begin = begins_at(known.polls)[some]
    inside, between = (
        _inside(known, reads, begin),
        _between(group, known, reads, known.follows[some], begin),
    )
    doubtful = [moves.name for moves in (inside, between) if moves.doubtful.any()]
    return Finding(
        property=OFFSETS,
        examined=known.polls_with_records,
        anomalies=(*_reported(group, inside), *_reported(group, between)),
        unknown=proves_nothing(group, doubtful[0]) if doubtful else "",
    )


class _Moves:
    """The runs `after`, which follow the runs `before` (or themselves, if they follow none) and had
    to begin at `stands`. `back`: a run begins below. `ahead`: it passed over known records that had
    not been deleted. `weak`: it passed over none but those known from acknowledgements with acks 0
    or 1, which may be lost and leave a gap for ever. `doubtful`: it passed over records that may
    have been deleted. `moved`: a rebalance may have moved the reader before."""

    def __init__(
        self, known: Evidence, reads: Polls, rows: tuple[I64, I64], stands: I64, moved: Mask
    ) -> None:
        self.name = "poll-skip"
        self.reads, self.stands, self.moved = reads, stands, moved
        self.before, self.after = rows
        begin, floor = reads.offset[self.after], undeleted_from(known, reads)[self.after]
        low = np.maximum(stands, np.minimum(floor, begin))
        self.back: Mask = begin < stands
        self.ahead: Mask = _any_between(known.offsets, low, begin)
        self.weak: Mask = ~_any_between(known.sure_offsets, low, begin)
        gone = np.minimum(np.maximum(stands, known.deleted_below), begin)
        self.doubtful: Mask = _any_between(known.sure_offsets, gone, low) & ~moved


def _any_between(offsets: I64, low: I64, high: I64) -> Mask:
    """Return whether any of these sorted offsets is in each range low .. high - 1."""
    found: Mask = np.searchsorted(offsets, low) < np.searchsorted(offsets, high)
    return found


def _inside(known: Evidence, reads: Polls, begin: I64) -> _Moves:
    """Compare successive runs of records of one poll; a rebalance may move it meanwhile.
    `int-nonmonotonic-poll`: a record is not above the one before. `int-poll-skip`: another known
    record stands between. A read that states its start is compared with that."""
    after = np.flatnonzero((reads.op[1:] == reads.op[:-1]) & ~reads.rebalanced[1:]) + 1
    stands = np.where(begin[after] >= 0, begin[after], reads.end[after - 1])
    moves = _Moves(known, reads, (after - 1, after), stands, np.zeros(len(after), bool))
    moves.name = "int-poll-skip"
    return moves


def _between(group: Group, known: Evidence, reads: Polls, follows: Mask, begin: I64) -> _Moves:
    """Compare a poll with where it states to begin, or else with the last ok poll of the same
    process since its position was dropped. `nonmonotonic-poll`: its first record is below that.
    `poll-skip`: another known record stands between."""
    starts = first_of(reads.op)
    ends = np.append(starts[1:], len(reads)) - 1
    polls = reads.take(starts)
    process, ok = polls.process, polls.outcome == Outcome.OK
    resets, subscribed = resets_before(group.of(Resets), process, polls.order)
    latest_ok = np.maximum.accumulate(np.where(ok, np.arange(len(polls)), -1))
    baseline = np.append(-1, latest_ok[:-1])
    # If polls before it were left out, it continued the last of them.
    usable = (baseline >= 0) & ~follows[starts] & ~polls.rebalanced
    usable &= (process[baseline] == process) & (resets[baseline] == resets)
    rows = np.flatnonzero(usable | (begin[starts] >= 0))
    before, after = np.where(usable, ends[baseline], starts)[rows], starts[rows]
    stated = begin[after] >= 0
    stands = np.where(stated, begin[after], reads.end[before])
    return _Moves(known, reads, (before, after), stands, subscribed[rows] & ~stated)


def _reported(group: Group, moves: _Moves) -> list[Anomaly]:
    """Return the anomalies of these moves, those that are allowed apart."""
    prefix = "int-" if moves.name == "int-poll-skip" else ""
    found = []
    for name, which, allowed in (
        (f"{prefix}nonmonotonic-poll", moves.back & ~moves.moved, ""),
        (f"{prefix}nonmonotonic-poll", moves.back & moves.moved, _SUBSCRIBED),
        (moves.name, moves.ahead & ~moves.moved & ~moves.weak, ""),
        (moves.name, moves.ahead & ~moves.moved & moves.weak, _WEAK),
        (moves.name, moves.ahead & moves.moved, _SUBSCRIBED),
    ):
        if which.any():
            found.append(_report(group, moves, name, np.flatnonzero(which), allowed))
    return found


def _report(group: Group, moves: _Moves, name: str, rows: I64, allowed: str) -> Anomaly:
    """Return pairs of runs that do not follow each other as one anomaly."""
    reads, count = moves.reads, len(rows)
    rows = rows[np.lexsort((reads.op[moves.after[rows]], reads.offset[moves.after[rows]]))]
    witnesses: list[Witness] = []
    for before, after in zip(moves.before[rows], moves.after[rows], strict=True):
        if len(witnesses) + 1 >= WITNESS_CAP:
            break
        witnesses.append(read_witness(reads, int(after)))
        if before != after:
            last, span = int(reads.end[before]) - 1, int(reads.value[before])
            value = span + int(reads.count[before]) - 1 if span >= 0 else span
            witnesses.append(read_witness(reads, int(before), offset=last, value=value))
    skipped = "skipped records" if name.endswith("skip") else "went back or repeated"
    where = "inside one poll" if name.startswith("int-") else "between polls"
    now, first = witnesses[0], rows[0]
    after = f"after offset {witnesses[1].offset}" if len(witnesses) > 1 else ""
    if moves.before[first] == moves.after[first]:
        where, after = "at the start of a read", f"though it began at {moves.stands[first]}"
    message = (
        f"{plural(count, 'time')} a consumer of {group.partition} {skipped} {where}: "
        f"{op_name(now)} got offset {now.offset} {after}, "
        f"{group.seconds(now.t_us)} into the storm."
    )
    return anomaly(group, name, message, witnesses, count=count, allowed=allowed)
