"""Some rows of one of the history tables, by column; columns that say nothing may be missing."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checker.evidence.facts import I64, Outcome

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
    "subscribed": False,
    "named": False,
}
# Columns of facts, and the columns of the tables that they are.
SEND_COLUMNS: Final = {
    "op": "op",
    "seq": "seq",
    "idx": "acks",
    "process": "process",
    "client": "client",
    "t0": "invoke_us",
    "t1": "complete_us",
    "offset": "offset",
    "value": "value",
    "count": "count",
    "leo": "proved_us",
}
READ_COLUMNS: Final = {
    **{name: name for name in ("op", "seq", "idx", "process", "client", "node")},
    **{name: name for name in ("offset", "value", "count", "epoch", "hw")},
    "t0": "invoke_us",
    "t1": "complete_us",
    "leo": "start",
}
RESET_COLUMNS: Final = {"op": "op", "process": "process", "t0": "invoke_us", "t1": "complete_us"}
_CODES: Final[dict[str, dict[str | None, int]]] = {
    "outcome": {"ok": Outcome.OK, "info": Outcome.INFO, "fail": Outcome.FAIL}
}


class Table:
    """A batch of rows of a table, which may lack columns that say nothing."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        self.rows = rows
        self.num_rows: int = rows.num_rows

    def given(self, columns: dict[str, str]) -> dict[str, pa.Array]:
        """The columns that are there, by the name of the fact they are."""
        there = set(self.rows.schema.names)
        return {name: self.rows.column(of) for name, of in columns.items() if of in there}

    def column(self, name: str) -> pa.Array | None:
        """A column, None if it says nothing."""
        return self.rows.column(name) if name in self.rows.schema.names else None

    def numbers(self, name: str) -> I64:
        """A column of numbers."""
        column = self.column(name)
        if column is None:
            return np.full(self.num_rows, SILENT[name], np.int64)
        numbers: I64 = column.to_numpy(zero_copy_only=False)
        return numbers.astype(np.int64, copy=False)

    def codes(self, name: str) -> I64:
        """A column of few different words as numbers."""
        column, known = self.rows.column(name), _CODES[name]
        words = column.dictionary.to_pylist()
        if name == "outcome" and (strange := sorted({*words} - {*known})):
            raise ValueError(f"an operation cannot end '{strange[0]}'")
        codes = np.array([known.get(word, 0) for word in words], np.int8)
        made: I64 = codes[column.indices.to_numpy(zero_copy_only=False)]
        return made

    def bits(self, bits: dict[str, int]) -> dict[str, Any]:
        """Columns of booleans as the column of flags, nothing if no flag is set."""
        made = np.zeros(self.num_rows, np.int8)
        for name, bit in bits.items():
            if (column := self.column(name)) is not None:
                made |= column.to_numpy(zero_copy_only=False).astype(np.int8) * np.int8(bit)
        return {"flags": made} if made.any() else {}

    def words(self, name: str) -> tuple[I64, list[str]]:
        """A column of text as codes and words."""
        column = self.rows.column(name)
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        indices: I64 = column.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        return indices, column.dictionary.to_pylist()


def table_of(rows: pa.RecordBatch) -> Table:
    """These rows, without the columns that say nothing in any of them."""
    return Table(rows.select([name for name in rows.schema.names if not _is_silent(rows, name)]))


def _is_silent(rows: pa.RecordBatch, name: str) -> bool:
    column, silent = rows.column(name), SILENT.get(name)
    # Most columns that say something do so in their first row.
    if silent is None or not len(column) or column[0].as_py() != silent or column.null_count:
        return False
    return bool(pc.min_max(column).as_py() == {"min": silent, "max": silent})


def whole(table: pa.Table) -> Table:
    """All rows of a table."""
    batches = table.combine_chunks().to_batches()
    return Table(batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema))
