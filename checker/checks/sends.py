"""The order of appends: of one process, inside one operation, and in real time across producers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from checker.checks.cases import Cases, excused
from checker.checks.findings import read_witness, record_witness, send_witness
from checker.checks.registry import Check
from checker.evidence.columns import Mask
from checker.evidence.contents import MARK, READ_OK, Evidence, KnownPositions, evidence, expand
from checker.evidence.facts import Outcome, Sends
from checker.evidence.group import Group
from checker.evidence.needs import Need
from checker.evidence.sorting import I64, order_of
from checker.formats.anomalies import OFFSETS
from checker.formats.verdict import Witness

_ALL_ACKS = -1
_WEAK = "acks 0 or 1 do not promise that a record keeps its place"
_OUT_OF_ORDER = "{n:send} to {partition} out of order: {a:op} landed at offset {a.offset}, "
_IN_FRONT = _OUT_OF_ORDER + "in front of offset {b.offset} of {b:op}, which "

SENDS = Check(OFFSETS, (Need.HISTORY,), examined=lambda group: len(evidence(group).sends))


@SENDS.finds("nonmonotonic-send")
def nonmonotonic_send(group: Group) -> Iterator[Cases]:
    """Find `nonmonotonic-send`: the first send of an operation that did not fail has an offset at
    or before that of the last send of the previous operation of the same process."""
    known = evidence(group)
    sends, base = known.sends, known.bases
    placed = np.flatnonzero((sends.outcome != Outcome.FAIL) & (sends.count > 0) & (base >= 0))
    order = placed[order_of((sends.process[placed], sends.order[placed], sends.seq[placed]))]
    sends, base = sends.take(order), base[order]
    last, value = base + sends.count - 1, sends.value + sends.count - 1
    wrong = (sends.process[1:] == sends.process[:-1]) & (sends.op[1:] != sends.op[:-1])
    rows = np.flatnonzero(wrong & (base[1:] <= last[:-1])) + 1
    rows = rows[np.lexsort((sends.op[rows], base[rows]))]

    def pair(row: int) -> Iterator[Witness]:
        yield send_witness(sends, row, offset=base[row])
        yield send_witness(sends, row - 1, offset=last[row - 1], value=value[row - 1])

    weak = (sends.acks[rows] != _ALL_ACKS) | (sends.acks[rows - 1] != _ALL_ACKS)
    for some, allowed in excused(rows, weak, _WEAK):
        was = "the same process had sent before."
        yield Cases(_IN_FRONT + was, some, pair, allowed=allowed)


@SENDS.finds("int-nonmonotonic-send", "int-send-skip")
def inside_operations(group: Group) -> Iterator[Cases]:
    """Compare successive records of one operation. Find `int-nonmonotonic-send`: their offsets
    fall. Find `int-send-skip`: records of other operations lie between them."""
    known = evidence(group)
    sends = known.sends
    if (sends.count <= 1).all() and (sends.op[1:] != sends.op[:-1]).all():
        return
    run, place = expand(sends.count)
    value = sends.value[run] + place
    offset, flags = known.place_of(value)
    acked = (sends.offset[run] >= 0) & (offset >= 0)
    offset = np.where(acked, sends.offset[run] + place, offset)
    last = np.where(acked, offset, known.last_place_of(value))
    # A send that failed has no place, unless it was read after all.
    read = (flags & READ_OK) != 0
    known_at = (offset >= 0) & ((sends.outcome[run] != Outcome.FAIL) | read)
    known_at &= ~known.is_shared(value) & (acked | ~np.bool_(known.copies_may_go))
    run, value, offset, last, read = (c[known_at] for c in (run, value, offset, last, read))
    sure = read | (sends.acks[run] == _ALL_ACKS)
    # Of a record at several offsets any may be the one that was in order.
    later = np.where(offset[1:] > offset[:-1], offset[1:], last[1:])
    between = np.searchsorted(known.offsets, later)
    skips = between > np.searchsorted(known.offsets, offset[:-1], "right")
    same = sends.op[run[1:]] == sends.op[run[:-1]]
    back, sure = np.flatnonzero(same & (later <= offset[:-1])), sure[1:] & sure[:-1]

    def pair(row: int) -> Iterator[Witness]:
        for each in (row + 1, row):
            yield send_witness(sends, int(run[each]), offset=offset[each], value=value[each])

    told = (
        ": {a:op} sent value {b.value:show} before {a.value:show}, which are at offsets "
        "{b.offset} and {a.offset}."
    )
    for rows, allowed in excused(back, ~sure[back], _WEAK):
        opening = "{n:record} of {partition} out of order inside one operation"
        yield Cases(opening + told, rows, pair, allowed=allowed)
    opening = "{n:time} other records of {partition} stand between those of one operation"
    skipped = np.flatnonzero(same & skips)
    yield Cases(opening + told, skipped, pair, name="int-send-skip")


@SENDS.finds("realtime-order")
def realtime_order(group: Group) -> Iterator[Cases]:
    """Find `realtime-order`: a committed send B put its first record in front of a record that had
    been acknowledged, or returned by an ok read, before B was invoked; or below a HW that an ok
    answer had stated."""
    known = evidence(group)
    placed = known.committed & (known.sends.count > 0) & (known.bases >= 0)
    sends, base = known.sends.take(placed), known.bases[placed]
    certain = (sends.acks == _ALL_ACKS) | known.first_read[placed]
    points = known.known_positions
    strong = _inversions(known, sends, base, points.take(points.strong), certain)
    yield _overtaken(known, sends, base, *strong, "")
    if certain.all() and points.strong.all():
        return
    late, early = _inversions(known, sends, base, points, np.ones(len(sends), dtype=bool))
    weak = ~np.isin(late, strong[0])
    yield _overtaken(known, sends, base, late[weak], early.take(weak), _WEAK)


def _inversions(
    known: Evidence, sends: Sends, base: I64, points: KnownPositions, later: Mask
) -> tuple[I64, KnownPositions]:
    """Return the `later` sends in front of a record that was known before they were invoked, and
    for each of them the known record with the highest offset; or, if there is none, the HW."""
    late, early = _in_front(sends, base, points, later)
    below, marks = _in_front(sends, base, known.marks, later)
    more = ~np.isin(below, late)
    pairs = zip(vars(early).values(), vars(marks.take(more)).values(), strict=True)
    return np.append(late, below[more]), KnownPositions(*map(np.concatenate, pairs))


def _in_front(
    sends: Sends, base: I64, points: KnownPositions, later: Mask
) -> tuple[I64, KnownPositions]:
    """Return the `later` sends that are in front of the highest of the points before them, and the
    first point of that offset."""
    b = np.flatnonzero(later)
    farthest = np.maximum.accumulate(points.offset)
    before = np.searchsorted(points.t_us, sends.invoke_us[b], side="left")
    reached = np.append(-1, farthest)[before]
    wrong = reached > base[b]
    return b[wrong], points.take(np.searchsorted(farthest, reached[wrong]))


def _overtaken(
    known: Evidence, sends: Sends, base: I64, late: I64, early: KnownPositions, allowed: str
) -> Cases:
    order = np.lexsort((sends.op[late], base[late]))
    late, early = late[order], early.take(order)

    def pair(row: int) -> Iterator[Witness]:
        yield send_witness(sends, int(late[row]), offset=base[late[row]])
        send, offset, value = int(early.send[row]), int(early.offset[row]), int(early.value[row])
        if send <= MARK:
            yield read_witness(known.marked_by(send), value, offset=offset)
        elif send < 0:
            yield record_witness(known, offset, value)
        else:
            yield send_witness(known.sends, send, offset=offset, value=value)

    was = _IN_FRONT + ("was acknowledged" if (early.send[:1] >= 0).any() else "had read it")
    if (early.send[:1] <= MARK).any():
        was = _OUT_OF_ORDER + "below the high watermark {b.offset}, which {b:op} got"
    was += " {b:when}, before the other was invoked."
    return Cases(was, np.arange(len(late)), pair, allowed=allowed)
