"""The idempotent producers of a log: the last batches of each. Pure. KIP-98, KAFKA-5494.

Each batch of an idempotent producer names its producer id, producer epoch and sequence. A leader
appends a batch only if its sequence follows on the last one of that producer, and recognizes a
batch that its log has already. The state follows from the batches in a log and their order alone:
replicas with equal logs have equal states, whichever leads.

The state is bounded: WINDOW batches of a producer, MAX_PRODUCERS producers of a partition. If there
are more, the producer that has not written for longest is dropped."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

from node.core.batch import Produced
from node.formats.wire_bounds import MAX_PRODUCERS

WINDOW: Final = 5
"""So many batches of a producer can be known again; Kafka's producers have at most 5 in flight."""


class Written(NamedTuple):
    """A producer's batch in the log: producer epoch, sequence of its first record, base offset and
    end (exclusive)."""

    epoch: int
    sequence: int
    base: int
    end: int

    @property
    def next_sequence(self) -> int:
        """The sequence of the batch that may follow."""
        return self.sequence + self.end - self.base


class Standing(Enum):
    """The relation of a batch to its producer's last ones in the log, by epoch and sequence."""

    NEXT = "follows on what the log has"
    DUPLICATE = "is in the log, among the last of its producer"
    OLD = "was in the log before the last of its producer"
    GAP = "leaves out what should come before it"
    FENCED = "its producer has begun a later epoch"
    UNKNOWN = "is not its producer's first, and the log knows nothing of that producer"


class Producers:
    """The last batches of each producer in one log, the producer that wrote last at the end."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: dict[int, tuple[Written, ...]] = {}

    def __len__(self) -> int:
        return len(self._last)

    def judge(self, batch: Produced, count: int) -> tuple[Standing, Written | None]:
        """Return how a batch of `count` records relates to this log and, if it is a DUPLICATE, the
        original."""
        known = self._last.get(batch.producer)
        if known is None:
            return (Standing.NEXT if batch.sequence == 0 else Standing.UNKNOWN), None
        last = known[-1]
        if batch.epoch < last.epoch:
            return Standing.FENCED, None
        if batch.epoch > last.epoch:
            return (Standing.NEXT if batch.sequence == 0 else Standing.GAP), None
        for kept in reversed(known):
            if (kept.sequence, kept.next_sequence) == (batch.sequence, batch.sequence + count):
                return Standing.DUPLICATE, kept
        if batch.sequence == last.next_sequence:
            return Standing.NEXT, None
        return (Standing.OLD if batch.sequence < last.next_sequence else Standing.GAP), None

    def last(self, producer: int) -> tuple[Written, ...]:
        """Return the last batches of a producer, the newest at the end; none if it is unknown."""
        return self._last.get(producer, ())

    def note(self, batch: Produced, base: int, end: int) -> None:
        """Record that `batch` was appended from `base` to `end`. In a new producer epoch the
        batches of the one before are dropped."""
        known = self._last.pop(batch.producer, ())
        if known and known[-1].epoch != batch.epoch:
            known = ()
        kept = Written(batch.epoch, batch.sequence, base, end)
        self._last[batch.producer] = (*known[1 - WINDOW :], kept)
        if len(self._last) > MAX_PRODUCERS:
            del self._last[next(iter(self._last))]

    def rebuild(self, batches: Iterable[tuple[int, int, Produced]]) -> None:
        """Replace the state by the one that follows from the batches of a log: (base offset, end,
        producer) of each, in order."""
        self._last.clear()
        for base, end, batch in batches:
            self.note(batch, base, end)
