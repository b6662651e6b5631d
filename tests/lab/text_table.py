"""The text table of a benchmark: a row for each thing measured, a column for each figure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def as_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table, with all columns but the first aligned to the right."""
    whole = [tuple(titles), *map(tuple, rows)]
    widths = [max(map(len, column)) for column in zip(*whole, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if at else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in whole
    ]
