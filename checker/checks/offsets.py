"""Offsets: one value an offset (inconsistent-offsets), one offset a value (duplicate), no holes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from checker.checks.cases import Cases, Unknown, excused
from checker.checks.findings import (
    node_witness_at,
    op_name,
    read_witness,
    record_witness,
    send_witness,
)
from checker.checks.registry import Check
from checker.evidence.columns import Mask
from checker.evidence.contents import ACKED_WEAKLY, Evidence, Records, evidence, first_of
from checker.evidence.group import Group
from checker.evidence.needs import Need
from checker.evidence.positions import log_start_open, proves_nothing, undeleted_from
from checker.evidence.sorting import I64, order_of
from checker.formats.anomalies import OFFSETS
from checker.formats.verdict import Witness
from harness.formats.history import show_value

_WEAK = "one side is only an acknowledgement with acks 0 or 1, which promises nothing"


PLACES = Check(
    OFFSETS,
    (Need.HISTORY, Need.LOGS, Need.RECORDS),
    examined=lambda group: len(evidence(group).placed),
)


@PLACES.finds("inconsistent-offsets")
def inconsistent_offsets(group: Group) -> Iterator[Cases]:
    """Find `inconsistent-offsets`: two values are at one offset, by acknowledgements and reads.
    Allowed if one of them rests only on an acknowledgement with acks 0 or 1."""
    known = evidence(group)
    readable = known.placed.take(known.placed.value >= 0)
    several = _with_two_values(readable)
    if not len(several):
        return
    certain = _with_two_values(readable.take(readable.flags != ACKED_WEAKLY))

    def values(offset: int) -> list[int]:
        return [int(value) for value in readable.value[readable.offset == offset]]

    for offsets, allowed in excused(several, ~np.isin(several, certain), _WEAK):
        yield Cases(
            "{n:offset} of {partition} with more than one value: offset {offset} holds {values} "
            "({places}).",
            offsets,
            lambda at: [w for value in values(at) for w in _source(known, at, value)],
            lambda at: {
                "offset": at,
                "values": " and ".join(map(show_value, values(at))),
                "places": _places(group, [w for v in values(at) for w in _source(known, at, v)]),
            },
            allowed=allowed,
            offset=offsets[0] if len(offsets) else None,
        )


def _with_two_values(records: Records) -> I64:
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


def _places(group: Group, witnesses: list[Witness]) -> str:
    return "; ".join(_words(group, w) for w in witnesses[:2])


@PLACES.finds("duplicate")
def duplicate(group: Group) -> Iterator[Cases]:
    """Find `duplicate`: a value is acknowledged or read at two offsets; or it is twice in the
    committed part of one log; or the committed logs have it, but never at an offset at which it was
    acknowledged or read."""
    known = evidence(group)
    values = known.values
    double = np.union1d(values.value[values.first != values.last], _double_in_logs(known))
    # If two sends wrote one value, the history is at fault, not the system.
    double = double[~np.isin(double, known.shared_values)]
    if not len(double):
        return
    lowest, _ = known.place_of(double)
    double = double[np.lexsort((double, lowest))]

    def shown(value: int) -> list[Witness]:
        places = known.placed.offset[known.placed.value == value].tolist()
        logged = known.committed_log_records
        rows = np.flatnonzero(logged.value == value).tolist()
        return [
            *(witness for offset in places for witness in _source(known, offset, value)),
            *(node_witness_at(known.logs, logged, row) for row in rows),
        ]

    first = shown(int(double[0]))
    offsets = [w.offset for w in first]
    yield Cases(
        "{n:value} of {partition} at more than one offset: value {value:show} is at {low} and at "
        "{high} ({places}).",
        double,
        shown,
        lambda value: {
            "value": value,
            "low": min(offsets),
            "high": max(offsets),
            "places": _places(group, first),
        },
        offset=min(offsets),
    )


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


@PLACES.finds("offset-hole")
def offset_hole(group: Group) -> Iterator[Cases | Unknown]:
    """Find `offset-hole`: a read passed over offsets between its start and its first record, or
    between two of its records. If such offsets may have been deleted, they prove nothing."""
    known = evidence(group)
    reads = known.polls.take(known.polls.count > 0)
    if not len(reads):
        return
    opens = np.ones(len(reads), dtype=bool)
    opens[1:] = (reads.op[1:] != reads.op[:-1]) | (reads.seq[1:] != reads.seq[:-1])
    expected = np.where(opens, reads.start, np.append(-1, reads.end[:-1]))
    stated = expected >= 0
    kept = np.minimum(undeleted_from(known, reads), reads.offset)
    doubtful = stated & (expected < kept) & group.meta.promise.contiguous_offsets
    if log_start_open(group) and doubtful.any():
        yield Unknown(proves_nothing(group, "offset-hole"))
    expected = np.maximum(expected, kept)
    rows = np.flatnonzero(stated & (reads.offset > expected))
    rows = rows[order_of((expected[rows], reads.complete_us[rows], reads.op[rows]))]
    holes = np.unique(np.stack((expected[rows], reads.offset[rows])), axis=1)
    yield Cases(
        "{n:offset} missing from reads of {partition}: {a:op} expected offset {due} next and got "
        "{a.offset}, {a:when}.",
        rows,
        lambda row: [read_witness(reads, row)],
        lambda row: {"due": expected[row]},
        count=int((holes[1] - holes[0]).sum()),
        offset=expected[rows[0]] if len(rows) else None,
    )
