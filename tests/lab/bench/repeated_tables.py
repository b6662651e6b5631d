"""Writes the Parquet tables of a history that repeats a stretch of operations again and again.

The reader of the checker turns one repetition, and the next, into tables. All numbers of the n-th
repetition follow from these two: each grows by the same from one to the next."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from checker.evidence.facts import Shape
from checker.evidence.run_meta import RunMeta
from checker.ingest import tables
from checker.ingest.ingest import tables_of
from checker.ingest.source import Source
from harness.formats.history import GROUP_PREFIX, Op, encode

I64 = npt.NDArray[np.int64]
NAMES: Final = ("ops", "sends", "reads", "groups")
ROWS_AT_ONCE: Final = 2_000_000
_ORIGIN_US: Final = 1_000_000
_NOT_KNOWN: Final = ("invoke_line", "complete_line")
Columns = dict[str, Any]
"""Columns by name: an array of numbers or flags, or codes and their words."""


class RepeatedTables:
    """The tables of a history, a row group for each part."""

    def __init__(self, folder: Path, partitions: Sequence[str]) -> None:
        self._where = folder / "tables"
        self._where.mkdir(parents=True, exist_ok=True)
        self._meta = RunMeta(run=folder.name, partitions=dict.fromkeys(partitions, ()))
        self._files: dict[str, pq.ParquetWriter] = {}
        self._rows = dict.fromkeys(NAMES, 0)

    def append(self, lines: Sequence[Op]) -> None:
        """Append the tables of these lines."""
        for name, columns in self._read(lines).items():
            self._write(name, columns)

    def repeat(self, lines: Callable[[int], Sequence[Op]], first: int, end: int) -> None:
        """Append the repetitions from `first` to `end`, whose lines are these."""
        if end - first < 2:
            for n in range(first, end):
                self.append(lines(n))
            return
        one, two = (self._read(lines(n)) for n in (first, first + 1))
        at_once = ROWS_AT_ONCE // max(_rows(columns) for columns in one.values()) or 1
        for begin in range(0, end - first, at_once):
            times = np.arange(begin, min(begin + at_once, end - first))
            for name, columns in one.items():
                grown = {n: _grown(each, two[name][n], times) for n, each in columns.items()}
                self._write(name, grown)

    def close(self) -> dict[str, int]:
        """Close the files; return the number of rows of each table."""
        for file in self._files.values():
            file.close()
        return self._rows

    def _read(self, lines: Sequence[Op]) -> dict[str, Columns]:
        with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
            file.writelines(map(encode, lines))
            file.flush()
            path = Path(file.name)
            made = tables_of(Source(0, path.parent, "history", path), self._meta).tables
        return {name: _columns(name, made[name]) for name in NAMES if name in made}

    def _write(self, name: str, columns: Columns) -> None:
        if not (rows := _rows(columns)):
            return
        if "second" in columns:
            columns["second"] = (columns["complete_us"] - _ORIGIN_US) // 1_000_000
        schema, arrays = tables.SCHEMAS[name], []
        for field in schema:
            column = columns[field.name]
            if isinstance(column, tuple):
                codes, words = column
                column = pa.DictionaryArray.from_arrays(pa.array(codes), words)
            arrays.append(pa.array(column).cast(field.type))
        if name not in self._files:
            texts = [field.name for field in schema if field.type == pa.string()]
            self._files[name] = pq.ParquetWriter(
                self._where / f"{name}.parquet", schema, compression="lz4", use_dictionary=texts
            )
        self._files[name].write_table(pa.Table.from_arrays(arrays, schema=schema), rows)
        self._rows[name] += rows


def _columns(name: str, table: pa.Table) -> Columns:
    """Return the columns of a table, without the rows that a reader gives every partition again in
    each part."""
    if name == "groups":
        plain = pc.not_equal(table["shape"], int(Shape.OPERATION))
        of_group = pc.starts_with(table["partition"], GROUP_PREFIX)
        rare = pc.or_(table["final"], pc.equal(table["f"], "join"))
        table = table.filter(pc.or_(plain, pc.or_(of_group, rare)))
    found: Columns = {}
    for field, column in zip(table.schema, table.columns, strict=True):
        whole = column.combine_chunks()
        if pa.types.is_string(field.type) or pa.types.is_dictionary(field.type):
            coded = whole if pa.types.is_dictionary(field.type) else whole.dictionary_encode()
            found[field.name] = np.array(coded.indices), coded.dictionary
        else:
            values = np.array(whole)
            found[field.name] = values * 0 if field.name in _NOT_KNOWN else values
    return found


def _rows(columns: Columns) -> int:
    return len(columns["op"])


def _grown(one: Any, two: Any, times: I64) -> Any:
    """Return a column of so many repetitions, from those of the first two."""
    if isinstance(one, tuple):
        return np.tile(one[0], len(times)), one[1]
    if one.dtype == bool:
        return np.tile(one, len(times))
    return (one + times[:, None] * (two - one)).ravel()
