"""The order of appends: of one process, inside one operation, and in real time across producers."""

from __future__ import annotations

import numpy as np

from checker.checks.findings import Finding, anomaly, op_name, plural, record_witness, send_witness
from checker.checks.registry import per_partition
from checker.evidence.columns import Mask
from checker.evidence.contents import READ_OK, Evidence, KnownPositions, evidence, expand
from checker.evidence.facts import Outcome, Sends
from checker.evidence.group import Group
from checker.evidence.needs import Need
from checker.evidence.sorting import I64, order_of
from checker.formats.anomalies import OFFSETS, WITNESS_CAP
from checker.formats.verdict import Anomaly, Witness
from harness.formats.history import show_value

_ALL_ACKS = -1
_WEAK = "acks 0 or 1 do not promise that a record keeps its place"


@per_partition(
    "realtime-order",
    "nonmonotonic-send",
    "int-nonmonotonic-send",
    "int-send-skip",
    needs=(Need.HISTORY,),
)
def judge(group: Group) -> Finding:
    known = evidence(group)
    found = [
        *nonmonotonic_send(group, known),
        *_inside(group, known),
        *realtime_order(group, known),
    ]
    return Finding(property=OFFSETS, examined=len(known.sends), anomalies=tuple(found))


def nonmonotonic_send(group: Group, known: Evidence) -> list[Anomaly]:
    """Find `nonmonotonic-send`: the first send of an operation that did not fail has an offset at
    or before that of the last send of the previous operation of the same process."""
    sends, base = known.sends, known.bases
    placed = np.flatnonzero((sends.outcome != Outcome.FAIL) & (sends.count > 0) & (base >= 0))
    order = placed[order_of((sends.process[placed], sends.order[placed], sends.seq[placed]))]
    sends, base = sends.take(order), base[order]
    last = base + sends.count - 1
    after = np.arange(1, len(sends))
    wrong = (sends.process[1:] == sends.process[:-1]) & (sends.op[1:] != sends.op[:-1])
    wrong &= base[1:] <= last[:-1]
    weak = (sends.acks[1:] != _ALL_ACKS) | (sends.acks[:-1] != _ALL_ACKS)
    found = []
    for mask, allowed in ((wrong & ~weak, ""), (wrong & weak, _WEAK)):
        if mask.any():
            rows = after[mask]
            found.append(_report(group, sends, base, last, rows - 1, rows, allowed))
    return found


def _inside(group: Group, known: Evidence) -> list[Anomaly]:
    """Compare successive records of one operation. `int-nonmonotonic-send`: their offsets fall.
    `int-send-skip`: records of other operations lie between them."""
    sends = known.sends
    if (sends.count <= 1).all() and (sends.op[1:] != sends.op[:-1]).all():
        return []
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
    back, sure = same & (later <= offset[:-1]), sure[1:] & sure[:-1]
    found = []
    for name, wrong, allowed in (
        ("int-nonmonotonic-send", back & sure, ""),
        ("int-nonmonotonic-send", back & ~sure, _WEAK),
        ("int-send-skip", same & skips, ""),
    ):
        if len(rows := np.flatnonzero(wrong)):
            found.append(_report_inside(group, sends, name, rows, run, value, offset, allowed))
    return found


def _report_inside(
    group: Group,
    sends: Sends,
    name: str,
    rows: I64,
    run: I64,
    value: I64,
    offset: I64,
    allowed: str,
) -> Anomaly:
    """Return pairs of records of one operation (`rows` and the next) as one anomaly."""
    witnesses = []
    for i in rows[: WITNESS_CAP // 2]:
        witnesses += [
            send_witness(sends, int(run[j]), offset=int(offset[j]), value=int(value[j]))
            for j in (i + 1, i)
        ]
    late, early = witnesses[:2]
    opening = (
        f"{plural(len(rows), 'record')} of {group.partition} out of order inside their own "
        "operation"
        if name == "int-nonmonotonic-send"
        else f"{plural(len(rows), 'time')} other records of {group.partition} stand between those "
        "of one operation"
    )
    return anomaly(
        group,
        name,
        f"{opening}: {op_name(late)} sent value {show_value(early.value)} before "
        f"{show_value(late.value)}, which are at offsets {early.offset} and {late.offset}.",
        witnesses,
        count=len(rows),
        allowed=allowed,
    )


def realtime_order(group: Group, known: Evidence) -> list[Anomaly]:
    """Find `realtime-order`: a committed send B put its first record in front of a record that had
    been acknowledged, or returned by an ok read, before B was invoked."""
    placed = known.committed & (known.sends.count > 0) & (known.bases >= 0)
    sends, base = known.sends.take(placed), known.bases[placed]
    certain = (sends.acks == _ALL_ACKS) | known.first_read[placed]
    points = known.known_positions
    found = []
    strong = _inversions(sends, base, points.take(points.strong), certain)
    if len(strong[0]):
        found.append(_report_realtime(group, known, sends, base, *strong, ""))
    if certain.all() and points.strong.all():
        return found
    late, early = _inversions(sends, base, points, np.ones(len(sends), dtype=bool))
    weak = ~np.isin(late, strong[0])
    if weak.any():
        late, early = late[weak], early.take(weak)
        found.append(_report_realtime(group, known, sends, base, late, early, _WEAK))
    return found


def _inversions(
    sends: Sends, base: I64, points: KnownPositions, later: Mask
) -> tuple[I64, KnownPositions]:
    """Return the `later` sends in front of a record that was known before they were invoked, and
    for each of them the known record with the highest offset."""
    b = np.flatnonzero(later)
    farthest = np.maximum.accumulate(points.offset)
    before = np.searchsorted(points.t_us, sends.invoke_us[b], side="left")
    reached = np.append(-1, farthest)[before]
    wrong = reached > base[b]
    # The witness is the first moment that reached so far.
    return b[wrong], points.take(np.searchsorted(farthest, reached[wrong]))


def _report_realtime(
    group: Group,
    known: Evidence,
    sends: Sends,
    base: I64,
    late: I64,
    early: KnownPositions,
    allowed: str,
) -> Anomaly:
    """Report sends in front of records that were there before they began, as one anomaly."""
    order = np.lexsort((sends.op[late], base[late]))
    late, early = late[order], early.take(order)
    few = range(min(len(late), WITNESS_CAP // 2))
    afters = [send_witness(sends, int(late[i]), offset=int(base[late[i]])) for i in few]
    befores = []
    for i in few:
        send, offset, value = int(early.send[i]), int(early.offset[i]), int(early.value[i])
        if send < 0:
            befores.append(record_witness(known, offset, value))
        else:
            befores.append(send_witness(known.sends, send, offset=offset, value=value))
    was = "was acknowledged" if early.send[0] >= 0 else "had read it"
    was += f" {group.seconds(befores[0].t_us)} into the storm, before the other was invoked"
    return _report_pairs(group, "realtime-order", len(late), (afters, befores), was, allowed)


def _report(
    group: Group, sends: Sends, base: I64, last: I64, before: I64, after: I64, allowed: str
) -> Anomaly:
    """Return pairs of sends of one process in the wrong order as one anomaly."""
    order = np.lexsort((sends.op[after], base[after]))
    before, after = before[order], after[order]
    few, values = slice(WITNESS_CAP // 2), sends.value + sends.count - 1
    late = [send_witness(sends, int(b), offset=int(base[b])) for b in after[few]]
    early = [
        send_witness(sends, int(a), offset=int(last[a]), value=int(values[a])) for a in before[few]
    ]
    was = "the same process had sent before"
    return _report_pairs(group, "nonmonotonic-send", len(after), (late, early), was, allowed)


def _report_pairs(
    group: Group,
    name: str,
    count: int,
    witnesses: tuple[list[Witness], list[Witness]],
    was: str,
    allowed: str,
) -> Anomaly:
    """Return sends that landed in front of others as one anomaly."""
    late, early = witnesses[0][0], witnesses[1][0]
    message = (
        f"{plural(count, 'send')} to {group.partition} out of order: {op_name(late)} landed "
        f"at offset {late.offset}, in front of offset {early.offset} of {op_name(early)}, which "
        f"{was}."
    )
    pairs = [witness for pair in zip(*witnesses, strict=True) for witness in pair]
    return anomaly(group, name, message, pairs, count=count, allowed=allowed)
