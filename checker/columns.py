"""Columns of many blocks of facts joined, when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from checker.facts import I64, UNKNOWN

_NAMES: Final = ("client", "node")


class Columns:
    """The facts of one kind as they came: blocks that may lack columns, in any order."""

    def __init__(self, blocks: Sequence[pa.RecordBatch], names: Callable[[], tuple[str, ...]]):
        """`names` gives all names of the group, once they are known."""
        self._blocks = blocks
        self._all_names = names
        self._length: int = sum(block.num_rows for block in blocks)

    def __len__(self) -> int:
        return self._length

    @property
    def names(self) -> tuple[str, ...]:
        """What the codes of `client` and `node` stand for."""
        return self._all_names()

    def own_names(self) -> set[str]:
        """All clients and nodes in these blocks."""
        found: set[str] = set()
        for block in self._blocks:
            for name in _NAMES:
                if name in block.schema.names:
                    found.update(n or "" for n in pc.unique(block.column(name)).to_pylist())
        return found

    @property
    def text(self) -> npt.NDArray[np.object_]:
        """The column `text`."""
        made = np.full(self._length, "", dtype=object)
        at = 0
        for block in self._blocks:
            if "text" in block.schema.names:
                made[at : at + block.num_rows] = block.column("text").to_pylist()
            at += block.num_rows
        return made

    def take(self, name: str) -> I64:
        """One column as one array; its blocks may be let go by whoever holds them."""
        if not self._blocks:
            return np.zeros(0, np.int64)
        make = self._codes if name in _NAMES else self._numbers
        made = [make(block, name) for block in self._blocks]
        return made[0] if len(made) == 1 else np.concatenate(made)

    def _numbers(self, block: pa.RecordBatch, name: str) -> Any:
        if name not in block.schema.names:
            return np.full(block.num_rows, UNKNOWN[name], np.int64)
        return block.column(name).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)

    def _codes(self, block: pa.RecordBatch, name: str) -> Any:
        names = self._all_names()
        rank = {each: code for code, each in enumerate(names)}
        if name not in block.schema.names:
            return np.full(block.num_rows, rank[""], np.int64)
        column = block.column(name)
        encoded = (
            column if pa.types.is_dictionary(column.type) else column.dictionary_encode("encode")
        )
        # A dictionary may hold words that none of these rows use.
        codes = np.array([rank.get(n or "", 0) for n in encoded.dictionary.to_pylist()], np.int64)
        return codes[encoded.indices.to_numpy(zero_copy_only=False)]

    def order(self, keys: Sequence[str]) -> I64 | None:
        """The order of rows by `keys`; None if it is the one they have already."""
        if self._length < 2:
            return None
        self._blocks = sorted(self._blocks, key=lambda block: _first(block, keys[0]))
        columns = [self.take(name) for name in keys]
        if _is_sorted(columns):
            return None
        return np.lexsort(columns[::-1])


def _first(block: pa.RecordBatch, name: str) -> int:
    """The first value of a column of numbers, to put blocks that are sorted into order."""
    if name in _NAMES or name not in block.schema.names or not block.num_rows:
        return 0
    return int(block.column(name)[0].as_py())


def _is_sorted(columns: Sequence[I64]) -> bool:
    """Whether rows already are in the order of these columns."""
    tied: Any = True
    for column in columns:
        later = column[1:] > column[:-1]
        if not (later | (column[1:] == column[:-1]) | ~np.asarray(tied)).all():
            return False
        tied = tied & (column[1:] == column[:-1])
        if not tied.any():
            return True
    return True
