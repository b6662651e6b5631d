"""The result of a check: one finding for each property and group, and its witnesses. A group is the
facts of one partition of a run, or those of the whole run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from checker.evidence.contents import Evidence, Records
from checker.evidence.facts import Contents, LogRecords, OfNode, Outcome, Polls, Sends, hash_text
from checker.evidence.run_meta import RunMeta
from checker.formats.verdict import Anomaly, Witness


class UnknownValue(msgspec.Struct, frozen=True, array_like=True):
    """A value in a partition to which it was not sent: phantom or, if sent elsewhere, misrouted."""

    value: int
    offset: int
    witness: Witness


ALLOWED_UNCOMMITTED: Final = "with read_uncommitted a reader may get what is not committed yet"


class Graph(msgspec.Struct, frozen=True, array_like=True):
    """Dependencies between the operations of one partition, for histories with transactions. `ops`:
    number of the operation, process, client, time of invocation and of completion (or -1), outcome,
    place among the operations of its process. `ww`: operation that wrote a record, operation that
    wrote the next record, offset of that. `wr`: operation that wrote a record, operation that read
    it, its offset; `dirty`: like `wr`, for reads with read_uncommitted. `timed`: the times can be
    relied on; `in_order`: so can the order of the operations of a process."""

    ops: tuple[tuple[int, int, str, int, int, int, int], ...] = ()
    ww: tuple[tuple[int, int, int], ...] = ()
    wr: tuple[tuple[int, int, int], ...] = ()
    dirty: tuple[tuple[int, int, int], ...] = ()
    timed: bool = True
    in_order: bool = True


class LossCount(NamedTuple):
    """Counts of records of one partition. `lost`: committed records that are gone; of these,
    `acknowledged` and `read` before the loss. `undelivered`: acknowledged records that no final
    read returned, which does not prove a loss. `deleted`: acknowledged records below a log start,
    which retention may have deleted; of these, `deleted_unread` were never read, so that nothing
    shows whether they were there when the log start moved."""

    lost: int = 0
    acknowledged: int = 0
    read: int = 0
    undelivered: int = 0
    deleted: int = 0
    deleted_unread: int = 0


class Finding(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The result of one check in one group. `unknown` says why the check could not judge all of it,
    `error` why the check itself failed; "" if it did not. `examined`: how many facts were judged.
    `unknown_values`: values that were not sent to this partition, at most a cap of them;
    `unknown_value_count` counts all. `graph`: dependencies between operations, for the check of
    cycles over all partitions. `loss`: only from the check of lost writes."""

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
    """Return a finding which says that the check of the property `name` raised `error`; `where` may
    be "", or end the phrase "The check of `name`", as in " across partitions"."""
    why = f"The check of {name}{where} failed: {type(error).__name__}: {error}"
    return Finding(property=name, error=why)


class Origin(NamedTuple):
    """The send operation that wrote a value; `first` is the first of the values that it sent."""

    partition: str
    op: int
    process: int
    client: str
    t_us: int
    first: int


class Findings(NamedTuple):
    """All findings of one run, as pairs of partition and finding. `origins`: for values that were
    found in a partition to which they were not sent, the send that wrote each."""

    meta: RunMeta
    by_partition: Sequence[tuple[str, Finding]]
    origins: Mapping[int, Origin] = {}

    @property
    def partition(self) -> str:
        """The findings are about no partition alone."""
        return ""


_ENDED = {Outcome.OK: "acknowledged", Outcome.INFO: "unknown outcome", Outcome.FAIL: "failed"}


def send_witness(sends: Sends, row: int, *, offset: int = -1, value: int = -1) -> Witness:
    """Return a send operation as a witness; `offset` and `value` (-1: the first of the send) say
    which of its records is meant."""
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
    """Return a run of records that a read returned, a row of `reads`, as a witness; `offset` and
    `value` (-1: the first of the run) say which record is meant."""
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
    """Return a line of a node's trace or log, a row of `facts`, as a witness. `what` describes it,
    "" in the words of its kind; `offset` replaces the offset of the line."""

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
    """Format an operation as "operation 17 of c3 (process 12)"."""
    return f"operation {witness.op} of {witness.client} (process {witness.process})"


def plural(count: int, noun: str) -> str:
    """Format a count with its noun: "1 record", "1,234 records"."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def agreeing(count: int, one: str = "is", many: str = "are") -> str:
    """Return the verb that goes with a count."""
    return one if count == 1 else many


def listing(names: Iterable[str]) -> str:
    """Join names: "n1", "n1 and n2", "n1, n2 and n3"."""
    found = list(names)
    if len(found) < 2:
        return "".join(found)
    return f"{', '.join(found[:-1])} and {found[-1]}"


def record_witness(known: Evidence, offset: int, value: int) -> Witness:
    """Return as a witness the earliest read that returned this value at this offset."""
    found = known.read_of(offset, value)
    assert found is not None, "the record was read"
    return read_witness(*found, offset=offset, value=value)


def node_witness_at(facts: LogRecords, records: Records, row: int) -> Witness:
    """Return a record of the nodes' logs as a witness; `facts` has the names of the nodes."""
    return Witness(
        what="record in the log",
        node=facts.name(int(records.node[row])),
        offset=int(records.offset[row]),
        value=int(records.value[row]),
        epoch=int(records.epoch[row]),
    )
