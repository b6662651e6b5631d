"""The history of a run: every client operation, as invoked and as completed.

One JSON object a line in `history.jsonl`, in the order of the one monotonic clock of the host.
An operation is an `invoke` line and at most one completion line with the same `op` number:

* `ok`: it certainly took effect (for a send: acknowledged as its `acks` asked);
* `fail`: it certainly did not, and never will (the broker said that it appended nothing);
* `info`: unknown. A timeout is never a failure. An invoke without completion counts as info.

A process (one logical thread of operations) that meets `info` is retired: its client goes on
under a new process number, as in Jepsen. Offsets are 0-based.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from node.formats.bounds import (
    BatchCount,
    Count,
    Number,
    Offset,
    OptionalTime,
    PartitionName,
    Time,
    Value,
)
from node.formats.files import AppendOnlyFile
from node.formats.json_input import JsonReader

FORMAT_VERSION: Final = 1
VALUES_PER_PROCESS: Final = 1 << 32
"""A value is process * VALUES_PER_PROCESS + a count, so that it names its writer."""

OpType = Literal["invoke", "ok", "fail", "info"]
Isolation = Literal["", "read_committed", "read_uncommitted"]
OpKind = Literal[
    "send",
    "poll",
    "txn",
    "assign",
    "subscribe",
    "crash",
    "join",
    "leave",
    "ack",
    "nack",
    "commit",
    "position",
    "debug-topic-partitions",
]
GROUP_KINDS: Final = ("join", "leave", "ack", "nack", "commit", "position")
"""The operations that only members of a group do; `poll`, `assign` and `crash` may be theirs."""
GROUP_PREFIX: Final = "group:"
"""Opens the name of the partition in which a group as a whole is judged, as in "group:billing"."""


class RecordRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """`count` consecutive records as read: offsets from `offset` on and values from `value` on,
    both rising by one. `epoch` is the leader epoch of the batch, -1 if the system has no leader
    epochs."""

    offset: Offset
    value: Value
    count: BatchCount = 1
    epoch: Number = -1


class Send(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """One batch sent to one partition: the values `value` to `value + count - 1`, in this order.
    `offset` is the base offset that the completion reported, -1 if it is unknown. No two sends have
    a value in common. `acks`: 0, 1 or -1 (all)."""

    partition: PartitionName
    value: Value
    count: BatchCount = 1
    acks: Number = -1
    offset: Offset = -1


class Read(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """One read of one partition from the offset `start`. `hw` is the high watermark that the answer
    stated (-1: none), `node` the node that answered. A record with an unreadable payload has a
    negative value. `at_end`: the system said that the log ends where this answer ends (an answer
    without records: at `start`). A poll that timed out does not say so. `log_start`: the offset at
    which the answer said that the log begins (-1: it did not say)."""

    partition: PartitionName
    start: Offset = -1
    records: tuple[RecordRun, ...] = ()
    hw: Offset = -1
    node: str = ""
    at_end: bool = False
    log_start: Offset = -1


class DeliveredRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """`count` records that were delivered, or that are settled: values from `value` on, offsets
    from `offset` on (-1: the system has none), numbers of deliveries from `id` on (-1: not stated),
    each rising by one. `times`: how often each was delivered, this time included; 0: not stated."""

    value: Value
    count: BatchCount = 1
    offset: Offset = -1
    id: Offset = -1
    times: Number = 0


class Delivered(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """Records of one partition that were delivered to a member of a group, or that it settles."""

    partition: PartitionName
    records: tuple[DeliveredRun, ...] = ()


class GroupPosition(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """The position of a group in a partition: the next offset to read, or the offset below which
    everything is settled; -1: none. `pending`: how many records are delivered and not settled, -1:
    not stated."""

    partition: PartitionName
    offset: Offset = -1
    pending: Number = -1


class Op(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """One line of a history. `op` numbers operations from 0; `t_us` is monotonic microseconds.

    A transaction (`txn`) has all its sends and reads in one operation, each list in the order of
    its steps. `final` marks the reads after the last fault was healed, made by fresh clients from
    offset 0. `partitions` belongs to assign and subscribe; a completion's `rebalanced` names
    partitions that were taken or given while it ran. `error` names why a fail or info happened.
    `step` is the number of the schedule's own operation that this is, -1 for drawn ones. `seq`
    numbers the lines of a file from 0, without a gap; -1 if they are not numbered. `isolation` is
    that of the reads of this operation, where it is not what the run promises.

    An operation of a group names the `group` and the `member` that does it. `epoch` is the epoch of
    the group that the request carried or the answer stated, -1 if it is unknown. `deliveries`: what
    a poll was given, or what an ack or nack settles. `positions`: what a commit asks for, what a
    position fetch was answered, or where the polls of an assign go on. `since_us`: nothing in this
    answer left the system before that time, -1: before the poll was invoked. `requeue`: a nack
    gives its records back to be delivered again; else they never are.
    """

    op: Offset
    t_us: Time
    process: Number
    client: str
    type: OpType
    f: OpKind
    sends: tuple[Send, ...] = ()
    reads: tuple[Read, ...] = ()
    partitions: tuple[PartitionName, ...] = ()
    rebalanced: tuple[str, ...] = ()
    final: bool = False
    error: str = ""
    step: Number = -1
    seq: Offset = -1
    isolation: Isolation = ""
    group: str = ""
    member: str = ""
    epoch: Number = -1
    deliveries: tuple[Delivered, ...] = ()
    positions: tuple[GroupPosition, ...] = ()
    since_us: OptionalTime = -1
    requeue: bool = True


class LogRun(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One batch in the log of one replica after the run: a line of `logs/<node>.jsonl`.

    `hash` is the hash of the log up to the end of the batch, computed from the stored bytes when
    the log is dumped; `stored_hash` is the one that the replica keeps with the batch ("" if equal).
    `records` as in a read. The first line of each partition has count 0, the start of the log as
    its offset, and the replica's last known high watermark as `hw`. A `control` batch was written
    by the leader itself and has no record of a client. `produced` is the id and epoch of an
    idempotent producer, and the sequence number of the first record. `leo` is the log end offset,
    `epochs` has each leader epoch with its first offset.
    """

    node: str
    partition: str
    offset: Offset
    count: Count
    epoch: Number = -1
    hash: str = ""
    stored_hash: str = ""
    records: tuple[RecordRun, ...] = ()
    control: bool = False
    produced: tuple[Number, Number, Number] | None = None
    hw: Offset = -1
    leo: Offset = -1
    epochs: tuple[tuple[Number, Offset], ...] = ()


def show_value(value: int) -> str:
    """Return a value as a person reads it: "6:215" is record 215 of process 6. A value that no
    process sent is shown as a number."""
    process, count = divmod(value, VALUES_PER_PROCESS)
    return f"{process}:{count}" if process > 0 else str(value)


LINES_A_WRITE: Final = 2000
_encoder = msgspec.json.Encoder()
_decoder = JsonReader(Op)


def encode(op: Op) -> bytes:
    """Encode an operation as one line of a history, with the newline."""
    return _encoder.encode(op) + b"\n"


def encode_numbered(ops: Iterable[Op], seq: int) -> bytes:
    """Encode operations as lines of a history, numbered from `seq` on."""
    return b"".join(
        b'%b,"seq":%d}\n' % (_encoder.encode(op)[:-1], number) for number, op in enumerate(ops, seq)
    )


def decode(line: bytes) -> Op:
    """Decode one line of a history. Raises Unreadable if it is not one."""
    return _decoder.decode(line)


def write_log(file: Path, runs: Iterable[LogRun]) -> None:
    """Write the lines of a node's dump, some thousand at a time. Raises StorageError."""
    lines = iter(runs)
    with closing(AppendOnlyFile(file)) as out:
        while some := tuple(islice(lines, LINES_A_WRITE)):
            out.write(_encoder.encode_lines(some))


GROUP_STATES: Final = "group-states.jsonl"


class GroupRecord(msgspec.Struct, frozen=True):
    """A record of the log of a group: the last value of a key is its state, null removes it."""

    key: Any
    value: Any


class GroupState(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One line. Either what replica `node` keeps of a group in a partition: its position, and by
    offset how often each `pending` record was delivered. Or a `record` of the log at `offset`. Or
    the state that `node` has after it `applied` the log below that offset: keys and values."""

    node: str = ""
    group: str = ""
    partition: str = ""
    applied: Offset = -1
    position: Offset | None = None
    pending: tuple[tuple[Offset, Number], ...] = ()
    offset: Offset = -1
    record: GroupRecord | None = None
    live: tuple[tuple[Any, Any], ...] | None = None
