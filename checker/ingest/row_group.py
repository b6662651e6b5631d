"""Rows of one of the history tables, by column; columns with only default values may be missing."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checker.evidence.columns import Facts, Name, Rows, Words, rows
from checker.evidence.facts import Outcome
from checker.evidence.sorting import I64

# A column that has this value in all rows says nothing.
SILENT: Final[dict[str, Any]] = {
    "seq": 0,
    "idx": 0,
    "epoch": -1,
    "hw": -1,
    "start": -1,
    "complete_us": -1,
    "proved_us": -1,
    "final": False,
    "step": -1,
    "invoke_line": 0,
    "complete_line": 0,
    "rebalanced": False,
    "uncommitted": False,
    "at_end": False,
    "log_start": -1,
    "transaction": False,
    "subscribed": False,
    "named": False,
}
OUTCOMES: Final = {"ok": Outcome.OK, "info": Outcome.INFO, "fail": Outcome.FAIL}


class Table:
    """A batch of rows of a history table, which may lack columns with only default values."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        self.rows = rows
        self.num_rows: int = rows.num_rows

    def facts(self, kind: type[Facts], run: int, **made: Any) -> Rows:
        """Return the rows as facts of a kind, from the columns of the same names and those in
        `made`. Raises ValueError if a value is missing."""
        given: dict[str, Any] = dict(made)
        for name in kind.columns.keys() - made.keys() & set(self.rows.schema.names):
            if isinstance(kind.columns[name], Name):
                given[name] = self.words(name)
                continue
            column = self.rows.column(name)
            if column.null_count:
                raise ValueError(f"{column.null_count} of {self.num_rows} rows have no {name}")
            given[name] = column.to_numpy(zero_copy_only=False)
        return rows(kind, run, self.words("partition"), **given)

    def column(self, name: str) -> pa.Array | None:
        """Return a column, None if all its values are the default."""
        return self.rows.column(name) if name in self.rows.schema.names else None

    def numbers(self, name: str) -> I64:
        column = self.column(name)
        if column is None:
            return np.full(self.num_rows, SILENT[name], np.int64)
        numbers: I64 = column.to_numpy(zero_copy_only=False)
        return numbers.astype(np.int64, copy=False)

    def outcomes(self) -> I64:
        """Return the outcomes of operations as numbers. Raises ValueError for unknown words."""
        indices, words = self.words("outcome")
        if strange := sorted({*words} - {*OUTCOMES}):
            raise ValueError(f"an operation cannot end '{strange[0]}'")
        made: I64 = np.array([OUTCOMES[word] for word in words], np.int64)[indices]
        return made

    def words(self, name: str) -> Words:
        """Return a column of texts, as codes and texts."""
        column = self.rows.column(name)
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        indices: I64 = column.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        return Words(indices, column.dictionary.to_pylist())


def table_of(rows: pa.RecordBatch) -> Table:
    """Return these rows without the columns that have only default values."""
    return Table(rows.select([name for name in rows.schema.names if not _is_silent(rows, name)]))


def _is_silent(rows: pa.RecordBatch, name: str) -> bool:
    column, silent = rows.column(name), SILENT.get(name)
    # Most columns that say something do so in their first row.
    if silent is None or not len(column) or column[0].as_py() != silent or column.null_count:
        return False
    return bool(pc.min_max(column).as_py() == {"min": silent, "max": silent})


def whole(table: pa.Table) -> Table:
    """Return all rows of a table as one batch."""
    batches = table.combine_chunks().to_batches()
    return Table(batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema))
