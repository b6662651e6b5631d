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
from checker.evidence.positions import resets_before
from checker.evidence.sorting import I64
from checker.formats.anomalies import OFFSETS, WITNESS_CAP
from checker.formats.verdict import Anomaly

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
    first = known.dense(reads.offset)
    found = [
        *_inside(group, known, reads, first),
        *_between(group, known, reads, known.follows[some], first),
    ]
    return Finding(property=OFFSETS, examined=known.polls_with_records, anomalies=tuple(found))


def _inside(group: Group, known: Evidence, reads: Polls, first: I64) -> list[Anomaly]:
    """Compare successive runs of records of one poll; a rebalance may move it meanwhile.
    `int-nonmonotonic-poll`: the dense index of a record is not above that of the one before.
    `int-poll-skip`: it rises by more than 1. A read that states its start is compared with that."""
    later = np.flatnonzero((reads.op[1:] == reads.op[:-1]) & ~reads.rebalanced[1:]) + 1
    stands, index = _stood(known, reads, later - 1, later)
    delta = first[later] - index
    back, ahead = later[delta < 1], later[delta > 1]
    weak = _over_weak(known, reads, stands[delta > 1], ahead)
    found = []
    for name, rows, allowed in (
        ("int-nonmonotonic-poll", back, ""),
        ("int-poll-skip", ahead[~weak], ""),
        ("int-poll-skip", ahead[weak], _WEAK),
    ):
        if len(rows):
            found.append(_report(group, reads, name, rows - 1, rows, allowed))
    return found


def _stood(known: Evidence, reads: Polls, before: I64, after: I64) -> tuple[I64, I64]:
    """Return where each run `after` had to begin, and the dense index of the record before that:
    after the run `before` it, or where its own read was asked to begin, if it states that. Records
    that retention deleted are not expected."""
    asked = (reads.idx[after] == 0) & (reads.start[after] >= 0)
    stands = np.where(asked, reads.start[after], reads.end[before])
    stands = np.maximum(stands, np.minimum(known.deleted_below, reads.offset[after]))
    return stands, np.searchsorted(known.offsets, stands) - 1


def _over_weak(known: Evidence, reads: Polls, stands: I64, after: I64) -> Mask:
    """Select the runs that passed over nothing but records known from acknowledgements with acks 0
    or 1: such records may be lost, and leave a gap for ever."""
    sure = known.sure_offsets
    passed = np.searchsorted(sure, reads.offset[after]) - np.searchsorted(sure, stands)
    weak: Mask = passed <= 0
    return weak


def _between(
    group: Group, known: Evidence, reads: Polls, follows: Mask, first: I64
) -> list[Anomaly]:
    """Compare a poll with the last ok poll of the same process since its position was dropped.
    `nonmonotonic-poll`: its first record is not above the last one of that, in dense index.
    `poll-skip`: it is above by more than 1."""
    starts = first_of(reads.op)
    ends = np.append(starts[1:], len(reads)) - 1
    polls = reads.take(starts)
    process, ok = polls.process, polls.outcome == Outcome.OK
    resets, subscribed = resets_before(group.of(Resets), process, polls.order)
    latest_ok = np.maximum.accumulate(np.where(ok, np.arange(len(polls)), -1))
    baseline = np.append(-1, latest_ok[:-1])
    # If polls before it were left out, it continued the last of them.
    usable = (baseline >= 0) & ~follows[starts]
    usable &= (process[baseline] == process) & (resets[baseline] == resets)
    rows = np.flatnonzero(usable)
    before, after = ends[baseline[rows]], starts[rows]
    stands, index = _stood(known, reads, before, after)
    delta = first[after] - index
    moved, back, ahead = subscribed[rows], delta < 1, delta > 1
    # What passed over more than weak records is ahead.
    weak = _over_weak(known, reads, stands, after)
    found = []
    for name, which, allowed in (
        ("nonmonotonic-poll", back & ~moved, ""),
        ("nonmonotonic-poll", back & moved, _SUBSCRIBED),
        ("poll-skip", ~moved & ~weak, ""),
        ("poll-skip", ahead & ~moved & weak, _WEAK),
        ("poll-skip", ahead & moved, _SUBSCRIBED),
    ):
        if which.any():
            found.append(_report(group, reads, name, before[which], after[which], allowed))
    return found


def _report(
    group: Group, reads: Polls, name: str, before: I64, after: I64, allowed: str
) -> Anomaly:
    """Return pairs of runs (`before`, `after`) that do not follow each other as one anomaly."""
    order = np.lexsort((reads.op[after], reads.offset[after]))
    before, after = before[order], after[order]
    witnesses = []
    for i in range(min(len(after), WITNESS_CAP // 2)):
        last = int(reads.end[before[i]]) - 1
        span = int(reads.value[before[i]])
        value = span + int(reads.count[before[i]]) - 1 if span >= 0 else span
        witnesses.append(read_witness(reads, int(after[i])))
        witnesses.append(read_witness(reads, int(before[i]), offset=last, value=value))
    now, then = witnesses[:2]
    skipped = "skipped records" if name.endswith("skip") else "went back or repeated"
    where = "inside one poll" if name.startswith("int-") else "between polls"
    message = (
        f"{plural(len(after), 'time')} a consumer of {group.partition} {skipped} {where}: "
        f"{op_name(now)} got offset {now.offset} after offset {then.offset}, "
        f"{group.seconds(now.t_us)} into the storm."
    )
    return anomaly(group, name, message, witnesses, count=len(after), allowed=allowed)
