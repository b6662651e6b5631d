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
from typing import Final, Literal

import msgspec

from node.formats.bounds import BatchCount, Count, Number, Offset, PartitionName, Time, Value
from node.formats.json_input import JsonReader

FORMAT_VERSION: Final = 1
VALUES_PER_PROCESS: Final = 1 << 32
"""Our own values say who wrote them: process * VALUES_PER_PROCESS + a count."""

OpType = Literal["invoke", "ok", "fail", "info"]
Isolation = Literal["", "read_committed", "read_uncommitted"]
OpKind = Literal["send", "poll", "txn", "assign", "subscribe", "crash", "debug-topic-partitions"]


class RecordRun(msgspec.Struct, frozen=True, array_like=True):
    """`count` consecutive records as read: offsets offset.. and values value.. rise together.

    `epoch` is the leader epoch the batch was stamped with, -1 where the system has none.
    """

    offset: Offset
    value: Value
    count: BatchCount = 1
    epoch: Number = -1


class Send(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One batch sent to one partition: values value .. value+count-1, in this order.

    `offset` is the base offset a completion reported, -1 where unknown. Values are globally
    unique. `acks`: 0, 1 or -1 (all).
    """

    partition: PartitionName
    value: Value
    count: BatchCount = 1
    acks: Number = -1
    offset: Offset = -1


class Read(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One read of one partition from offset `start`; `hw` and `node` as the answer stated them.

    A record whose payload cannot be understood is reported with a negative value. `at_end`: the
    system said that the log ended where this answer ends, or, of an answer without records, where
    it was asked to begin. A poll that only waited in vain says no such thing.
    """

    partition: PartitionName
    start: Offset = -1
    records: tuple[RecordRun, ...] = ()
    hw: Offset = -1
    node: str = ""
    at_end: bool = False


class Op(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One line of a history. `op` numbers operations from 0; `t_us` is monotonic microseconds.

    A transaction (`txn`) has all its sends and reads in one operation, each list in the order of
    its steps. `final` marks the reads after the last fault was healed, made by fresh clients from
    offset 0. `partitions` belongs to assign and subscribe; a completion's `rebalanced` names
    partitions that were taken or given while it ran. `error` names why a fail or info happened.
    `step` is the number of the schedule's own operation that this is, -1 for drawn ones. `seq`
    numbers the lines of a file from 0, without a gap; -1 if they are not numbered. `isolation` is
    that of the reads of this operation, where it is not what the run promises.
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


class LogRun(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One batch of one replica's log after the run: a line of `logs/<node>.jsonl`.

    `hash` is recomputed from the stored bytes at dump time, `stored_hash` is what the replica kept
    beside the batch ("" when equal). `records` as in a read. `hw` is the replica's last known HW,
    stated on the line that opens each partition (count = 0, offset = log start). `control` batches
    are a leader's own and hold no client's record; every other batch lists all of its records.
    `produced`: its idempotent producer's id and epoch, and the sequence of its first record.
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
    """Return a value for a person: "6:215" is record 215 of process 6, -1 is "-1"."""
    process, count = divmod(value, VALUES_PER_PROCESS)
    return f"{process}:{count}" if process > 0 else str(value)


_encoder = msgspec.json.Encoder()
_decoder = JsonReader(Op)


def encode(op: Op) -> bytes:
    """Return one history line, newline included."""
    return _encoder.encode(op) + b"\n"


def encode_numbered(ops: Iterable[Op], seq: int) -> bytes:
    """Encode lines of a history; the first of them has the number `seq`."""
    return b"".join(
        b'%b,"seq":%d}\n' % (_encoder.encode(op)[:-1], number) for number, op in enumerate(ops, seq)
    )


def decode(line: bytes) -> Op:
    """Read one history line. Raises Unreadable if it is not one."""
    return _decoder.decode(line)
