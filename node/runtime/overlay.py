"""Writes that are not in LMDB yet: as operations for the journal, and their net effect in memory.

The module knows nothing of files. An `Overlay` lies over the tables of `node.runtime.tables`: logs
and values that it does not mention are as in the tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

EVERYTHING: Final = -1
"""A cut below every offset: nothing of the log in the tables counts any more."""


class Append(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """The operation that stores one batch (arguments as in `Storage.append`)."""

    partition: str
    base_offset: int
    chain: bytes
    data: bytes


class Truncate(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """The operation that removes the batches which start at or above `from_offset`."""

    partition: str
    from_offset: int


class Delete(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The operation that removes a log."""

    partition: str


class Put(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """The operation that stores a small value under a key."""

    key: str
    value: bytes


class DeleteHead(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """The operation that removes the batches which start below `below`."""

    partition: str
    below: int


Op = Append | Truncate | Delete | Put | DeleteHead


class Kept(NamedTuple):
    """A batch and the prefix hash stored beside it."""

    chain: bytes
    data: bytes


class LogOverlay:
    """The net effect of operations on one log: remove from the tables the batches at or above `cut`
    and those below `head`, then add `batches` (by base offset). `cut` is None if nothing was cut,
    `head` 0 if no head was deleted. `present` says whether the log exists; None: as in the
    tables."""

    __slots__ = ("batches", "cut", "head", "present")

    def __init__(self) -> None:
        self.batches: dict[int, Kept] = {}
        self.cut: int | None = None
        self.head = 0
        self.present: bool | None = None

    def truncate(self, from_offset: int) -> None:
        """Remove the batches that start at or above `from_offset`."""
        self.cut = from_offset if self.cut is None else min(self.cut, from_offset)
        for base in [base for base in self.batches if base >= from_offset]:
            del self.batches[base]

    def delete_head(self, below: int) -> None:
        """Remove the batches that start below `below`."""
        self.head = max(self.head, below)
        for base in [base for base in self.batches if base < below]:
            del self.batches[base]

    def delete(self) -> None:
        """Remove the log."""
        self.cut = EVERYTHING
        self.present = False
        self.batches.clear()

    def hides(self, base_offset: int) -> bool:
        """Return whether a batch of the tables at `base_offset` is removed or replaced."""
        if base_offset in self.batches or base_offset < self.head:
            return True
        return self.cut is not None and base_offset >= self.cut


class Overlay:
    """The net effect of a sequence of operations on all logs and values."""

    __slots__ = ("logs", "values")

    def __init__(self) -> None:
        self.logs: dict[str, LogOverlay] = {}
        self.values: dict[str, bytes] = {}

    def __bool__(self) -> bool:
        return bool(self.logs or self.values)

    def log(self, partition: str) -> LogOverlay:
        """Return the overlay of one log, made if need be."""
        found = self.logs.get(partition)
        if found is None:
            found = self.logs[partition] = LogOverlay()
        return found

    def append(self, partition: str, base_offset: int, chain: bytes, data: bytes) -> None:
        """Add one batch, in place of one that starts at the same offset."""
        log = self.log(partition)
        log.batches[base_offset] = Kept(chain, data)
        log.present = True

    def apply(self, op: Op) -> None:
        if isinstance(op, Append):
            self.append(op.partition, op.base_offset, op.chain, op.data)
        elif isinstance(op, Put):
            self.values[op.key] = op.value
        elif isinstance(op, Truncate):
            self.log(op.partition).truncate(op.from_offset)
        elif isinstance(op, DeleteHead):
            self.log(op.partition).delete_head(op.below)
        else:
            self.log(op.partition).delete()

    def replay(self, turns: Iterable[Iterable[Op]]) -> None:
        """Apply the operations of the turns in a journal."""
        for turn in turns:
            for op in turn:
                self.apply(op)

    def clear(self) -> None:
        """Drop all operations: after a flush the tables have their effect."""
        self.logs.clear()
        self.values.clear()
