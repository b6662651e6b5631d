"""The disk as the core needs it: LMDB in a real broker, a modelled disk in the simulator.

All writes are buffered until the world commits the turn; reads see them at once. A `durable`
write is on disk when the turn's `after_commit` messages leave; a deferred one (durable=False)
survives a kill but not a power cut until the next flush. One partition, or one key, is always
written with one and the same durability.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from node.core.batch import Produced


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A stored batch without its payload."""

    base_offset: int
    count: int
    epoch: int
    size: int
    chain: bytes
    produced: Produced | None = None


class Storage(Protocol):
    """One node's disk."""

    clean: bool
    """Whether everything ever written, deferred or not, is still here (no power cut took any)."""

    def partitions(self) -> list[str]:
        """Return the partitions with a log in this store, sorted."""
        ...

    def batches(self, partition: str) -> Iterator[StoredBatch]:
        """Return the headers of a log in offset order; used once, at start."""
        ...

    def append(
        self, partition: str, base_offset: int, chain: bytes, data: bytes, *, durable: bool
    ) -> None:
        """Keep one batch and its own chained prefix hash (8 bytes)."""
        ...

    def truncate(self, partition: str, from_offset: int, *, durable: bool) -> None:
        """Forget all batches whose base offset is at or above `from_offset`."""
        ...

    def delete_head(self, partition: str, below: int, *, durable: bool) -> None:
        """Forget all batches whose base offset is below `below`."""
        ...

    def read(self, partition: str, base_offset: int) -> bytes:
        """Return the bytes of the batch that starts exactly there. Raises StorageError."""
        ...

    def delete(self, partition: str, *, durable: bool) -> None:
        """Forget a log altogether."""
        ...

    def put(self, key: str, value: bytes, *, durable: bool) -> None:
        """Keep a small value: epoch cache, log start, HW checkpoint, term and vote."""
        ...

    def get(self, key: str) -> bytes | None:
        """Return a small value, None if never put."""
        ...
