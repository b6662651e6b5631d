"""Offsets: one value an offset (inconsistent-offsets), one offset a value (duplicate), no holes."""

from __future__ import annotations

import numpy as np

from checker.checks.findings import (
    Finding,
    anomaly,
    op_name,
    plural,
    read_witness,
    record_witness,
    send_witness,
)
from checker.checks.registry import per_partition
from checker.evidence.contents import ACKED_WEAKLY, Evidence, Records, evidence, first_of
from checker.evidence.facts import I64
from checker.evidence.group import Group
from checker.formats.anomalies import OFFSETS, WITNESS_CAP
from checker.formats.verdict import Anomaly, Witness
from harness.formats.history import show_value

_WEAK = "one side is only an acknowledgement with acks 0 or 1, which promises nothing"


@per_partition("inconsistent-offsets", "duplicate", "offset-hole")
def judge(group: Group) -> Finding:
    """Judge one partition."""
    known = evidence(group)
    found = [*_inconsistent(group, known), *_duplicates(group, known), *_holes(group, known)]
    return Finding(property=OFFSETS, examined=len(known.placed), anomalies=tuple(found))


def _inconsistent(group: Group, known: Evidence) -> list[Anomaly]:
    """Offsets with two values; apart from them those where only a weak acknowledgement differs."""
    readable = known.placed.take(known.placed.value >= 0)
    strong = readable.take(readable.flags != ACKED_WEAKLY)
    certain = _with_two_values(strong)
    weak = np.setdiff1d(_with_two_values(readable), certain)
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
                count=len(offsets),
                offset=first,
                witnesses=witnesses,
                allowed=allowed,
            )
        )
    return found


def _with_two_values(records: Records) -> I64:
    """Offsets, in order, at which the records have two values."""
    starts = first_of(records.offset)
    lowest = np.minimum.reduceat(records.value, starts)
    highest = np.maximum.reduceat(records.value, starts)
    found: I64 = records.offset[starts][lowest != highest]
    return found


def _source(known: Evidence, offset: int, value: int) -> list[Witness]:
    """The evidence that this value is at this offset: a read, or its acknowledged send."""
    if known.read_row(offset=offset, value=value) >= 0:
        return [record_witness(known, offset, value)]
    send = int(known.writer(np.array([value]))[0])
    return [send_witness(known.sends, send, offset=offset, value=value)] if send >= 0 else []


def _words(group: Group, witness: Witness) -> str:
    return f"{witness.what} by {op_name(witness)} {group.seconds(witness.t_us)} into the storm"


def _duplicates(group: Group, known: Evidence) -> list[Anomaly]:
    """Values at two offsets."""
    values = known.values
    # Where two sends wrote one value the history is at fault, not the system.
    rows = np.flatnonzero(
        (values.first != values.last) & ~np.isin(values.value, known.shared_values)
    )
    if not len(rows):
        return []
    rows = rows[np.argsort(values.first[rows], kind="stable")]
    witnesses: list[Witness] = []
    for row in rows[:WITNESS_CAP]:
        value = int(values.value[row])
        for offset in known.placed.offset[known.placed.value == value].tolist():
            witnesses += _source(known, offset, value)
    first, last = int(values.first[rows[0]]), int(values.last[rows[0]])
    message = (
        f"{plural(len(rows), 'value')} of {group.partition} at more than one offset: "
        f"value {show_value(int(values.value[rows[0]]))} is at {first} and at {last} "
        f"({'; '.join(_words(group, w) for w in witnesses[:2])})."
    )
    return [
        anomaly(group, "duplicate", message, count=len(rows), offset=first, witnesses=witnesses)
    ]


def _holes(group: Group, known: Evidence) -> list[Anomaly]:
    """Offsets that one read passed over between its start and its last record."""
    reads = known.ordered_reads.take(known.ordered_reads.count > 0)
    if not len(reads):
        return []
    expected = np.empty(len(reads), np.int64)
    expected[0] = -1
    expected[1:] = reads.end[:-1]
    opens = np.ones(len(reads), dtype=bool)
    opens[1:] = (reads.op[1:] != reads.op[:-1]) | (reads.seq[1:] != reads.seq[:-1])
    expected[opens] = reads.leo[opens]
    missing = np.where(expected >= 0, reads.offset - expected, 0)
    rows = np.flatnonzero(missing > 0)
    if not len(rows):
        return []
    rows = rows[np.lexsort((reads.t1[rows], expected[rows]))]
    holes = np.unique(np.stack((expected[rows], reads.offset[rows])), axis=1)
    count = int((holes[1] - holes[0]).sum())
    witnesses = [read_witness(reads, int(row)) for row in rows[:WITNESS_CAP]]
    first = int(expected[rows[0]])
    message = (
        f"{plural(count, 'offset')} missing from reads of {group.partition}: "
        f"{op_name(witnesses[0])} expected offset {first} next and got {witnesses[0].offset}, "
        f"{group.seconds(witnesses[0].t_us)} into the storm."
    )
    return [anomaly(group, "offset-hole", message, count=count, offset=first, witnesses=witnesses)]
