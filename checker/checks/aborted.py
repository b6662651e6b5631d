"""Values that should not be there: of failed sends, unreadable, or not sent to this partition.

A value that was not sent to this partition was sent to another one (misrouted) or by no operation
at all (phantom). To tell these apart takes the sends of all partitions: `checker.checks.phantom`
does it with the values that this check hands over.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from checker.checks.cases import Cases, Examined, Unknown
from checker.checks.findings import (
    ALLOWED_UNCOMMITTED,
    UnknownValue,
    node_witness_at,
    record_witness,
    send_witness,
)
from checker.checks.registry import Check
from checker.evidence.contents import READ_COMMITTED, Evidence, Records, evidence
from checker.evidence.facts import Outcome
from checker.evidence.group import Group
from checker.evidence.needs import Need
from checker.evidence.sorting import I64
from checker.formats.anomalies import OFFSETS, WITNESS_CAP
from checker.formats.verdict import Witness
from node.formats.trace import METADATA_PARTITION

UNKNOWN_VALUES_CAP = 10_000


VALUES = Check(OFFSETS, (Need.HISTORY, Need.LOGS, Need.RECORDS))


def _read(known: Evidence, records: Records, row: int) -> Witness:
    return record_witness(known, int(records.offset[row]), int(records.value[row]))


@VALUES.finds("unreadable-record")
def unreadable_record(group: Group) -> Iterator[Cases]:
    """Find `unreadable-record`: a record, read or in a log, whose payload no client can write."""
    if group.partition == METADATA_PARTITION:
        return
    known = evidence(group)
    reads, logged = known.seen, known.log_records
    in_reads, in_logs = np.flatnonzero(reads.value < 0), np.flatnonzero(logged.value < 0)
    offsets = np.union1d(reads.offset[in_reads], logged.offset[in_logs])
    if len(offsets):
        witnesses = [_read(known, reads, int(row)) for row in in_reads[:WITNESS_CAP]]
        witnesses += [node_witness_at(known.logs, logged, int(r)) for r in in_logs[:WITNESS_CAP]]
        first = witnesses[0]
        place = "read by {a:op}" if first.op >= 0 else "in the log of {a.node}"
        yield Cases(
            "{n:record} of {partition} cannot be understood: the payload{a:at}, "
            f"{place}, is not what any client wrote.",
            witnesses,
            lambda witness: [witness],
            count=len(offsets),
            offset=offsets[0],
        )


@VALUES.finds("aborted-read", "aborted-write")
def aborted(group: Group) -> Iterator[Cases]:
    """Find values of failed sends. Find `aborted-read`: a read returned one; allowed if all reads
    that did were made with read_uncommitted. Find `aborted-write`: one is in the log of a replica,
    no read returned it, and its operation is no transaction."""
    if group.partition == METADATA_PARTITION:
        return
    known = evidence(group)
    visible: I64 = np.zeros(0, np.int64)
    read = known.seen
    committed = (read.flags & READ_COMMITTED) != 0
    for name, records, allowed in (
        ("aborted-read", read.take(committed), ""),
        ("aborted-read", read.take(~committed), ALLOWED_UNCOMMITTED),
        ("aborted-write", known.log_records, ""),
    ):
        if not len(records):
            continue
        failed = known.outcome_of_writer(records.value) == Outcome.FAIL
        failed &= ~np.isin(records.value, visible) & ~known.is_shared(records.value)
        writer = known.writer(records.value)
        if name == "aborted-write":
            # Records of a transaction are in the log before it aborts, and stay there.
            failed &= ~np.append(known.sends.transaction | (known.sends.offset >= 0), True)[writer]
        rows = np.flatnonzero(failed)
        own = np.unique(records.value[rows])
        visible = np.union1d(visible, own)
        yield _of_failed(known, name, records, rows, writer, len(own), allowed)


def _of_failed(
    known: Evidence, name: str, records: Records, rows: I64, writer: I64, count: int, allowed: str
) -> Cases:

    def pair(row: int) -> Iterator[Witness]:
        if name == "aborted-read":
            yield _read(known, records, row)
        else:
            yield node_witness_at(known.logs, records, row)
        yield send_witness(known.sends, int(writer[row]))

    place = "was read by {a:op}" if name == "aborted-read" else "is in the log of {a.node}"
    return Cases(
        "{n:value} of failed sends in {partition}: value {a.value}, sent by {b:op} and refused "
        f"{{b:when}}, {place}{{a:at}}.",
        rows,
        pair,
        name=name,
        allowed=allowed,
        count=count,
    )


@VALUES.finds()
def values_never_sent(group: Group) -> Iterator[Examined | Unknown | dict[str, object]]:
    """Hand over the values that were not sent to this partition, for `checker.checks.phantom`."""
    if group.partition == METADATA_PARTITION:
        return
    known = evidence(group)
    reads, logged = known.seen, known.log_records
    yield Examined(len(reads) + len(logged))
    if len(known.shared_values):
        yield Unknown(
            f"two sends to {group.partition} claim the same value "
            f"{int(known.shared_values[0])}: values of a history must be unique"
        )
    found = _unknown_values(known)
    unknown_values = tuple(
        UnknownValue(
            value,
            offset,
            node_witness_at(known.logs, logged, row) if from_log else _read(known, reads, row),
        )
        for value, offset, from_log, row in zip(
            *(column[:UNKNOWN_VALUES_CAP].tolist() for column in found), strict=True
        )
    )
    yield {"unknown_values": unknown_values, "unknown_value_count": len(found[0])}


def _unknown_values(known: Evidence) -> tuple[I64, I64, I64, I64]:
    """Return the distinct values that no send to it wrote: value, offset, from a log, row."""
    parts = []
    for from_log, records in ((0, known.seen), (1, known.log_records)):
        rows = np.flatnonzero((records.value >= 0) & (known.writer(records.value) < 0))
        source = np.full(len(rows), from_log)
        parts.append(np.stack((records.value[rows], records.offset[rows], source, rows)))
    table = np.concatenate(parts, axis=1)
    # One row a value: a read before a log, the lowest offset first; then in order of offset.
    table = table[:, np.lexsort((table[1], table[2], table[0]))]
    table = table[:, np.unique(table[0], return_index=True)[1]]
    table = table[:, np.lexsort((table[0], table[1]))]
    return table[0], table[1], table[2], table[3]
