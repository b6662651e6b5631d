"""Columns of many blocks of facts joined, when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from checker.evidence.facts import I64, UNKNOWN
from checker.evidence.sorting import is_sorted, order_of, repeated

_NAMES: Final = ("client", "node")
_BY: Final = "process"
_MOST_PARTS: Final = 10_000


class Columns:
    """The facts of one kind as they came: blocks that may lack columns, in any order.

    They are those of one (run, partition), or of a whole run and then shared by its groups.
    """

    def __init__(
        self,
        blocks: Sequence[pa.RecordBatch],
        names: Callable[[], tuple[str, ...]],
        *,
        shared: bool = False,
    ) -> None:
        """`names` gives all names, once they are known; `shared` columns are kept once made."""
        self._blocks = blocks
        self._all_names = names
        self._kept: dict[str, I64] | None = {} if shared else None
        self._length: int = sum(block.num_rows for block in blocks)
        self._sorted: bool | None = None

    def __len__(self) -> int:
        return self._length

    @property
    def names(self) -> tuple[str, ...]:
        """The names that the codes of `client` and `node` stand for."""
        return self._all_names()

    def own_names(self) -> set[str]:
        """All clients and nodes in these blocks."""
        found: set[str] = set()
        for block in self._blocks:
            for name in _NAMES:
                if block.schema.get_field_index(name) >= 0:
                    found.update(n or "" for n in pc.unique(block.column(name)).to_pylist())
        return found

    def has(self, name: str) -> bool:
        """Whether anything is known of a column."""
        return any(name in block.schema.names for block in self._blocks)

    @cached_property
    def text(self) -> npt.NDArray[np.object_]:
        """The column `text`."""
        made = np.full(self._length, "", dtype=object)
        at = 0
        for block in self._blocks:
            if block.schema.get_field_index("text") >= 0:
                made[at : at + block.num_rows] = block.column("text").to_pylist()
            at += block.num_rows
        return made

    def partitions(self) -> tuple[I64, Sequence[str]]:
        """The partition of each row, as codes and names."""
        column = pa.chunked_array([block.column("partition") for block in self._blocks])
        codes = column.combine_chunks().dictionary_encode()
        return codes.indices.to_numpy(), codes.dictionary.to_pylist()

    def take(self, name: str) -> I64:
        """One column as one array."""
        if self._kept is None:
            return self._make(name)
        if name not in self._kept:
            self._kept[name] = self._make(name)
        return self._kept[name]

    def _make(self, name: str) -> I64:
        if not self._blocks:
            return np.zeros(0, np.int64)
        if not self.has(name):
            rank = self._all_names().index("") if name in _NAMES else UNKNOWN[name]
            return repeated(rank, self._length)
        make = self._codes if name in _NAMES else self._numbers
        made = [make(block, name) for block in self._blocks]
        return made[0] if len(made) == 1 else np.concatenate(made)

    def _numbers(self, block: pa.RecordBatch, name: str) -> I64:
        at = block.schema.get_field_index(name)
        if at < 0:
            return repeated(UNKNOWN[name], block.num_rows)
        numbers: I64 = block.column(at).to_numpy(zero_copy_only=False)
        return numbers.astype(np.int64, copy=False)

    def _codes(self, block: pa.RecordBatch, name: str) -> I64:
        names = self._all_names()
        rank = {each: code for code, each in enumerate(names)}
        if block.schema.get_field_index(name) < 0:
            return repeated(rank[""], block.num_rows)
        column = block.column(name)
        encoded = (
            column if pa.types.is_dictionary(column.type) else column.dictionary_encode("encode")
        )
        # A dictionary may hold words that none of these rows use.
        codes = np.array([rank.get(n or "", 0) for n in encoded.dictionary.to_pylist()], np.int64)
        made: I64 = codes[encoded.indices.to_numpy(zero_copy_only=False)]
        return made

    def order(self, keys: Sequence[str], rows: I64 | None) -> I64 | None:
        """These rows, or all, in the order of `keys`; None for all as they are."""
        if (self._length if rows is None else len(rows)) < 2:
            return rows
        if rows is None:
            first = keys[1] if keys[0] == _BY else keys[0]
            self._blocks = sorted(self._blocks, key=lambda block: _first(block, first))
            if keys[0] == _BY:
                self._blocks = _joined_by_process(self._blocks)
        columns = [self.take(name) for name in keys]
        if self._sorted is None:
            self._sorted = is_sorted(columns)
        if self._sorted:
            return rows
        if rows is None:
            return order_of(columns)
        columns = [column[rows] for column in columns]
        return rows if is_sorted(columns) else rows[order_of(columns)]


def _joined_by_process(blocks: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Blocks cut where the process changes, all parts of one process together: where each block is
    in the order of process, so are they all then. As they are if they would be cut too small."""
    parts: list[tuple[int, int, pa.RecordBatch]] = []
    for number, block in enumerate(blocks):
        if block.schema.get_field_index(_BY) < 0:
            return blocks
        process = block.column(_BY).to_numpy(zero_copy_only=False)
        cuts = np.flatnonzero(process[1:] != process[:-1]) + 1
        if len(parts) + len(cuts) > _MOST_PARTS:
            return blocks
        ends = [*cuts.tolist(), block.num_rows]
        for begin, end in zip([0, *ends[:-1]], ends, strict=True):
            parts.append((int(process[begin]), number, block.slice(begin, end - begin)))
    return [block for _, _, block in sorted(parts, key=lambda part: part[:2])]


def _first(block: pa.RecordBatch, name: str) -> int:
    """The first value of a column of numbers, to put blocks that are sorted into order."""
    if name in _NAMES or name not in block.schema.names or not block.num_rows:
        return 0
    return int(block.column(name)[0].as_py())
