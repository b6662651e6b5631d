"""The tables of a run, Parquet files in `tables/`, on which reports and measures rest.

Their columns and types are fixed, whatever the size of the run. A table that is made of several
source files (trace, log, replicas) is a folder of part files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from checker.evidence.columns import Words
from checker.ingest.fault_windows import WINDOWS
from node.formats.files import make_folder, replacing
from node.formats.removal import remove

Columns = Mapping[str, Any]
"""Columns of a table by name, each an array of numbers or flags, or `Words`."""

# A column has the same type in all tables: 64 bits, unless its name is here. Milliseconds and
# seconds are floating-point numbers.
_NAMES_BY_TYPE: Final = {
    pa.string(): "run node partition client leader name by f outcome error what on event group "
    "member role state hash stored_hash line_json",
    pa.int32(): "seq idx nth",
    pa.bool_(): "final rebalanced uncommitted at_end transaction subscribed named complete requeue",
    pa.list_(pa.string()): "isr",
    pa.list_(pa.list_(pa.int64())): "epochs",
}
_TYPES: Final = {name: kind for kind, names in _NAMES_BY_TYPE.items() for name in names.split()}


def _schema(columns: str) -> pa.Schema:
    """Return the schema of a table with these columns."""

    def kind(name: str) -> pa.DataType:
        return pa.float64() if name.endswith(("_ms", "_s")) else _TYPES.get(name, pa.int64())

    return pa.schema([(name, kind(name)) for name in columns.split()])


_AROUND: Final = " ".join(
    f"{window}_{name}" for window in WINDOWS for name in ("ok", "fail", "info")
)
SCHEMAS: Final = {
    # `step`: the number of the schedule's own operation that it is, -1 for drawn ones. `second`:
    # completion (or invocation, where there was none), whole seconds since the storm began. The
    # lines are those of history.jsonl, 0 where they are not known.
    "ops": _schema(
        "run op invoke_us complete_us process client f outcome final error sent polled step second "
        "invoke_line complete_line"
    ),
    # `proved_us`: when a read of another partition proved its operation, whose outcome is unknown.
    "sends": _schema(
        "run op seq partition process client invoke_us complete_us outcome acks value count offset "
        "transaction proved_us"
    ),
    # `rebalanced`: whether the partition was taken or given while the operation ran. `uncommitted`:
    # it may return records of operations that abort. `at_end`: the log ended there. `log_start`:
    # where the answer stated that it begins.
    "reads": _schema(
        "run op seq idx partition process client node final outcome invoke_us complete_us start hw "
        "offset value count epoch rebalanced uncommitted at_end log_start"
    ),
    # `subscribed`: by subscribing or by assigning. `named`: it was named, or is dropped.
    "assigns": _schema("run op partition process invoke_us complete_us subscribed named"),
    # What members of groups did (`checker.ingest.group_rows`); only there if a run has groups.
    "groups": _schema(
        "run op seq partition process client f outcome group member epoch invoke_us complete_us "
        "low_us final requeue shape value count offset id times pending"
    ),
    "replicas": _schema("run node partition start leo hw complete epochs"),
    "log": _schema(
        "run node partition batch_offset batch_count epoch hash stored_hash idx offset value count "
        "line"
    ),
    # `line_json`: the whole line, for events that are not made once a batch.
    "trace": _schema(
        "run node incarnation line t_us event partition role leader leader_epoch partition_epoch "
        "leo hw base_offset batch_end from_leo hash isr state term client acks line_json"
    ),
    # `by`: "run", "sent" (what sent something), or a window around the `nth` fault; `name`: of it,
    # the partition.
    "tallies": _schema("run by name nth f outcome us times records"),
    "acks": _schema("run by name stretch first_us last_us"),
    "unseen": _schema("run partition at_us at_s acked unseen"),
    "lag": _schema("run partition node leader at_us at_s lag highest"),
    "around_faults": _schema(
        f"run nth fault what on begin_us end_us partition {_AROUND} first_ack_ms longest_gap_ms"
    ),
}


def from_rows(name: str, rows: Iterable[tuple[Any, ...]]) -> pa.Table:
    """Return the table `name` from rows whose values are in the order of its schema."""
    schema = SCHEMAS[name]
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def from_columns(name: str, run: str, columns: Columns) -> pa.Table:
    """Return the table `name` of a run from all of its columns but that of the run."""
    schema, arrays = SCHEMAS[name], []
    for field in schema:
        column = columns.get(field.name)
        if column is None:
            array = pa.repeat(pa.scalar(run, field.type), len(columns["invoke_us"]))
        elif isinstance(column, Words):
            codes = pa.array(column.codes.astype(np.int32))
            array = pa.DictionaryArray.from_arrays(codes, pa.array(column.words, pa.string()))
        else:
            array = pa.array(column)
        arrays.append(array.cast(field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def columns_of(rows: pa.RecordBatch) -> dict[str, Any]:
    """Return the columns of rows of numbers, flags and texts. Raises ValueError if a value is
    missing."""
    made: dict[str, Any] = {}
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if column.null_count:
            raise ValueError(f"{column.null_count} of {rows.num_rows} rows have no {name}")
        if pa.types.is_string(column.type):
            column = column.dictionary_encode()
        if pa.types.is_dictionary(column.type):
            codes = column.indices.to_numpy(zero_copy_only=False).astype(np.int64)
            made[name] = Words(codes, column.dictionary.to_pylist())
        else:
            made[name] = column.to_numpy(zero_copy_only=False)
    return made


def all_columns_of(table: pa.Table) -> dict[str, Any]:
    """Return the columns of all rows of a table, as `columns_of` does."""
    batches = table.combine_chunks().to_batches()
    return columns_of(batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema))


def write(folder: Path, name: str, part: str, table: pa.Table) -> None:
    """Write a table, or one part of it; a reader never sees half a file. Raises OSError."""
    target = folder / f"{name}.parquet"
    if part:
        target = target / f"{part}.parquet"
    elif target.is_dir():
        remove(target, folder.parent)  # An earlier check made it in parts.
    make_folder(target.parent, folder.parent)
    # The draft is a dot file, which is invisible to Spark and pyarrow.
    texts = [field.name for field in table.schema if field.type == pa.string()]
    with replacing(target, folder.parent) as file:
        # Numbers differ from row to row, and no reader asks for statistics.
        pq.write_table(table, file, compression="lz4", use_dictionary=texts, write_statistics=False)


def clear(folder: Path, names: Iterable[str]) -> None:
    """Remove the tables `names`, each a file or a folder of parts. Raises OSError."""
    for name in names:
        remove(folder / f"{name}.parquet", folder.parent)
