"""The tables of a history -> facts: for runs whose history is kept as Parquet only.

A table is read in pieces of some row groups, each a source of its own, so that no task ever holds
more than a piece, whatever the size of the run. All is done by column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from checker import tables
from checker.facts import (
    COMPLETE,
    FINAL,
    I64,
    POLL_OP,
    PROVED,
    REBALANCED,
    SEND_OP,
    TRANSACTIONS,
    Kind,
    Outcome,
    block,
    columns_block,
)
from checker.source import Ingested, Source, why
from checker.thinning import thin_ops
from node.trace import METADATA_PARTITION

HISTORY_TABLES: Final = ("ops", "sends", "reads", "assigns")
ROWS_OF_A_PIECE: Final = 1_000_000

_CODES: Final[dict[str, dict[str | None, int]]] = {
    "outcome": {"ok": Outcome.OK, "info": Outcome.INFO, "fail": Outcome.FAIL},
    "f": {"send": SEND_OP, "poll": POLL_OP},
}


def table_sources(run: int, folder: Path, where: Path) -> list[Source]:
    """The pieces of the history tables in the folder `where`; none if there are no such tables."""
    found: list[Source] = []
    for name in HISTORY_TABLES:
        target = where / f"{name}.parquet"
        files = sorted(target.glob("[!.]*.parquet")) if target.is_dir() else [target]
        for path in files:
            if path.is_file():
                found.extend(Source(run, folder, name, path, groups) for groups in _pieces(path))
    return found


def _pieces(path: Path) -> Iterator[tuple[int, int]]:
    """Row groups from .. to, about `ROWS_OF_A_PIECE` rows together."""
    try:
        about = pq.read_metadata(path)
    except (OSError, pa.ArrowException):
        yield 0, 0  # The reader will say what is wrong with it.
        return
    begin, rows = 0, 0
    for group in range(about.num_row_groups):
        rows += about.row_group(group).num_rows
        if rows >= ROWS_OF_A_PIECE:
            yield begin, group + 1
            begin, rows = group + 1, 0
    if rows or not about.num_row_groups:
        yield begin, about.num_row_groups


def read_piece(source: Source, into: Ingested) -> None:
    """Read one piece of one table into `into`: facts only, for the table is there already."""
    try:
        table = _read(source)
    except (OSError, pa.ArrowException, ValueError) as error:
        gist = why(error).split("\n", 1)[0]
        into.problems.add(source.name, f"{source.name} cannot be read: {gist}.")
        into.facts.append(_history(source.run, into, set(), 0))
        return
    facts, flags = _MAKERS[source.kind](source.run, table, into)
    seen = {p for f in facts for p in f.column("partition").unique().to_pylist()}
    into.facts.extend(facts)
    into.facts.append(_history(source.run, into, seen, COMPLETE | flags))


def _read(source: Source) -> pa.RecordBatch:
    """The rows of a piece as one batch, texts as dictionaries."""
    schema = tables.SCHEMAS[source.kind]
    texts = [field.name for field in schema if field.type == pa.string()]
    with pq.ParquetFile(source.path, read_dictionary=texts) as file:
        missing = [name for name in schema.names if name not in file.schema_arrow.names]
        if missing:
            raise ValueError(f"it has no column {missing[0]}")
        wanted = [name for name in schema.names if name not in ("run", "error", "second")]
        table = file.read_row_groups(list(range(*source.groups)), columns=wanted)
    table = table.unify_dictionaries().combine_chunks()
    batches = table.to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def _history(run: int, into: Ingested, seen: set[str], flags: int) -> pa.RecordBatch:
    """That this piece of the history is whole, for all partitions that could care."""
    partitions = sorted(seen | {*into.meta.partitions, METADATA_PARTITION, ""})
    return block(run, Kind.HISTORY, partitions, flags=flags)


Made = tuple[list[pa.RecordBatch], int]


def _ops(run: int, table: pa.RecordBatch, into: Ingested) -> Made:
    """Of all operations only what checks of a whole run rest on."""
    made = thin_ops(
        run, into.meta.phases,
        invoke_us=_numbers(table, "invoke_us"), complete_us=_numbers(table, "complete_us"),
        kind=_codes(table, "f"), outcome=_codes(table, "outcome"),
    )  # fmt: skip
    both = bool(((_numbers(table, "sent") > 0) & (_numbers(table, "polled") > 0)).any())
    return made, TRANSACTIONS if both else 0


def _sends(run: int, table: pa.RecordBatch, into: Ingested) -> Made:
    several = bool((_numbers(table, "seq") > 0).any())
    given = {
        "op": "op", "seq": "seq", "idx": "acks", "process": "process", "t0": "invoke_us",
        "t1": "complete_us", "offset": "offset", "value": "value", "count": "count",
        "client": "client",
    }  # fmt: skip
    columns = {name: table.column(of) for name, of in given.items()}
    columns |= {
        "outcome": _codes(table, "outcome"),
        "flags": _bits(table, {"proved": PROVED}),
    }
    made = columns_block(run, Kind.SEND, table.column("partition"), columns)
    return [made] if table.num_rows else [], TRANSACTIONS if several else 0


def _reads(run: int, table: pa.RecordBatch, into: Ingested) -> Made:
    given = {
        "op": "op", "seq": "seq", "idx": "idx", "process": "process", "t0": "invoke_us",
        "t1": "complete_us", "offset": "offset", "value": "value", "count": "count",
        "epoch": "epoch", "hw": "hw", "leo": "start", "client": "client", "node": "node",
    }  # fmt: skip
    columns = {name: table.column(of) for name, of in given.items()}
    columns |= {
        "outcome": _codes(table, "outcome"),
        "flags": _bits(table, {"final": FINAL, "rebalanced": REBALANCED}),
    }
    made = columns_block(run, Kind.READ, table.column("partition"), columns)
    return [made] if table.num_rows else [], 0


def _assigns(run: int, table: pa.RecordBatch, into: Ingested) -> Made:
    given = {"op": "op", "process": "process", "t0": "invoke_us", "t1": "complete_us"}
    columns = {name: table.column(of) for name, of in given.items()}
    columns |= {
        "value": _bits(table, {"subscribed": 1}), "count": _bits(table, {"named": 1}),
    }  # fmt: skip
    made = columns_block(run, Kind.RESET, table.column("partition"), columns)
    return [made] if table.num_rows else [], 0


_MAKERS: Final[dict[str, Callable[[int, pa.RecordBatch, Ingested], Made]]] = {
    "ops": _ops, "sends": _sends, "reads": _reads, "assigns": _assigns,
}  # fmt: skip


def _numbers(table: pa.RecordBatch, name: str) -> I64:
    numbers: I64 = table.column(name).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return numbers


def _codes(table: pa.RecordBatch, name: str) -> I64:
    """A column of few different words as numbers."""
    column, known = table.column(name), _CODES[name]
    words = column.dictionary.to_pylist()
    if name == "outcome" and (strange := sorted({*words} - {*known})):
        raise ValueError(f"an operation cannot end '{strange[0]}'")
    codes: I64 = np.array([known.get(word, 0) for word in words], np.int64)
    indices = column.indices.to_numpy(zero_copy_only=False)
    return codes[indices] if len(codes) else np.zeros(len(indices), np.int64)


def _bits(table: pa.RecordBatch, bits: dict[str, int]) -> Any:
    """Columns of booleans as flags of one number."""
    made = np.zeros(table.num_rows, np.int8)
    for name, bit in bits.items():
        if pc.any(table.column(name)).as_py():
            made |= table.column(name).to_numpy(zero_copy_only=False).astype(np.int8) * np.int8(bit)
    return made
