"""The network of the simulator: constant latency, messages in order, and the link rules of the hub.

Messages are passed as objects and never encoded. While no rule is in force and no message is
delayed, a message costs one entry in the event queue."""

from __future__ import annotations

import random
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple

from nemesis.formats.message_log import Fate, MessageLine, MessageSampler
from nemesis.links.pipeline import LinkPipeline
from nemesis.links.rule import Counts, LinkRule
from node.formats import wire
from node.formats.errors import FloodmarkError
from node.formats.messages import AnyMessage

START_US: Final = 1_000_000
"""The virtual time at the start. It is not 0, which means "never" in a run's phases."""

Action = Callable[[Any], None]


class EventQueue:
    """The events of a simulated run by time, then as they were added. `now_us` is the virtual time.
    Setting `stopping` makes `run_until_stopped` return after the current event."""

    __slots__ = ("_heap", "_number", "now_us", "stopping")

    def __init__(self) -> None:
        self.now_us = START_US
        self.stopping = False
        self._heap: list[tuple[int, int, Action, Any]] = []
        self._number = 0

    @property
    def events(self) -> int:
        """The number of events that were carried out so far."""
        return self._number - len(self._heap)

    def at(self, time_us: int, action: Action, what: Any = None) -> None:
        """Add an event: `action(what)` is called at `time_us`, which must not be in the past."""
        self._number += 1
        heappush(self._heap, (time_us, self._number, action, what))

    def has_more_now(self, action: Action) -> bool:
        """Return whether the next event is due now and calls `action`. It seldom is."""
        heap = self._heap
        return bool(heap) and heap[0][0] == self.now_us and heap[0][2] is action

    def take_all_now(self, action: Action) -> list[Any]:
        """Remove the next due events that call `action`; return their arguments."""
        heap, now_us, found = self._heap, self.now_us, []
        while heap and heap[0][0] == now_us and heap[0][2] is action:
            found.append(heappop(heap)[3])
        return found

    def run(self, until_us: int) -> None:
        """Carry out all events up to the time `until_us`."""
        heap = self._heap
        while heap and heap[0][0] <= until_us:
            self.now_us, _, action, what = heappop(heap)
            action(what)
        self.now_us = max(self.now_us, until_us)

    def run_until_stopped(self, until_us: int) -> None:
        """Carry out all events up to the time `until_us`, or until one of them sets `stopping`."""
        heap, self.stopping = self._heap, False
        while heap and heap[0][0] <= until_us:
            self.now_us, _, action, what = heappop(heap)
            action(what)
            if self.stopping:
                return
        self.now_us = max(self.now_us, until_us)


LATENCY_US: Final = 300
"""The latency from one node to another: about that of loopback with the hub in between."""

Envelope = tuple[str, str, AnyMessage, bytes | None]
"""A message in the network: receiver, sender, message, body."""


class AffectedMessage(NamedTuple):
    """A message of type `kind` that a link rule drops or holds, at virtual time `t_us`."""

    t_us: int
    sender: str
    receiver: str
    kind: str


class Network:
    """The network between nodes that have joined it. Messages to other names are lost."""

    def __init__(self, queue: EventQueue, rng: random.Random) -> None:
        self._queue = queue
        self._pipeline: LinkPipeline[Envelope] = LinkPipeline(_peek, rng)
        self._arrive: dict[str, Action] = {}
        self._ruled = False
        self._due_us = 0

    def join(self, name: str, arrive: Action) -> None:
        """Connect a node: `arrive` gets receiver, sender, message and body of each message."""
        self._arrive[name] = arrive

    def send(self, sender: str, receiver: str, message: AnyMessage, body: bytes | None) -> None:
        """Send a message and its body from one node to another, under the link rules in force."""
        if self._ruled:
            self._under_rules((receiver, sender, message, body))
        elif (arrive := self._arrive.get(receiver)) is not None:
            queue = self._queue
            queue.at(queue.now_us + LATENCY_US, arrive, (receiver, sender, message, body))

    def exempt(self, exempt: Callable[[AffectedMessage], bool]) -> None:
        """Ignore link rules for messages for which `exempt` returns True."""

        def passes(sender: str, receiver: str, envelope: Envelope) -> bool:
            kind = str(envelope[2].__struct_config__.tag)
            return exempt(AffectedMessage(self._queue.now_us, sender, receiver, kind))

        self._pipeline.exempts = passes

    def record(self, keep: Callable[[MessageLine], None]) -> None:
        """Call `keep` with a line of `messages.jsonl` for messages that a rule affects."""
        kept = MessageSampler()

        def affected(sender: str, receiver: str, envelope: Envelope, fate: Fate) -> None:
            line = kept.line(self._queue.now_us, sender, receiver, fate, _peek(envelope))
            if line is not None:
                keep(line)

        self._pipeline.on_affected = affected

    def add_rule(self, rule: LinkRule) -> int:
        """Put a link rule in force; return its number."""
        self._ruled = True
        return self._pipeline.add(rule)

    def remove_rule(self, number: int) -> Counts:
        """Remove a link rule; return how many messages it affected. Messages that it held go on
        under the remaining rules. Raises FloodmarkError for an unknown number."""
        self._flush(None)
        counts, released = self._pipeline.remove(number)
        for kept in released:
            self._under_rules(kept.load)
        if counts is None:
            raise FloodmarkError(f"there is no link rule {number}")
        return counts

    def _under_rules(self, envelope: Envelope) -> None:
        pipeline, now_us = self._pipeline, self._queue.now_us
        if pipeline.delay_queue.next_due() is not None:
            self._flush(None)
        if pipeline.is_idle(now_us):
            self._ruled = False
            self._forward(envelope)
            return
        receiver, sender, _, body = envelope
        for _ in range(pipeline.carry(sender, receiver, envelope, len(body or b""), now_us)):
            self._forward(envelope)
        self._arm()

    def _flush(self, _: object) -> None:
        """Deliver the delayed messages that are due, and arrange the next time."""
        for kept in self._pipeline.due(self._queue.now_us):
            self._forward(kept.load)
        self._arm()

    def _arm(self) -> None:
        """Flush again when the next delayed message is due, unless that is arranged already."""
        due_us = self._pipeline.delay_queue.next_due()
        if due_us is not None and not self._queue.now_us < self._due_us <= due_us:
            self._due_us = due_us
            self._queue.at(due_us, self._flush)

    def _forward(self, envelope: Envelope) -> None:
        arrive = self._arrive.get(envelope[0])
        if arrive is not None:
            self._queue.at(self._queue.now_us + LATENCY_US, arrive, envelope)


def _peek(envelope: Envelope) -> dict[str, object]:
    return wire.fields_of(envelope[2], envelope[3])
