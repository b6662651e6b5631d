"""A column of a row group that says nothing is left out."""

from __future__ import annotations

import pyarrow as pa
import pytest

from checker.ingest.row_group import table_of


@pytest.mark.parametrize(
    ("hw", "stays"),
    [([-1, -1], False), ([-1, 4], True), ([4, -1], True), ([-1, None], True), ([], True)],
)
def test_a_column_stays_unless_it_says_nothing_in_all_rows(
    hw: list[int | None], stays: bool
) -> None:
    rows = pa.RecordBatch.from_pydict({"hw": pa.array(hw, pa.int64())})
    assert (table_of(rows).column("hw") is not None) == stays
