"""Columns that say nothing are left out, and no other one."""

from __future__ import annotations

import pyarrow as pa
import pytest

from checker.ingest.row_group import SILENT, table_of


@pytest.mark.parametrize(
    ("hw", "stays"),
    [([-1, -1], False), ([-1, 4], True), ([4, -1], True), ([-1, None], True), ([], True)],
)
def test_a_column_stays_unless_it_says_nothing_in_all_rows(
    hw: list[int | None], stays: bool
) -> None:
    rows = pa.RecordBatch.from_pydict({"hw": pa.array(hw, pa.int64())})
    assert (table_of(rows).column("hw") is not None) == stays


@pytest.mark.parametrize("name", SILENT)
def test_each_kind_of_column_that_may_say_nothing_is_left_out(name: str) -> None:
    rows = pa.RecordBatch.from_pydict({name: [SILENT[name]] * 3, "op": [7, 7, 7]})
    assert table_of(rows).rows.schema.names == ["op"]
