"""The application of link rules to messages: the table decides, a queue holds delayed and held
messages. Pure.

The queue is bounded. If it is full the *newest* message is dropped, as by a full socket: messages
that are already under way stay complete and in order.

The hub of real processes and the simulated network each have a `LinkPipeline` and a clock, so a
rule does the same to a message in both."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

from nemesis.formats.message_log import Fate
from nemesis.links.abilities import HUB
from nemesis.links.rule import Counts, LinkRule
from nemesis.links.table import LinkTable

Load = TypeVar("Load")
MAX_MESSAGES: Final = 100_000
MAX_BYTES: Final = 256 << 20


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


class LinkPipeline(Generic[Load]):
    """The link rules in force, and the messages that they delay or hold, in any form (`Load`).
    Times in microseconds.

    `peek` returns the header fields of a message; it is called only if a rule of its link needs
    them. `rng` draws percentages and jitter. `exempts`, if set, is called with sender and receiver
    of each message that is to be dropped or held; True lets the message pass. `on_affected`, if
    set, is called for each message that was really dropped or held."""

    def __init__(self, peek: Callable[[Load], Mapping[str, Any]], rng: random.Random) -> None:
        self._peek = peek
        self._rng = rng
        self.exempts: Callable[[str, str, Load], bool] | None = None
        self.on_affected: Callable[[str, str, Load, Fate], None] | None = None
        self.table = LinkTable()
        self.delay_queue: DelayQueue[Load] = DelayQueue()

    def is_idle(self, now_us: int) -> bool:
        """Return whether messages go on at once, as there is no rule and nothing under way."""
        return self.table.is_idle(now_us)

    def carry(self, sender: str, receiver: str, load: Load, size: int, now_us: int) -> int:
        """Decide about a message sent now; return how many copies of it go on at once. Take out the
        messages that were due before (`due`), or order is lost."""
        if self.table.is_open(sender, receiver):
            return 1
        fields: Mapping[str, Any] = {}
        if self.table.needs_fields(sender, receiver):
            fields = self._peek(load)
        decision = self.table.decide(sender, receiver, fields, now_us, self._rng)
        kept = QueuedMessage(sender, receiver, load, size)
        if not decision.times and self.exempts is not None and self.exempts(sender, receiver, load):
            return 1
        if not decision.times and self.on_affected is not None:
            self.on_affected(
                sender, receiver, load, "dropped" if decision.held_by is None else "held"
            )
        if decision.held_by is not None:
            self.delay_queue.hold(decision.held_by, kept)
        at_once = 0
        for time_us in decision.times:
            if time_us <= now_us:
                at_once += 1
            else:
                self.delay_queue.delay(time_us, kept)
        return at_once

    def due(self, now_us: int) -> list[QueuedMessage[Load]]:
        """Remove and return the delayed messages whose time has come, in order."""
        return self.delay_queue.due(now_us)

    def add(self, rule: LinkRule) -> int:
        """Put a rule in force; return its number. Raises UsageError for an impossible one."""
        HUB.check(rule)
        return self.table.add(rule)

    def remove(self, number: int) -> tuple[Counts | None, list[QueuedMessage[Load]]]:
        """End a rule; return its effects (None: no such rule) and the messages that it held, which
        the caller must carry again as if they were sent now."""
        return self.table.remove(number), self.delay_queue.release(number)
