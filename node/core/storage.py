"""The disk as the core needs it: LMDB in a real broker, a modelled disk in the simulator.

All writes are buffered until the world commits the turn; reads see them at once. A `durable` write
is on disk when the turn's AFTER_COMMIT messages leave; a deferred one (durable=False) survives a
kill but not a power cut until the next flush. One partition, or one key, is always written with the
same durability."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from node.core.batch import Produced


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """The header of a stored batch: `size` is the whole batch in bytes, `chain` the prefix hash
    after it, `produced` its idempotent producer (None if it has none)."""

    base_offset: int
    count: int
    epoch: int
    size: int
    chain: bytes
    produced: Produced | None = None


class Storage(Protocol):
    """The disk of one node, as the core uses it."""

    clean: bool
    """Whether everything ever written, deferred or not, is still here (no power cut took any)."""

    def partitions(self) -> list[str]:
        """Return the partitions with a log in this store, sorted."""
        ...

    def batches(self, partition: str) -> Iterator[StoredBatch]:
        """Return the headers of a log's batches in offset order; used once, at start."""
        ...

    def append(
        self, partition: str, base_offset: int, chain: bytes, data: bytes, *, durable: bool
    ) -> None:
        """Store one batch (`data`) and the prefix hash after it (`chain`, 8 bytes)."""
        ...

    def truncate(self, partition: str, from_offset: int, *, durable: bool) -> None:
        """Remove all batches whose base offset is at or above `from_offset`."""
        ...

    def delete_head(self, partition: str, below: int, *, durable: bool) -> None:
        """Remove all batches whose base offset is below `below`."""
        ...

    def read(self, partition: str, base_offset: int) -> bytes:
        """Return the bytes of the batch that starts exactly at `base_offset`. Raises StorageError
        if none does."""
        ...

    def delete(self, partition: str, *, durable: bool) -> None:
        """Remove a log."""
        ...

    def put(self, key: str, value: bytes, *, durable: bool) -> None:
        """Store a small value under a key: epoch cache, log start, HW checkpoint, term and vote."""
        ...

    def get(self, key: str) -> bytes | None:
        """Return a small value, None if it was never stored."""
        ...
