"""The queue of messages that link rules delay until a time, or hold until they are released. Pure.

It is bounded. If it is full the *newest* message is dropped, as by a full socket: messages that are
already under way stay complete and in order."""

from __future__ import annotations

import heapq
from collections import deque
from typing import Final, Generic, NamedTuple, TypeVar

MAX_MESSAGES: Final = 100_000
MAX_BYTES: Final = 256 << 20

Load = TypeVar("Load")


class QueuedMessage(NamedTuple, Generic[Load]):
    """One message that is delayed or held: `load` is the message itself, `size` its bytes."""

    sender: str
    receiver: str
    load: Load
    size: int


class DelayQueue(Generic[Load]):
    """A bounded queue of delayed and held messages of any form (`Load`); `overflow` counts messages
    that found no room."""

    def __init__(self, max_messages: int = MAX_MESSAGES, max_bytes: int = MAX_BYTES) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._timed: list[tuple[int, int, QueuedMessage[Load]]] = []
        self._held: dict[int, deque[QueuedMessage[Load]]] = {}
        self._sequence = 0
        self._messages = 0
        self._bytes = 0
        self.overflow = 0

    def __len__(self) -> int:
        return self._messages

    @property
    def held(self) -> int:
        """The number of messages that wait for a rule to be removed."""
        return sum(map(len, self._held.values()))

    def delay(self, until_us: int, kept: QueuedMessage[Load]) -> bool:
        """Keep a message until `until_us`; return False if there is no room for it."""
        if not self._room(kept):
            return False
        self._sequence += 1
        heapq.heappush(self._timed, (until_us, self._sequence, kept))
        return True

    def hold(self, rule: int, kept: QueuedMessage[Load]) -> bool:
        """Keep a message until `release(rule)`; return False if there is no room for it."""
        if not self._room(kept):
            return False
        self._held.setdefault(rule, deque()).append(kept)
        return True

    def next_due(self) -> int | None:
        """Return when the next delayed message is due, in microseconds; None if there is none."""
        return self._timed[0][0] if self._timed else None

    def due(self, now_us: int) -> list[QueuedMessage[Load]]:
        """Remove and return the delayed messages that are due by now, in order."""
        found = []
        while self._timed and self._timed[0][0] <= now_us:
            found.append(self._left(heapq.heappop(self._timed)[2]))
        return found

    def release(self, rule: int) -> list[QueuedMessage[Load]]:
        """Remove and return the messages that `rule` held, in the order in which they came."""
        return [self._left(kept) for kept in self._held.pop(rule, ())]

    def _room(self, kept: QueuedMessage[Load]) -> bool:
        if self._messages >= self._max_messages or self._bytes + kept.size > self._max_bytes:
            self.overflow += 1
            return False
        self._messages += 1
        self._bytes += kept.size
        return True

    def _left(self, kept: QueuedMessage[Load]) -> QueuedMessage[Load]:
        self._messages -= 1
        self._bytes -= kept.size
        return kept
