"""Values that should not be there: of failed sends, unreadable, or not sent to this partition.

A value that was not sent to this partition was sent to another one (misrouted) or by no operation
at all (phantom). To tell these apart takes the sends of all partitions: `checker.checks.phantom`
does it with the values that this check hands over.
"""

from __future__ import annotations

import numpy as np

from checker.checks.findings import (
    ALLOWED_UNCOMMITTED,
    Finding,
    UnknownValue,
    anomaly,
    node_witness_at,
    op_name,
    plural,
    record_witness,
    send_witness,
)
from checker.checks.registry import per_partition
from checker.evidence.contents import READ_COMMITTED, Evidence, Records, evidence
from checker.evidence.facts import Outcome
from checker.evidence.group import Group
from checker.evidence.needs import Need
from checker.evidence.sorting import I64
from checker.formats.anomalies import OFFSETS, WITNESS_CAP
from checker.formats.verdict import Anomaly, Witness
from node.formats.trace import METADATA_PARTITION

UNKNOWN_VALUES_CAP = 10_000


@per_partition(
    "aborted-read",
    "aborted-write",
    "unreadable-record",
    needs=(Need.HISTORY, Need.LOGS, Need.RECORDS),
)
def judge(group: Group) -> Finding:
    if group.partition == METADATA_PARTITION:
        return Finding(property=OFFSETS)
    known = evidence(group)
    reads, logged = known.read_records, known.log_records
    found = [*unreadable_record(group, known), *_aborted(group, known)]
    values, offsets, from_log, rows = _unknown_values(known)
    unknown_values = tuple(
        UnknownValue(
            int(values[i]),
            int(offsets[i]),
            node_witness_at(known.logs, logged, int(rows[i]))
            if from_log[i]
            else _read(known, reads, int(rows[i])),
        )
        for i in range(min(len(values), UNKNOWN_VALUES_CAP))
    )
    unknown = ""
    if len(known.shared_values):
        unknown = (
            f"two sends to {group.partition} claim the same value "
            f"{int(known.shared_values[0])}: values of a history must be unique"
        )
    return Finding(
        property=OFFSETS,
        examined=len(reads) + len(logged),
        anomalies=tuple(found),
        unknown=unknown,
        unknown_values=unknown_values,
        unknown_value_count=len(values),
    )


def _read(known: Evidence, records: Records, row: int) -> Witness:
    return record_witness(known, int(records.offset[row]), int(records.value[row]))


def unreadable_record(group: Group, known: Evidence) -> list[Anomaly]:
    """Find `unreadable-record`: a record, read or in a log, whose payload no client can write."""
    reads, logged = known.read_records, known.log_records
    in_reads, in_logs = np.flatnonzero(reads.value < 0), np.flatnonzero(logged.value < 0)
    offsets = np.union1d(reads.offset[in_reads], logged.offset[in_logs])
    if not len(offsets):
        return []
    witnesses = [_read(known, reads, int(row)) for row in in_reads[:WITNESS_CAP]]
    witnesses += [node_witness_at(known.logs, logged, int(r)) for r in in_logs[:WITNESS_CAP]]
    first = witnesses[0]
    place = f"read by {op_name(first)}" if first.op >= 0 else f"in the log of {first.node}"
    return [
        anomaly(
            group,
            "unreadable-record",
            f"{plural(len(offsets), 'record')} of {group.partition} cannot be understood: the "
            f"payload at offset {first.offset}, {place}, is not what any client wrote.",
            witnesses,
            count=len(offsets),
            offset=int(offsets[0]),
        )
    ]


def _aborted(group: Group, known: Evidence) -> list[Anomaly]:
    """Find values of failed sends. `aborted-read`: a read returned one; allowed if all reads that
    did were made with read_uncommitted. `aborted-write`: one is in the log of a replica, no read
    returned it, and its operation is no transaction."""
    found = []
    visible: I64 = np.zeros(0, np.int64)
    read = known.read_records
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
        if name == "aborted-write":
            # Records of a transaction are in the log before it aborts, and stay there.
            writer = known.writer(records.value)
            failed &= ~np.append(known.sends.transaction | (known.sends.offset >= 0), True)[writer]
        rows = np.flatnonzero(failed)
        if not len(rows):
            continue
        own = np.unique(records.value[rows])
        visible = np.union1d(visible, own)
        writer = known.writer(records.value[rows])
        witnesses = []
        for sender, row in zip(writer, rows[: WITNESS_CAP // 2], strict=False):
            seen = (
                _read(known, records, int(row))
                if name == "aborted-read"
                else node_witness_at(known.logs, records, int(row))
            )
            witnesses += [seen, send_witness(known.sends, int(sender))]
        seen, sent = witnesses[:2]
        place = f"was read by {op_name(seen)}" if seen.op >= 0 else f"is in the log of {seen.node}"
        found.append(
            anomaly(
                group,
                name,
                f"{plural(len(own), 'value')} of failed sends in {group.partition}: value "
                f"{seen.value}, sent by {op_name(sent)} and refused "
                f"{group.seconds(sent.t_us)} into the storm, {place} at offset {seen.offset}.",
                witnesses,
                count=len(own),
                offset=int(records.offset[rows[0]]),
                allowed=allowed,
            )
        )
    return found


def _unknown_values(known: Evidence) -> tuple[I64, I64, I64, I64]:
    """Return the distinct values that no send to it wrote: value, offset, from a log, row."""
    parts = []
    for from_log, records in ((0, known.read_records), (1, known.log_records)):
        rows = np.flatnonzero((records.value >= 0) & (known.writer(records.value) < 0))
        source = np.full(len(rows), from_log)
        parts.append(np.stack((records.value[rows], records.offset[rows], source, rows)))
    table = np.concatenate(parts, axis=1)
    # One row a value: a read before a log, the lowest offset first; then in order of offset.
    table = table[:, np.lexsort((table[1], table[2], table[0]))]
    table = table[:, np.unique(table[0], return_index=True)[1]]
    table = table[:, np.lexsort((table[0], table[1]))]
    return table[0], table[1], table[2], table[3]
