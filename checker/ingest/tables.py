"""The tables of a run, as Parquet files under `tables/`: what reports and measures draw from.

Names and types are explicit and versioned with the checker; a run of any size has the same ones.
A table made of several source files (trace, log, replicas) is a folder of part files.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

_TEXT: Final = pa.string()
_I64: Final = pa.int64()
_I32: Final = pa.int32()

OPS: Final = pa.schema(
    [
        ("run", _TEXT),
        ("op", _I64),
        ("invoke_us", _I64),
        ("complete_us", _I64),
        ("process", _I64),
        ("client", _TEXT),
        ("f", _TEXT),
        ("outcome", _TEXT),
        ("final", pa.bool_()),
        ("error", _TEXT),
        ("sent", _I64),
        ("polled", _I64),
        # number of the schedule's own operation that it is, -1 for drawn ones
        ("step", _I32),
        # completion (or invocation, where there was none), whole seconds since the storm began
        ("second", _I32),
    ]
)
SENDS: Final = pa.schema(
    [
        ("run", _TEXT),
        ("op", _I64),
        ("seq", _I32),
        ("partition", _TEXT),
        ("process", _I64),
        ("client", _TEXT),
        ("invoke_us", _I64),
        ("complete_us", _I64),
        ("outcome", _TEXT),
        ("acks", _I32),
        ("value", _I64),
        ("count", _I64),
        ("offset", _I64),
        # whether a read of another partition proves its operation, whose outcome is unknown
        ("proved", pa.bool_()),
    ]
)
READS: Final = pa.schema(
    [
        ("run", _TEXT),
        ("op", _I64),
        ("seq", _I32),
        ("idx", _I32),
        ("partition", _TEXT),
        ("process", _I64),
        ("client", _TEXT),
        ("node", _TEXT),
        ("final", pa.bool_()),
        ("outcome", _TEXT),
        ("invoke_us", _I64),
        ("complete_us", _I64),
        ("start", _I64),
        ("hw", _I64),
        ("offset", _I64),
        ("value", _I64),
        ("count", _I64),
        ("epoch", _I64),
        # whether the partition was taken or given while the operation ran
        ("rebalanced", pa.bool_()),
    ]
)
ASSIGNS: Final = pa.schema(
    [
        ("run", _TEXT),
        ("op", _I64),
        ("partition", _TEXT),
        ("process", _I64),
        ("invoke_us", _I64),
        ("complete_us", _I64),
        # by subscribing or by assigning; whether this partition was named or is dropped
        ("subscribed", pa.bool_()),
        ("named", pa.bool_()),
    ]
)
REPLICAS: Final = pa.schema(
    [
        ("run", _TEXT),
        ("node", _TEXT),
        ("partition", _TEXT),
        ("start", _I64),
        ("leo", _I64),
        ("hw", _I64),
        ("complete", pa.bool_()),
        ("epochs", pa.list_(pa.list_(_I64))),
    ]
)
LOG: Final = pa.schema(
    [
        ("run", _TEXT),
        ("node", _TEXT),
        ("partition", _TEXT),
        ("batch_offset", _I64),
        ("batch_count", _I64),
        ("epoch", _I64),
        ("hash", _TEXT),
        ("stored_hash", _TEXT),
        ("idx", _I32),
        ("offset", _I64),
        ("value", _I64),
        ("count", _I64),
    ]
)
TRACE: Final = pa.schema(
    [
        ("run", _TEXT),
        ("node", _TEXT),
        ("incarnation", _I32),
        ("line", _I64),
        ("t_us", _I64),
        ("event", _TEXT),
        ("partition", _TEXT),
        ("role", _TEXT),
        ("leader", _TEXT),
        ("leader_epoch", _I64),
        ("partition_epoch", _I64),
        ("leo", _I64),
        ("hw", _I64),
        ("base_offset", _I64),
        ("batch_end", _I64),
        ("from_leo", _I64),
        ("hash", _TEXT),
        ("isr", pa.list_(_TEXT)),
        ("state", _TEXT),
        ("term", _I64),
        # the whole line, for events that are not made once a batch
        ("line_json", _TEXT),
    ]
)
FAULTS: Final = pa.schema(
    [
        ("run", _TEXT),
        ("fault", _I64),
        ("what", _TEXT),
        ("action", _TEXT),
        ("t_us", _I64),
        ("done_us", _I64),
        ("on", _TEXT),
        ("nodes", pa.list_(_TEXT)),
        ("links", pa.list_(pa.list_(_TEXT))),
        ("dropped", _I64),
        ("delayed", _I64),
        ("detail", _TEXT),
    ]
)
EXITS: Final = pa.schema(
    [
        ("run", _TEXT),
        ("node", _TEXT),
        ("incarnation", _I32),
        ("t_us", _I64),
        ("code", _I64),
        ("by", _TEXT),
        ("expected", pa.bool_()),
    ]
)
TALLIES: Final = pa.schema(
    [
        # what is counted by ("run": by second of the run; "client"; "partition") and which of it
        ("run", _TEXT),
        ("by", _TEXT),
        ("name", _TEXT),
        ("second", _I32),
        ("f", _TEXT),
        ("outcome", _TEXT),
        ("us", _I64),
        ("times", _I64),
        ("records", _I64),
    ]
)
ACKS: Final = pa.schema(
    [
        ("run", _TEXT),
        ("by", _TEXT),
        ("name", _TEXT),
        ("stretch", _I64),
        ("first_us", _I64),
        ("last_us", _I64),
    ]
)
_COUNTS: Final = [
    ("f", _TEXT),
    ("ok", _I64),
    ("fail", _I64),
    ("info", _I64),
    ("records", _I64),
    ("ok_per_s", pa.float64()),
    ("records_per_s", pa.float64()),
    ("p50_ms", pa.float64()),
    ("p95_ms", pa.float64()),
    ("p99_ms", pa.float64()),
    ("max_ms", pa.float64()),
]
PER_SECOND: Final = pa.schema([("run", _TEXT), ("second", _I32), *_COUNTS])
PER_CLIENT: Final = pa.schema([("run", _TEXT), ("client", _TEXT), *_COUNTS])
PER_PARTITION: Final = pa.schema(
    [
        ("run", _TEXT),
        ("partition", _TEXT),
        *_COUNTS,
        # the longest time without an acknowledgement, if it is a tenth of a second or more
        ("longest_gap_ms", pa.float64()),
        ("longest_gap_at_s", pa.float64()),
    ]
)

_AT: Final = [("at_us", _I64), ("at_s", pa.float64())]
UNSEEN: Final = pa.schema(
    [("run", _TEXT), ("partition", _TEXT), *_AT, ("acked", _I64), ("unseen", _I64)]
)
LAG: Final = pa.schema(
    [
        ("run", _TEXT),
        ("partition", _TEXT),
        ("node", _TEXT),
        ("leader", _TEXT),
        *_AT,
        ("lag", _I64),
        ("highest", _I64),
    ]
)
STALENESS: Final = pa.schema(
    [
        ("run", _TEXT),
        ("partition", _TEXT),
        *_AT,
        ("answers", _I64),
        ("stale", _I64),
        ("mean_ms", pa.float64()),
        ("max_ms", pa.float64()),
    ]
)
AROUND_FAULTS: Final = pa.schema(
    [
        ("run", _TEXT),
        ("nth", _I32),
        ("fault", _I64),
        ("what", _TEXT),
        ("on", _TEXT),
        ("begin_us", _I64),
        ("end_us", _I64),
        ("partition", _TEXT),
        *(
            (f"{window}_{name}", kind)
            for window in ("before", "during", "after")
            for name, kind in (
                ("ok", _I64),
                ("fail", _I64),
                ("info", _I64),
                ("p50_ms", pa.float64()),
                ("p99_ms", pa.float64()),
                ("max_ms", pa.float64()),
            )
        ),
        ("first_ack_ms", pa.float64()),
        ("longest_gap_ms", pa.float64()),
    ]
)
_WITNESS: Final = pa.struct(
    [
        ("what", _TEXT),
        ("op", _I64),
        ("process", _I64),
        ("client", _TEXT),
        ("node", _TEXT),
        ("t_us", _I64),
        ("offset", _I64),
        ("value", _I64),
        ("epoch", _I64),
        ("hash", _TEXT),
    ]
)
ANOMALIES: Final = pa.schema(
    [
        ("run", _TEXT),
        ("property", _TEXT),
        ("name", _TEXT),
        ("jepsen", _TEXT),
        ("partition", _TEXT),
        ("verdict", _TEXT),
        ("allowed", _TEXT),
        ("count", _I64),
        ("offset", _I64),
        ("t_us", _I64),
        ("message", _TEXT),
        ("witnesses", pa.list_(_WITNESS)),
    ]
)
PROPERTIES: Final = pa.schema(
    [("run", _TEXT), ("property", _TEXT), ("verdict", _TEXT), ("examined", _I64), ("reason", _TEXT)]
)

SCHEMAS: Final = {
    "ops": OPS,
    "sends": SENDS,
    "reads": READS,
    "assigns": ASSIGNS,
    "replicas": REPLICAS,
    "log": LOG,
    "trace": TRACE,
    "faults": FAULTS,
    "exits": EXITS,
    "tallies": TALLIES,
    "acks": ACKS,
    "per_second": PER_SECOND,
    "per_client": PER_CLIENT,
    "per_partition": PER_PARTITION,
    "unseen": UNSEEN,
    "lag": LAG,
    "staleness": STALENESS,
    "around_faults": AROUND_FAULTS,
    "anomalies": ANOMALIES,
    "properties": PROPERTIES,
}


def from_rows(name: str, rows: Iterable[tuple[Any, ...]]) -> pa.Table:
    """A table from rows in the order of its schema."""
    schema = SCHEMAS[name]
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def write(folder: Path, name: str, part: str, table: pa.Table) -> None:
    """Write a table, or one part of it, so that a reader never sees half a file. Raises OSError."""
    target = folder / f"{name}.parquet"
    if part:
        target = target / f"{part}.parquet"
    elif target.is_dir():
        shutil.rmtree(target)  # An earlier check made it in parts.
    target.parent.mkdir(parents=True, exist_ok=True)
    # Dot files are invisible to Spark and pyarrow, and the process makes the name its own.
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        pq.write_table(table, temporary)
        temporary.replace(target)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


def clear_counts(folder: Path) -> None:
    """Remove the counts of an earlier check, whose parts may have been others. Raises OSError."""
    clear(folder, ("tallies", "acks"))


def clear(folder: Path, names: Iterable[str]) -> None:
    """Remove tables, be they one file or a folder of parts. Raises OSError."""
    for name in names:
        target = folder / f"{name}.parquet"
        with contextlib.suppress(FileNotFoundError):
            if target.is_dir():
                shutil.rmtree(target)
            else:
                target.unlink()
