"""Offsets: one value an offset (inconsistent-offsets), one offset a value (duplicate), no holes."""

from __future__ import annotations

import numpy as np

from checker.checks.findings import (
    Finding,
    anomaly,
    node_witness_at,
    op_name,
    plural,
    read_witness,
    record_witness,
    send_witness,
)
from checker.checks.registry import per_partition
from checker.evidence.columns import Mask
from checker.evidence.contents import ACKED_WEAKLY, Evidence, Records, evidence, first_of
from checker.evidence.group import Group
from checker.evidence.needs import Need
from checker.evidence.positions import log_start_open, proves_nothing, undeleted_from
from checker.evidence.sorting import I64, order_of
from checker.formats.anomalies import OFFSETS, WITNESS_CAP
from checker.formats.verdict import Anomaly, Witness
from harness.formats.history import show_value

_WEAK = "one side is only an acknowledgement with acks 0 or 1, which promises nothing"


@per_partition(
    "inconsistent-offsets",
    "duplicate",
    "offset-hole",
    needs=(Need.HISTORY, Need.LOGS, Need.RECORDS),
)
def judge(group: Group) -> Finding:
    known = evidence(group)
    found = [*inconsistent_offsets(group, known), *duplicate(group, known)]
    holes, doubt = offset_hole(group, known)
    return Finding(
        property=OFFSETS, examined=len(known.placed), anomalies=(*found, *holes), unknown=doubt
    )


def inconsistent_offsets(group: Group, known: Evidence) -> list[Anomaly]:
    """Find `inconsistent-offsets`: two values are at one offset, by acknowledgements and reads.
    Allowed if one of them rests only on an acknowledgement with acks 0 or 1."""
    readable = known.placed.take(known.placed.value >= 0)
    several = _with_two_values(readable)
    if not len(several):
        return []
    certain = _with_two_values(readable.take(readable.flags != ACKED_WEAKLY))
    weak = np.setdiff1d(several, certain)
    found = []
    for offsets, allowed in ((certain, ""), (weak, _WEAK)):
        if not len(offsets):
            continue
        witnesses: list[Witness] = []
        for offset in offsets[:WITNESS_CAP].tolist():
            for value in readable.value[readable.offset == offset].tolist():
                witnesses += _source(known, offset, value)
        first = int(offsets[0])
        values = readable.value[readable.offset == first].tolist()
        words = "; ".join(_words(group, w) for w in witnesses[:2])
        found.append(
            anomaly(
                group,
                "inconsistent-offsets",
                f"{plural(len(offsets), 'offset')} of {group.partition} with more than one value: "
                f"offset {first} holds {' and '.join(map(show_value, values))} ({words}).",
                witnesses,
                count=len(offsets),
                offset=first,
                allowed=allowed,
            )
        )
    return found


def _with_two_values(records: Records) -> I64:
    """Return the offsets, in order, at which the records have two values."""
    starts = first_of(records.offset)
    lowest = np.minimum.reduceat(records.value, starts)
    highest = np.maximum.reduceat(records.value, starts)
    found: I64 = records.offset[starts][lowest != highest]
    return found


def _source(known: Evidence, offset: int, value: int) -> list[Witness]:
    """Return the evidence that this value is at this offset: a read, or its acknowledged send."""
    if known.read_of(offset, value) is not None:
        return [record_witness(known, offset, value)]
    send = int(known.writer(np.array([value]))[0])
    return [send_witness(known.sends, send, offset=offset, value=value)] if send >= 0 else []


def _words(group: Group, witness: Witness) -> str:
    if witness.op < 0:
        return f"in the log of {witness.node}"
    return f"{witness.what} by {op_name(witness)} {group.seconds(witness.t_us)} into the storm"


def duplicate(group: Group, known: Evidence) -> list[Anomaly]:
    """Find `duplicate`: a value is acknowledged or read at two offsets; or it is twice in the
    committed part of one log; or the committed logs have it, but never at an offset at which it was
    acknowledged or read."""
    values = known.values
    double = np.union1d(values.value[values.first != values.last], _double_in_logs(known))
    if not len(double):
        return []
    # If two sends wrote one value, the history is at fault, not the system.
    double = double[~np.isin(double, known.shared_values)]
    if not len(double):
        return []
    lowest, _ = known.place_of(double)
    double = double[np.lexsort((double, lowest))]
    witnesses: list[Witness] = []
    for value in double[:WITNESS_CAP].tolist():
        for offset in known.placed.offset[known.placed.value == value].tolist():
            witnesses += _source(known, offset, value)
        logged = known.committed_log_records
        rows = np.flatnonzero(logged.value == value)
        witnesses += [node_witness_at(known.logs, logged, row) for row in rows.tolist()]
    offsets = [w.offset for w in witnesses if w.value == double[0]]
    message = (
        f"{plural(len(double), 'value')} of {group.partition} at more than one offset: "
        f"value {show_value(int(double[0]))} is at {min(offsets)} and at {max(offsets)} "
        f"({'; '.join(_words(group, w) for w in witnesses[:2])})."
    )
    return [anomaly(group, "duplicate", message, witnesses, count=len(double), offset=min(offsets))]


def _double_in_logs(known: Evidence) -> I64:
    """Return the values that the committed part of one log has twice, or that the committed logs
    have only elsewhere than where they were acknowledged or read."""
    logged, placed = known.committed_log_records, known.placed
    found = []
    for node in np.unique(logged.node).tolist():
        own = logged.take((logged.node == node) & (logged.value >= 0))
        as_placed = _is_among(own, placed)
        # If all are where they were placed, there is no double.
        if as_placed.all():
            continue
        rest, same = own.value[~as_placed], own.value[as_placed]
        once, times = np.unique(rest, return_counts=True)
        found.append(once[(times > 1) | np.isin(once, same)])
        moved = once[np.isin(once, placed.value)]
        if len(moved):
            there = placed.take(np.isin(placed.value, moved))
            found.append(np.setdiff1d(moved, there.value[_is_among(there, logged)]))
    return np.unique(np.concatenate(found)) if found else logged.value[:0]


def _is_among(records: Records, others: Records) -> Mask:
    """Return which records also occur among the others: the same value at the same offset."""
    first = np.searchsorted(others.offset, records.offset)
    end = np.searchsorted(others.offset, records.offset, side="right")
    same: Mask = (first < end) & (np.append(others.value, -1)[first] == records.value)
    for row in np.flatnonzero(end - first > 1).tolist():
        same[row] = (others.value[first[row] : end[row]] == records.value[row]).any()
    return same


def offset_hole(group: Group, known: Evidence) -> tuple[list[Anomaly], str]:
    """Find `offset-hole`: a read passed over offsets between its start and its first record, or
    between two of its records. The second result says why such offsets prove nothing, "" if they
    do, or if nothing of the kind was found."""
    reads = known.polls.take(known.polls.count > 0)
    if not len(reads):
        return [], ""
    opens = np.ones(len(reads), dtype=bool)
    opens[1:] = (reads.op[1:] != reads.op[:-1]) | (reads.seq[1:] != reads.seq[:-1])
    expected = np.where(opens, reads.start, np.append(-1, reads.end[:-1]))
    holes_at = (reads.offset > expected) & (expected >= 0)
    doubt = ""
    if log_start_open(group):
        kept = np.minimum(undeleted_from(known, reads), reads.offset)
        doubtful = holes_at & (expected < kept) & group.meta.promise.contiguous_offsets
        doubt = proves_nothing(group, "offset-hole") if doubtful.any() else ""
        expected = np.maximum(expected, kept)
    rows = np.flatnonzero(holes_at & (reads.offset > expected))
    if not len(rows):
        return [], doubt
    rows = rows[order_of((expected[rows], reads.complete_us[rows], reads.op[rows]))]
    holes = np.unique(np.stack((expected[rows], reads.offset[rows])), axis=1)
    count = int((holes[1] - holes[0]).sum())
    witnesses = [read_witness(reads, int(row)) for row in rows[:WITNESS_CAP]]
    first = int(expected[rows[0]])
    message = (
        f"{plural(count, 'offset')} missing from reads of {group.partition}: "
        f"{op_name(witnesses[0])} expected offset {first} next and got {witnesses[0].offset}, "
        f"{group.seconds(witnesses[0].t_us)} into the storm."
    )
    return [anomaly(group, "offset-hole", message, witnesses, count=count, offset=first)], doubt
