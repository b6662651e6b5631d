"""The one table that all checks of a run are made on, and how it is filled.

A fact is a row of numbers about one (run, partition); run-wide facts have the partition "". All
kinds of facts share the columns of `SCHEMA`, so that a single shuffle brings together all that is
known about a partition. What a column means depends on the kind; -1 is "unknown", hash 0 "none":

| kind       | op   | seq  | idx | t0     | t1       | offset | value | count | epoch | hw | leo |
|------------|------|------|-----|--------|----------|--------|-------|-------|-------|----|-----|
| OP         | op   |      | step| invoke | complete | value: 1 = it shows progress, 0 = it does   |
|            |      |      |     |        |          | not (`checker.ingest.downsampling`);        |
|            |      |      |     |        |          | count: how many operations it stands for    |
| SEND       | op   | send | acks| invoke | complete | base   | first | n     |       |    |     |
|            | (leo: when a read of another partition first proved its operation)               |
| READ       | op   | read | run | invoke | complete | first  | first | n     | epoch | hw | start |
| RESET      | op   |      |     | invoke | complete | value: 1 = subscribe; count: 1 = named      |
| LOG_HEAD   | (flags: 1 = dump complete)           | start  |       |       |       | hw | leo |
| EPOCH      |      | nth  |     |        |          | start  |       |       | epoch |    |     |
| LOG        | (flags: 1 = a leader's own)          | base   | records | n   | epoch |    |     |
| LOG_REC    |      |      |     |        |          | first  | first | n     | epoch |    |     |
| TRACE_FILE | (flags: 1 = the trace of `node` is whole)       | last incarnation | |  |    |     |
| LOG_FILE   | (flags: 1 = the dump of the logs of `node` was finished)                            |
| HISTORY    | (flags: 1 = every line of the history was read; 2 = it has transactions;            |
|            | 4 = a final read was invoked; 8 = a clock goes back within a process;               |
|            | 16 = a process had several operations under way)                                    |
| HW         | line |      |     |        | t_us     | end    | incarnation | | epoch | hw | leo |
| APPEND     | line |      |     |        | t_us     | base   | incarnation | | epoch |    | leo |
| TRUNCATED  | line |      |     |        | t_us     |        |       |       | epoch | hw | leo |
| DELETED    | line |      |     |        | t_us     | start  |       |       | epoch |    | leo |
| ROLE       | line |      |     |        | t_us     | (flags: 1 = leader) | | | epoch | hw | leo |
| PARTITION  | line |      |     |        | t_us     |        | partition epoch | | leader epoch | |
| CONTROLLER | line |      |     |        | t_us     |        |       |       | term  |    |     |
| FAULT      | fault| line |     | t_us   | done_us  | (text: the line; outcome: see FaultAction)  |
| EXIT       | line |      |     |        | t_us     |        | code  | (flags: 1 = expected)    |

Flags of a READ: 1 = final, 2 = the partition was rebalanced while the operation ran, 16 = it may
see records of operations that abort, 32 = the answer says that the log ends there; where reads were
downsampled (`checker.engine.read_downsampling`) also 4 = the row stands for the contents only, 8 =
sound ones before it were left out; `hash` then says how all that it stands for read it, `hash2` how
many are left out beside it. ANSWER is a read that was left out (`t0`, `t1`, `hw`: the end it
stated), SPAN the first and the last operation (`op`, `value`) of a process in a range of offsets. A
transaction is an operation of more than one send, or of sends and reads. `turn` of a SEND, READ or
RESET is the place of its operation among all in order of time, and of line; it is there only if the
numbers of the operations of a process do not rise in that order.

An empty answer of a read is one READ row with count 0. `hash` is the prefix hash at `offset` (HW),
`leo` (APPEND) or the batch end (LOG); `hash2` is the hash kept by the replica where it differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

I64 = npt.NDArray[np.int64]


class Kind(IntEnum):
    """Kinds of facts, by what they are about."""

    META = 0
    PROBLEM = 1
    NOTE = 2
    OP = 3
    SEND = 4
    READ = 5
    RESET = 6
    LOG_HEAD = 7
    EPOCH = 8
    LOG = 9
    LOG_REC = 10
    TRACE_FILE = 11
    HW = 12
    APPEND = 13
    ROLE = 14
    PARTITION = 15
    CONTROLLER = 16
    FAULT = 17
    EXIT = 18
    HISTORY = 19
    TRUNCATED = 20
    ANSWER = 21
    SPAN = 22
    LOG_FILE = 23
    DELETED = 24


class PartitionMembers(msgspec.Struct, frozen=True):
    """The text of a fact of kind PARTITION."""

    leader: str
    isr: tuple[str, ...]
    elr: tuple[str, ...]
    last_known_elr: tuple[str, ...]
    replicas: tuple[str, ...]
    removing: tuple[str, ...] = ()
    fenced: tuple[str, ...] = ()


class Outcome(IntEnum):
    """The outcome of an operation; an invocation without completion is INFO."""

    OK = 0
    INFO = 1
    FAIL = 2


class FaultAction(IntEnum):
    """The action of a line of faults.jsonl."""

    INJECT = 0
    HEAL = 1
    SKIPPED = 2
    MISSED = 3
    EFFECT = 4


DAMAGE: Final = 1
FINAL: Final = 1
REBALANCED: Final = 2
CONTENT: Final = 4
FOLLOWS: Final = 8
UNCOMMITTED: Final = 16
AT_END: Final = 32
TRANSACTIONS: Final = 2
FINALS: Final = 4
CLOCK_BACK: Final = 8
OVERLAP: Final = 16
LEADER: Final = 1
COMPLETE: Final = 1
CONTROL: Final = 1
EXPECTED: Final = 1
PROGRESS: Final = 1

NUMBERS: Final = (
    "op",
    "seq",
    "idx",
    "process",
    "outcome",
    "flags",
    "t0",
    "t1",
    "offset",
    "value",
    "count",
    "epoch",
    "hw",
    "leo",
    "hash",
    "hash2",
    "turn",
)
UNKNOWN: Final[dict[str, int]] = {
    **dict.fromkeys(NUMBERS, -1),
    **dict.fromkeys(("seq", "idx", "flags", "outcome", "count", "hash", "hash2"), 0),
}
_TEXTS: Final = ("client", "node", "text")

_SMALL: Final = {"outcome": pa.int8(), "flags": pa.int8(), "seq": pa.int32(), "idx": pa.int32()}
SCHEMA: Final = pa.schema(
    [("run", pa.int32()), ("partition", pa.string()), ("kind", pa.int8())]
    + [(name, _SMALL.get(name, pa.int64())) for name in NUMBERS]
    + [(name, pa.string()) for name in _TEXTS]
)


def block(run: int, kind: Kind, partition: str | Sequence[str], **columns: Any) -> pa.RecordBatch:
    """Facts of one kind as a record batch; a column is one value for all rows or one a row.

    At least one argument must be a sequence; it gives the number of rows. A column that is not
    given is left out: nothing is known of it.
    """
    given = {"run": run, "partition": partition, "kind": int(kind), **columns}
    rows = next(len(c) for c in given.values() if not isinstance(c, int | str))
    arrays, fields = [], []
    for field in SCHEMA:
        if field.name not in given:
            continue
        column = given[field.name]
        fields.append(field)
        if isinstance(column, int | str):
            arrays.append(pa.repeat(pa.scalar(column, field.type), rows))
        else:
            arrays.append(pa.array(column, field.type))
    assert len(fields) == len(given), sorted(given)
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def columns_block(
    run: int, kind: Kind, partition: pa.Array, columns: Mapping[str, Any]
) -> pa.RecordBatch:
    """Facts of one kind from whole columns, as they are: arrays of Arrow or NumPy."""
    rows = len(partition)
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(run, pa.int32()), rows),
            partition,
            pa.repeat(pa.scalar(int(kind), pa.int8()), rows),
            *(c if isinstance(c, pa.Array) else pa.array(c) for c in columns.values()),
        ],
        names=["run", "partition", "kind", *columns],
    )


@lru_cache(maxsize=1 << 12)
def hash_number(text: str) -> int:
    """A prefix hash of 16 hexadecimal digits as a signed number, 0 for "". Raises ValueError."""
    if not text:
        return 0
    number = int(text, 16)
    if len(text) > 16 or number < 0:
        raise ValueError(f"'{text}' is not a hash of 16 hexadecimal digits")
    return number - (1 << 64) if number >= 1 << 63 else number


def hash_text(number: int) -> str:
    """The 16 hexadecimal digits of a hash, "" for none."""
    return f"{int(number) & (1 << 64) - 1:016x}" if number else ""
