"""The result of a check: one finding for each property and group, and helpers to word it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from checker.evidence.contents import Evidence, Records
from checker.evidence.facts import Contents, LogRecords, OfNode, Outcome, Polls, Sends, hash_text
from checker.evidence.group import Group
from checker.evidence.run_meta import RunMeta
from checker.formats.anomalies import KINDS, WITNESS_CAP
from checker.formats.verdict import Anomaly, Verdict, Witness


class UnknownValue(msgspec.Struct, frozen=True, array_like=True):
    """A value that was not sent to this partition: phantom or, if sent elsewhere, misrouted."""

    value: int
    offset: int
    witness: Witness


ALLOWED_UNCOMMITTED: Final = "with read_uncommitted a reader may get what is not committed yet"


class Graph(msgspec.Struct, frozen=True, array_like=True):
    """Dependencies between the operations of one partition, for histories with transactions.

    `ops`: op, process, client, invoked, completed (or -1), outcome, its place in the order of its
    process. `ww`: writer, writer of the next record, its offset. `wr`: writer, reader, offset of
    the record; `dirty`: the same of reads with read_uncommitted. `timed`, `in_order`: whether
    times, and the order of a process, can be relied on.
    """

    ops: tuple[tuple[int, int, str, int, int, int, int], ...] = ()
    ww: tuple[tuple[int, int, int], ...] = ()
    wr: tuple[tuple[int, int, int], ...] = ()
    dirty: tuple[tuple[int, int, int], ...] = ()
    timed: bool = True
    in_order: bool = True


class LossCount(NamedTuple):
    """Counts of records of one partition that had to stay: how many are lost, how many of these
    were acknowledged and how many had been read before; how many were never delivered, which does
    not prove a loss. Of the acknowledged ones below a log start, which retention may delete, also
    how many were never read: whether these were lost is not known."""

    lost: int = 0
    acknowledged: int = 0
    read: int = 0
    undelivered: int = 0
    deleted: int = 0
    deleted_unread: int = 0


class Finding(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The result of one check in one group. `unknown` says why it could not judge all of it.

    `error` is what made the check itself fail. At most a cap of `unknown_values` is carried,
    `unknown_value_count` is exact. `graph` is joined with those of other partitions. `loss` counts
    the records of a partition that are lost, where lost writes are judged.
    """

    property: str
    examined: int = 0
    anomalies: tuple[Anomaly, ...] = ()
    unknown: str = ""
    error: str = ""
    unknown_values: tuple[UnknownValue, ...] = ()
    unknown_value_count: int = 0
    graph: Graph | None = None
    loss: LossCount | None = None


def failed(name: str, where: str, error: Exception) -> Finding:
    """Return the finding of a check of the property `name` that failed; `where` may be ""."""
    why = f"The check of {name}{where} failed: {type(error).__name__}: {error}"
    return Finding(property=name, error=why)


class Origin(NamedTuple):
    """The send that wrote a value: `first` is the first value of that send."""

    partition: str
    op: int
    process: int
    client: str
    t_us: int
    first: int


class Findings(NamedTuple):
    """All findings of one run by partition, and by value the sends that wrote unknown values."""

    meta: RunMeta
    by_partition: Sequence[tuple[str, Finding]]
    origins: Mapping[int, Origin] = {}


class Place(NamedTuple):
    """The run and the partition of an anomaly; "" for several partitions."""

    run: str
    partition: str


def anomaly(
    place: Place | Group,
    name: str,
    message: str,
    witnesses: Sequence[Witness] = (),
    *,
    count: int | None = None,
    offset: int | None = None,
    allowed: str = "",
    t_us: int | None = None,
) -> Anomaly:
    """Make an anomaly of the catalogue. Without them its count is that of its witnesses, its offset
    that of the first, and its time that of the first with a time."""
    kept = tuple(witnesses[:WITNESS_CAP])
    if offset is None:
        offset = kept[0].offset if kept else -1
    return Anomaly(
        property=KINDS[name].property,
        name=name,
        run=place.run,
        jepsen=KINDS[name].jepsen,
        partition=place.partition,
        count=int(max(1, len(witnesses)) if count is None else count),
        verdict=Verdict.VALID if allowed else Verdict.INVALID,
        allowed=allowed,
        message=message,
        offset=int(offset),
        t_us=next((w.t_us for w in kept if w.t_us >= 0), -1) if t_us is None else t_us,
        witnesses=kept,
    )


_ENDED = {Outcome.OK: "acknowledged", Outcome.INFO: "unknown outcome", Outcome.FAIL: "failed"}


def send_witness(sends: Sends, row: int, *, offset: int = -1, value: int = -1) -> Witness:
    """Return a send operation as a witness."""
    outcome = Outcome(int(sends.outcome[row]))
    done = int(sends.complete_us[row])
    return Witness(
        what=f"send, {_ENDED[outcome]}",
        op=int(sends.op[row]),
        process=int(sends.process[row]),
        client=sends.name(int(sends.client[row])),
        t_us=done if done >= 0 else int(sends.invoke_us[row]),
        offset=int(sends.offset[row]) if offset < 0 else int(offset),
        value=int(sends.value[row]) if value < 0 else int(value),
    )


def read_witness(
    reads: Polls | Contents, row: int, *, offset: int = -1, value: int = -1
) -> Witness:
    """Return a run of records that a read returned as a witness."""
    return Witness(
        what="final read" if reads.final[row] else "read",
        op=int(reads.op[row]),
        process=int(reads.process[row]),
        client=reads.name(int(reads.client[row])),
        node=reads.name(int(reads.node[row])),
        t_us=int(reads.complete_us[row]),
        offset=int(reads.offset[row]) if offset < 0 else int(offset),
        value=int(reads.value[row]) if value < 0 else int(value),
        epoch=int(reads.epoch[row]),
    )


def node_witness(facts: OfNode, row: int, what: str = "", *, offset: int | None = None) -> Witness:
    """Return a line of a node's trace or log as a witness; `offset` replaces its own."""

    def said(name: str, unknown: int = -1) -> int:
        return int(getattr(facts, name)[row]) if name in facts.columns else unknown

    return Witness(
        what=what or facts.what,
        node=facts.name(int(facts.node[row])),
        t_us=said("t_us"),
        offset=said(facts.place) if offset is None else offset,
        epoch=said("term" if "term" in facts.columns else "epoch"),
        hash=hash_text(said("hash", 0)),
    )


def op_name(witness: Witness) -> str:
    """Format an operation: "operation 17 of c3 (process 12)"."""
    return f"operation {witness.op} of {witness.client} (process {witness.process})"


def plural(count: int, noun: str) -> str:
    """Return "1 record", "1,234 records"."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def listing(names: Iterable[str]) -> str:
    """Return "n1", "n1 and n2", "n1, n2 and n3"."""
    found = list(names)
    if len(found) < 2:
        return "".join(found)
    return f"{', '.join(found[:-1])} and {found[-1]}"


def record_witness(known: Evidence, offset: int, value: int) -> Witness:
    """Return the earliest read that returned this value at this offset; there must be one."""
    found = known.read_of(offset, value)
    assert found is not None, "the record was read"
    return read_witness(*found, offset=offset, value=value)


def node_witness_at(facts: LogRecords, records: Records, row: int) -> Witness:
    """Return a record in a node's log as a witness."""
    return Witness(
        what="record in the log",
        node=facts.name(int(records.node[row])),
        offset=int(records.offset[row]),
        value=int(records.value[row]),
        epoch=int(records.epoch[row]),
    )
