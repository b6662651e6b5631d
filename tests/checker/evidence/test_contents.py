"""Records of a partition, merged: the same rows once, with all that is known of them."""

from __future__ import annotations

import numpy as np
import pytest

from checker.evidence.contents import merge


@pytest.mark.parametrize("first", [0, 7_000_000])
@pytest.mark.parametrize("rows", [50, 20_000])
def test_many_records_are_merged_as_few_are(rows: int, first: int) -> None:
    """Rows are found by their place in a large history, and by their order in a small one."""
    random = np.random.default_rng(rows)
    offset, value, node = (random.integers(0, most, rows) for most in (rows // 3, 2, 3))
    flags, t_us = 1 << random.integers(0, 4, rows), random.integers(0, 10**6, rows)
    epoch = np.zeros(rows, np.int64)
    offset = offset + first
    known: dict[tuple[int, ...], tuple[int, int]] = {}
    table = zip(*(c.tolist() for c in (offset, value, epoch, node, flags, t_us)), strict=True)
    for *row, flag, at in table:
        before, earliest = known.get(tuple(row), (0, at))
        known[tuple(row)] = (before | flag, min(earliest, at))
    made = merge(offset, value, epoch, flags, node, t_us=t_us)
    columns = (made.offset, made.value, made.epoch, made.node, made.flags, made.t_us)
    found = list(zip(*(c.tolist() for c in columns), strict=True))
    assert sorted(found) == sorted((*row, *more) for row, more in known.items())
    assert made.offset.tolist() == sorted(made.offset.tolist())
