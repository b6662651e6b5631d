"""Reads return only records below the high watermark, and are as fresh as promised. The limit is
the HW that the answer states, and the highest HW of any replica when the answer arrived."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from checker.checks.cases import Cases
from checker.checks.findings import node_witness, read_witness
from checker.checks.registry import Check
from checker.evidence.columns import Mask
from checker.evidence.contents import Evidence, evidence
from checker.evidence.facts import Contents, HighWatermarks, Outcome, Polls, SkippedPolls
from checker.evidence.group import Group
from checker.evidence.needs import Need, missing
from checker.evidence.positions import last_of_answers, positions
from checker.evidence.sorting import I64
from checker.formats.anomalies import READS, WITNESS_CAP
from checker.formats.verdict import Witness

_NO_LIMIT: Final = np.iinfo(np.int64).max


def _examined(group: Group) -> int:
    """Count the reads that something limits."""
    reads = _ok_reads(group)
    bounded = (reads.hw >= 0).any() or group.meta.promise.staleness_ms >= 0
    if not bounded and "hw" not in group.meta.capabilities:
        return 0
    return int((reads.count > 0).sum()) + int(group.of(SkippedPolls).count.sum())


READ_LIMITS = Check(READS, (Need.HISTORY, Need.WATERMARKS), examined=_examined)


def _ok_reads(group: Group) -> Polls:
    polls = evidence(group).polls
    return polls.take(polls.outcome == Outcome.OK)


def _by_time(reads: Polls, rows: I64) -> I64:
    return rows[np.lexsort((reads.op[rows], reads.complete_us[rows]))]


@READ_LIMITS.finds("read-beyond-hw")
def read_beyond_hw(group: Group) -> Iterator[Cases]:
    """Find `read-beyond-hw`: an ok read returned a record at or above the HW that the answer
    states, or above the highest HW that any replica had established when the read completed. A
    broker writes an HW event to its trace before it answers, and clients use the same clock. So an
    HW event that is later than the answer cannot excuse it. The second form needs the trace of
    every replica."""
    reads = _ok_reads(group)
    reads = reads.take(reads.count > 0)
    stated = np.where(reads.hw >= 0, reads.hw, _NO_LIMIT)
    limit = np.minimum(stated, _established(group, reads))
    beyond = np.clip(reads.end - np.maximum(reads.offset, limit), 0, None)
    rows = _by_time(reads, np.flatnonzero(beyond > 0))
    events = group.of(HighWatermarks)

    def shown(nth: int) -> Iterator[Witness]:
        row = int(rows[nth])
        if nth < WITNESS_CAP - 1:
            passed = max(int(limit[row] - reads.offset[row]), 0)
            at = {"offset": reads.offset[row] + passed, "value": reads.value[row] + passed}
            yield read_witness(reads, row, **at)
        if nth == min(len(rows), WITNESS_CAP - 1) - 1:
            offset = max(int(limit[rows[0]]), int(reads.offset[rows[0]]))
            late = events.t_us > reads.complete_us[rows[0]]
            for then in np.flatnonzero(late & (events.hw > offset))[:1].tolist():
                yield node_witness(events, then, offset=int(events.hw[then]))

    def source(nth: int) -> dict[str, str]:
        mark = int(limit[rows[nth]])
        if stated[rows[nth]] == mark:
            return {"source": f"though the answer itself states {mark}"}
        return {"source": f"when {mark} was the highest that any replica had established"}

    yield Cases(
        "{n:record} of {partition} read beyond the high watermark: {a:op} got offset {a.offset} "
        "from {a:from} {a:when}, {source}.",
        np.arange(len(rows)),
        shown,
        source,
        count=int(beyond.sum()),
    )


def _established(group: Group, reads: Polls | Contents) -> I64:
    """Return the highest HW announced when each read completed; no limit if it is unknown."""
    events = group.of(HighWatermarks)
    if "hw" not in group.meta.capabilities or missing(group, (Need.WATERMARKS,)):
        return np.full(len(reads), _NO_LIMIT)
    highest = np.append(0, np.maximum.accumulate(events.hw))
    found: I64 = highest[np.searchsorted(events.t_us, reads.complete_us, side="right")]
    return found


@READ_LIMITS.finds("end-below-hw")
def end_below_hw(group: Group) -> Iterator[Cases]:
    """Find `end-below-hw`: an answer states that the log ends below a record that was known before
    and is below the HW that the answer states itself. A reader with read_committed gets nothing
    behind a transaction that is under way."""
    known, reads = evidence(group), _ok_reads(group)
    where = positions(known)
    low = np.maximum(where.end, where.floor)
    below = last_of_answers(reads) & reads.at_end & (where.end >= 0) & (low < reads.hw)
    if not len(rows := np.flatnonzero(below)):
        return
    rows = rows[reads.uncommitted[rows] | ~_may_wait(group, known, reads.take(rows))]
    since = _known_since(known, low[rows], reads.hw[rows])
    yield Cases(
        "{n:answer} of {partition} ended below the high watermark in it: {a:op} was told by "
        "{a:from} that the log ends at {a.offset} {a:when}, though the answer itself states {hw} "
        "and a record between them was known before.",
        _by_time(reads, rows[since < reads.invoke_us[rows]]),
        lambda row: [read_witness(reads, row, offset=where.end[row])],
        lambda row: {"hw": reads.hw[row]},
    )


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


@READ_LIMITS.finds("stale-read")
def stale_read(group: Group) -> Iterator[Cases]:
    """Find `stale-read`: an answer states an end of the log (by its HW or `at_end`) at or below a
    record that had been known for longer than the staleness that the run promises."""
    known, reads = evidence(group), _ok_reads(group)
    bound_us = group.meta.promise.staleness_ms * 1000
    if bound_us < 0:
        return
    end = positions(known).ended
    late = _late(known, reads.invoke_us, end, bound_us)
    points = known.known_positions.take(known.known_positions.strong)

    def newer(row: int) -> dict[str, object]:
        at = int(np.argmax(np.maximum.accumulate(points.offset) >= end[row]))
        return {"bound": bound_us // 1000, "at": points.offset[at], "t": points.t_us[at]}

    yield Cases(
        "{n:answer} of {partition} older than {bound} ms: {a:op} got the log end {a.offset} from "
        "{a:from} {a:when}, though offset {at} was known {t:seconds} into it.",
        _by_time(reads, np.flatnonzero(late & last_of_answers(reads))),
        lambda row: [read_witness(reads, row, offset=end[row])],
        newer,
    )


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
    if that is below the highest HW of its time, so are the others. How old an answer was depends on
    the answer alone."""
    reads = group.of(Contents)
    reads = reads.take(reads.outcome == Outcome.OK)
    beyond = reads.end > _established(group, reads)
    return group.meta.promise.staleness_ms >= 0 or bool(beyond.any())


@READ_LIMITS.finds("hw-regression")
def hw_regression(group: Group) -> Iterator[Cases]:
    """Find `hw-regression`: successive answers to one process state a lower HW, as may happen when
    a new leader begins with an older HW."""
    reads = _ok_reads(group)
    reads = reads.take(reads.hw >= 0)
    back = (reads.process[1:] == reads.process[:-1]) & (reads.hw[1:] < reads.hw[:-1])
    rows = _by_time(reads, np.flatnonzero(back) + 1)
    yield Cases(
        "{n:time} the high watermark of {partition} went back for a client: {a:op} got {a.offset} "
        "from {a:from} after {b.offset} from {b:from}.",
        rows[:1],
        lambda row: [read_witness(reads, r, offset=reads.hw[r]) for r in (row, row - 1)],
        count=len(rows),
    )
