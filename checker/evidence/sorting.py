"""Sorting columns of millions of rows: by one number made of several wherever they fit into one.

NumPy sorts one column of integers several times faster than it sorts rows by several columns, and
finds distinct values much faster by sorting than by `np.unique`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from checker.evidence.facts import I64

_ROOM: Final = 1 << 62
# Below this many rows looking at ranges costs more than it saves.
_FEW: Final = 512
_FEW_CELLS: Final = 1 << 22


def is_sorted(columns: Sequence[I64]) -> bool:
    """Whether rows already are in the order of these columns, the first counts most."""
    tied: Any = None
    for column in columns:
        step = np.diff(column) if tied is None else np.diff(column)[tied]
        if (step < 0).any():
            return False
        still = step == 0
        tied = np.flatnonzero(still) if tied is None else tied[still]
        if not len(tied):
            return True
    return True


def order_of(columns: Sequence[I64], *, stable: bool = True) -> I64:
    """The rows in the order of these columns, the first counts most; equal rows stay in order."""
    key = None if len(columns[0]) < _FEW else joined(columns)
    if key is None:
        return np.lexsort(tuple(columns[::-1]))
    return np.argsort(key, kind="stable" if stable else None)


def any_order_of(columns: Sequence[I64]) -> I64:
    """As `order_of`, but equal rows come in any order: several times faster."""
    return order_of(columns, stable=False)


def joined(columns: Sequence[I64]) -> I64 | None:
    """One number a row that sorts as the columns do; None if there is none of 63 bits."""
    key: I64 | None = None
    room = 1
    for column in columns:
        low, high = int(column.min()), int(column.max())
        span = high - low + 1
        if span == 1 and key is not None:
            continue
        room *= span
        if room > _ROOM:
            return None
        key = column - low if key is None else key * span + (column - low)
    return key


def alike(columns: Sequence[I64], sums: Sequence[I64]) -> tuple[tuple[I64, ...], tuple[I64, ...]]:
    """The different rows of these columns, sorted, and what `sums` are for each of them in all.

    Sums must be below 2**53. Where few different rows are possible, nothing is sorted.
    """
    if not len(columns[0]):
        return tuple(columns), tuple(sums)
    ranges = [(int(column.min()), int(column.max()) + 1) for column in columns]
    room = math.prod(high - low for low, high in ranges)
    if room > _FEW_CELLS:
        order = any_order_of(columns)
        new = np.zeros(len(order), bool)
        new[0] = True
        for column in columns:
            new[1:] |= np.diff(column[order]) != 0
        starts = np.flatnonzero(new)
        return (
            tuple(column[order[starts]] for column in columns),
            tuple(np.add.reduceat(each[order], starts) for each in sums),
        )
    cell = np.zeros(len(columns[0]), np.int64)
    for column, (low, high) in zip(columns, ranges, strict=True):
        if high - low > 1:
            cell *= high - low
            cell += column - low
    met = np.flatnonzero(np.bincount(cell, minlength=room))
    found, rest = [], met
    for low, high in reversed(ranges):
        found.append(rest % (high - low) + low)
        rest = rest // (high - low)
    totals = (np.bincount(cell, each, minlength=room)[met] for each in sums)
    return tuple(found[::-1]), tuple(total.astype(np.int64) for total in totals)


def distinct(values: I64) -> I64:
    """The different values, sorted."""
    if len(values) < _FEW:
        return np.unique(values)
    values = np.sort(values)
    new = np.empty(len(values), bool)
    new[0] = True
    np.not_equal(values[1:], values[:-1], out=new[1:])
    return values[new]
