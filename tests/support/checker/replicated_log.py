"""A replicated log as its clients can see it: a partition of a system that works.

Nothing in here knows a check. A record is appended above the high watermark, becomes committed when
the replicas have it, and may be cut off by a new leader until then. Transactions leave markers,
which use offsets. Retention takes the head, compaction takes records from the middle."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final, Literal

MARKER: Final = -1


@dataclass
class Txn:
    """A transaction; its records are there before it ends."""

    state: Literal["open", "committed", "aborted"] = "open"


@dataclass
class Slot:
    """The content of one offset: a record, a marker of a transaction, or a record that is gone."""

    value: int
    epoch: int
    base: int
    """The offset at which its batch begins: a batch is there as a whole, or not."""
    txn: Txn | None = None
    gone: bool = False


@dataclass
class Partition:
    """One partition: everything from `start` on, committed below `hw`."""

    name: str
    slots: list[Slot] = field(default_factory=list)
    start: int = 0
    hw: int = 0
    epoch: int = 0

    @property
    def end(self) -> int:
        return len(self.slots)

    @property
    def stable(self) -> int:
        """The offset below which no transaction is open."""
        for offset in range(self.start, self.hw):
            if (txn := self.slots[offset].txn) is not None and txn.state == "open":
                return offset
        return self.hw

    def append(self, value: int, count: int, txn: Txn | None = None) -> int:
        """Append a batch and return its first offset. A transaction's is replicated at once."""
        base = self.end
        self.slots += [Slot(value + k, self.epoch, base, txn) for k in range(count)]
        if txn is not None:
            self.replicate()
        return base

    def mark(self, txn: Txn) -> None:
        self.slots.append(Slot(MARKER, self.epoch, self.end, txn))
        self.replicate()

    def replicate(self) -> None:
        self.hw = self.end

    def change_leader(self, rng: random.Random) -> None:
        """Elect a leader that has everything committed, and perhaps more."""
        bases = {slot.base for slot in self.slots[self.hw :]} | {self.end}
        del self.slots[rng.choice(sorted(bases)) :]
        self.epoch += rng.randint(1, 2)
        self.replicate()

    def has(self, base: int, value: int) -> bool:
        return base < self.end and self.slots[base].value == value

    def visible(self, begin: int, limit: int, dirty: bool) -> list[tuple[int, int, int]]:
        """Return (offset, value, epoch) of the records that a reader may get from `begin` on, below
        `limit`; `dirty`: also those of transactions that are open or aborted."""
        found = []
        for offset in range(max(begin, self.start), min(limit, self.hw)):
            slot = self.slots[offset]
            shown = dirty or slot.txn is None or slot.txn.state == "committed"
            if shown and slot.value != MARKER and not slot.gone:
                found.append((offset, slot.value, slot.epoch))
        return found

    def trim(self, rng: random.Random) -> None:
        """Delete the oldest committed records."""
        self.start = rng.randint(self.start, self.stable)

    def compact(self, rng: random.Random) -> None:
        """Delete any committed record, but never the newest."""
        for offset, _, _ in self.visible(self.start, self.stable, False)[:-1]:
            self.slots[offset].gone |= rng.random() < 0.2
