"""Reads return only records below the high watermark, and are as fresh as promised. The limit is
the HW that the answer states, and the highest HW of any replica when the answer arrived."""

from __future__ import annotations

from typing import Final

import numpy as np

from checker.checks.findings import Finding, anomaly, node_witness, op_name, plural, read_witness
from checker.checks.registry import per_partition
from checker.evidence.columns import Mask
from checker.evidence.contents import Evidence, evidence
from checker.evidence.facts import (
    Contents,
    HighWatermarks,
    Outcome,
    Polls,
    SkippedAnswers,
    SkippedPolls,
)
from checker.evidence.group import Group
from checker.evidence.needs import Need, missing
from checker.evidence.positions import last_of_answers, positions
from checker.evidence.sorting import I64
from checker.formats.anomalies import READS, WITNESS_CAP
from checker.formats.verdict import Anomaly

_NO_LIMIT: Final = np.iinfo(np.int64).max


@per_partition(
    "read-beyond-hw",
    "end-below-hw",
    "stale-read",
    "hw-regression",
    needs=(Need.HISTORY, Need.WATERMARKS),
)
def judge(group: Group) -> Finding:
    known = evidence(group)
    reads = known.polls.take(known.polls.outcome == Outcome.OK)
    found = [
        *read_beyond_hw(group, reads),
        *end_below_hw(group, known, reads),
        *stale_read(group, known, reads),
        *hw_regression(group, known),
    ]
    bounded = (reads.hw >= 0).any() or group.meta.promise.staleness_ms >= 0
    bounded |= "hw" in group.meta.capabilities
    skipped = int(group.of(SkippedPolls).count.sum())
    examined = int((reads.count > 0).sum()) + skipped if bounded else 0
    return Finding(property=READS, examined=examined, anomalies=tuple(found))


def read_beyond_hw(group: Group, reads: Polls) -> list[Anomaly]:
    """Find `read-beyond-hw`: an ok read returned a record at or above the HW that the answer
    states, or above the highest HW that any replica had established when the read completed. A
    broker writes an HW event to its trace before it answers, and clients use the same clock. So an
    HW event that is later than the answer cannot excuse it. The second form needs the trace of
    every replica."""
    reads = reads.take(reads.count > 0)
    stated = np.where(reads.hw >= 0, reads.hw, _NO_LIMIT)
    limit = np.minimum(stated, _established(group, reads))
    beyond = np.clip(reads.end - np.maximum(reads.offset, limit), 0, None)
    rows = np.flatnonzero(beyond > 0)
    if not len(rows):
        return []
    rows = rows[np.lexsort((reads.op[rows], reads.complete_us[rows]))]
    first = int(rows[0])
    offset = max(int(limit[first]), int(reads.offset[first]))
    witnesses = [
        read_witness(
            reads,
            int(r),
            offset=max(int(limit[r]), int(reads.offset[r])),
            value=int(reads.value[r]) + max(int(limit[r] - reads.offset[r]), 0),
        )
        for r in rows[: WITNESS_CAP - 1]
    ]
    events = group.of(HighWatermarks)
    then = np.flatnonzero((events.t_us > reads.complete_us[first]) & (events.hw > offset))
    if len(then):
        row = int(then[0])
        witnesses.append(node_witness(events, row, offset=int(events.hw[row])))
    mark = int(limit[first])
    source = (
        f"though the answer itself states {mark}"
        if stated[first] == mark
        else f"when {mark} was the highest that any replica had established"
    )
    case = witnesses[0]
    message = (
        f"{plural(int(beyond.sum()), 'record')} of {group.partition} read beyond the high "
        f"watermark: {op_name(case)} got offset {offset} from {case.node or 'a broker'} "
        f"{group.seconds(case.t_us)} into the storm, {source}."
    )
    return [anomaly(group, "read-beyond-hw", message, witnesses, count=int(beyond.sum()))]


def _established(group: Group, reads: Polls | Contents) -> I64:
    """Return the highest HW announced when each read completed; no limit if it is unknown."""
    events = group.of(HighWatermarks)
    if "hw" not in group.meta.capabilities or missing(group, (Need.WATERMARKS,)):
        return np.full(len(reads), _NO_LIMIT)
    highest = np.concatenate(([0], np.maximum.accumulate(events.hw))) if len(events) else None
    if highest is None:
        return np.zeros(len(reads), np.int64)
    found: I64 = highest[np.searchsorted(events.t_us, reads.complete_us, side="right")]
    return found


def end_below_hw(group: Group, known: Evidence, reads: Polls) -> list[Anomaly]:
    """Find `end-below-hw`: an answer states that the log ends below a record that was known before
    and is below the HW that the answer states itself. A reader with read_committed gets nothing
    behind a transaction that is under way."""
    where = positions(known)
    low = np.maximum(where.end, where.floor)
    rows = np.flatnonzero(
        last_of_answers(reads) & reads.at_end & (where.end >= 0) & (low < reads.hw)
    )
    if not len(rows):
        return []
    rows = rows[reads.uncommitted[rows] | ~_may_wait(group, known, reads.take(rows))]
    since = _known_since(known, low[rows], reads.hw[rows])
    rows = rows[since < reads.invoke_us[rows]]
    if not len(rows):
        return []
    rows = rows[np.lexsort((reads.op[rows], reads.complete_us[rows]))]
    witnesses = [read_witness(reads, int(r), offset=int(where.end[r])) for r in rows[:WITNESS_CAP]]
    case, hw = witnesses[0], int(reads.hw[rows[0]])
    message = (
        f"{plural(len(rows), 'answer')} of {group.partition} ended below its own high watermark: "
        f"{op_name(case)} was told by {case.node or 'a broker'} that the log ends at {case.offset} "
        f"{group.seconds(case.t_us)} into the storm, though the answer itself states {hw} and a "
        "record between them was known before."
    )
    return [anomaly(group, "end-below-hw", message, witnesses, count=len(rows))]


def _may_wait(group: Group, known: Evidence, reads: Polls) -> Mask:
    """Select the answers that may have waited for a transaction: one was perhaps under way."""
    sends = known.sends
    if not group.has_transactions or not len(sends):
        return np.zeros(len(reads), dtype=bool)
    order = np.argsort(sends.invoke_us, kind="stable")
    ended = np.where(sends.outcome == Outcome.INFO, _NO_LIMIT, sends.complete_us)[order]
    latest = np.append(-1, np.maximum.accumulate(ended))
    begun = np.searchsorted(sends.invoke_us[order], reads.complete_us, side="right")
    found: Mask = latest[begun] >= reads.invoke_us
    return found


def _known_since(known: Evidence, low: I64, high: I64) -> I64:
    """Return since when any record at an offset low .. high - 1 was known, for each such range."""
    points = known.known_positions.take(known.known_positions.strong)
    points = points.take(np.argsort(points.offset, kind="stable"))
    begin, end = (np.searchsorted(points.offset, each) for each in (low, high))
    ranges = set(zip(begin.tolist(), end.tolist(), strict=True))
    since = {r: points.t_us[slice(*r)].min(initial=_NO_LIMIT) for r in ranges}
    each = zip(begin.tolist(), end.tolist(), strict=True)
    return np.array([since[r] for r in each], np.int64)


def stale_read(group: Group, known: Evidence, reads: Polls) -> list[Anomaly]:
    """Find `stale-read`: an answer states an end of the log (by its HW or `at_end`) at or below a
    record that had been known for longer than the staleness that the run promises."""
    bound_us = group.meta.promise.staleness_ms * 1000
    if bound_us < 0:
        return []
    end = positions(known).ended
    late = _late(known, reads.invoke_us, end, bound_us)
    rows = np.flatnonzero(late & last_of_answers(reads))
    if not len(rows):
        return []
    points = known.known_positions.take(known.known_positions.strong)
    farthest = np.maximum.accumulate(points.offset)
    rows = rows[np.lexsort((reads.op[rows], reads.complete_us[rows]))]
    first = int(rows[0])
    case = read_witness(reads, first, offset=int(end[first]))
    at = int(np.argmax(farthest >= end[first]))
    message = (
        f"{plural(len(rows), 'answer')} of {group.partition} older than {bound_us // 1000} ms: "
        f"{op_name(case)} got the log end {case.offset} from {case.node or 'a broker'} "
        f"{group.seconds(case.t_us)} into the storm, though offset {points.offset[at]} was known "
        f"{group.seconds(points.t_us[at])} into it."
    )
    witnesses = [read_witness(reads, int(row), offset=int(end[row])) for row in rows[:WITNESS_CAP]]
    return [anomaly(group, "stale-read", message, witnesses, count=len(rows))]


def _late(known: Evidence, t0: I64, end: I64, bound_us: int) -> Mask:
    """Select the answers, asked for at `t0`, that end below an end known longer than the bound."""
    points = known.known_positions.take(known.known_positions.strong)
    if not len(points.t_us):
        return np.zeros(len(end), dtype=bool)
    farthest = np.maximum.accumulate(points.offset)
    before = np.searchsorted(points.t_us, t0 - bound_us, side="left")
    behind = farthest[np.maximum(before - 1, 0)] + 1 - end
    found: Mask = (end >= 0) & (before > 0) & (behind > 0)
    return found


def depends_on_every_read(group: Group) -> bool:
    """Return whether a finding may depend on reads that downsampling left out
    (`checker.engine.read_downsampling`). Of all reads of the same records the earliest is left in:
    if that is below the highest HW of its time, so are the others."""
    known, bound_us = evidence(group), group.meta.promise.staleness_ms * 1000
    reads = group.of(Contents)
    reads = reads.take(reads.outcome == Outcome.OK)
    if (reads.end > _established(group, reads)).any():
        return True
    answers = group.of(SkippedAnswers)
    return bound_us >= 0 and bool(_late(known, answers.invoke_us, answers.log_end, bound_us).any())


def hw_regression(group: Group, known: Evidence) -> list[Anomaly]:
    """Find `hw-regression`: successive answers to one process state a lower HW, as may happen when
    a new leader begins with an older HW."""
    reads = known.polls
    reads = reads.take((reads.outcome == Outcome.OK) & (reads.hw >= 0))
    back = (reads.process[1:] == reads.process[:-1]) & (reads.hw[1:] < reads.hw[:-1])
    rows = np.flatnonzero(back) + 1
    if not len(rows):
        return []
    rows = rows[np.lexsort((reads.op[rows], reads.complete_us[rows]))]
    first = int(rows[0])
    case = read_witness(reads, first, offset=int(reads.hw[first]))
    message = (
        f"{plural(len(rows), 'time')} the high watermark of {group.partition} went back for a "
        f"client: {op_name(case)} got {int(reads.hw[first])} from {case.node or 'a broker'} after "
        f"{int(reads.hw[first - 1])} from {reads.name(int(reads.node[first - 1])) or 'a broker'}."
    )
    before = read_witness(reads, first - 1, offset=int(reads.hw[first - 1]))
    return [anomaly(group, "hw-regression", message, [case, before], count=len(rows))]
