"""The network of the simulator: constant latency, in order, and the hub's own link rules.

A message object goes from hand to hand and is never encoded. While no rule is in force and nothing
is under way a message costs one entry in the agenda.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from harness.sim.event_queue import Act, Agenda
from nemesis.links.message_log import Fate, StruckMessages
from nemesis.links.pipeline import Carrier
from nemesis.links.rule import Counts, LinkRule
from node.core import wire
from node.core.messages import AnyMessage
from node.formats.errors import FloodmarkError

LATENCY_US: Final = 300
"""From one node to another, as over loopback with a hub in between."""

Parcel = tuple[str, str, AnyMessage, bytes | None]
"""Receiver, sender, message, body."""


class Struck(NamedTuple):
    """A message that a link rule is about to drop or to hold, at virtual time `t_us`."""

    t_us: int
    sender: str
    receiver: str
    kind: str


class Network:
    """Carries parcels between the nodes that `join`ed; what is for anybody else is lost."""

    def __init__(self, agenda: Agenda, rng: random.Random) -> None:
        self._agenda = agenda
        self._carrier: Carrier[Parcel] = Carrier(_peek, rng)
        self._arrive: dict[str, Act] = {}
        self._ruled = False
        self._due_us = 0
        self.messages = 0

    def join(self, name: str, arrive: Act) -> None:
        """`arrive` takes the parcels that reach `name`."""
        self._arrive[name] = arrive

    def send(self, sender: str, receiver: str, message: AnyMessage, body: bytes | None) -> None:
        """Put a message on its way."""
        self.messages += 1
        if self._ruled:
            self._under_rules((receiver, sender, message, body))
        elif (arrive := self._arrive.get(receiver)) is not None:
            agenda = self._agenda
            agenda.at(agenda.now_us + LATENCY_US, arrive, (receiver, sender, message, body))

    def spare(self, spares: Callable[[Struck], bool]) -> None:
        """From now on the messages for which `spares` says so pass all rules."""

        def asked(sender: str, receiver: str, parcel: Parcel) -> bool:
            kind = str(parcel[2].__struct_config__.tag)
            return spares(Struck(self._agenda.now_us, sender, receiver, kind))

        self._carrier.spares = asked

    def record(self, keep: Callable[[dict[str, Any]], None]) -> None:
        """Hand messages that rules drop or hold to `keep`, as lines of `messages.jsonl`."""
        kept = StruckMessages()

        def struck(sender: str, receiver: str, parcel: Parcel, fate: Fate) -> None:
            line = kept.line(self._agenda.now_us, sender, receiver, fate, _peek(parcel))
            if line is not None:
                keep(line)

        self._carrier.struck = struck

    def add_rule(self, rule: LinkRule) -> int:
        """Put a link rule in force."""
        self._ruled = True
        return self._carrier.add(rule)

    def remove_rule(self, number: int) -> Counts:
        """End a link rule; what it held is decided again. Raises FloodmarkError for none."""
        self._flush(None)
        counts, released = self._carrier.remove(number)
        for kept in released:
            self._under_rules(kept.load)
        if counts is None:
            raise FloodmarkError(f"there is no link rule {number}")
        return counts

    def _under_rules(self, parcel: Parcel) -> None:
        carrier, now_us = self._carrier, self._agenda.now_us
        if carrier.transit.next_due() is not None:
            self._flush(None)
        if carrier.is_idle(now_us):
            self._ruled = False
            self._forward(parcel)
            return
        receiver, sender, _, body = parcel
        for _ in range(carrier.carry(sender, receiver, parcel, len(body or b""), now_us)):
            self._forward(parcel)
        self._arm()

    def _flush(self, _: object) -> None:
        """Let what is due go on, and come again for what is not."""
        for kept in self._carrier.due(self._agenda.now_us):
            self._forward(kept.load)
        self._arm()

    def _arm(self) -> None:
        """Come back when the next delayed message is due, unless that is arranged already."""
        due_us = self._carrier.transit.next_due()
        if due_us is not None and not self._agenda.now_us < self._due_us <= due_us:
            self._due_us = due_us
            self._agenda.at(due_us, self._flush)

    def _forward(self, parcel: Parcel) -> None:
        arrive = self._arrive.get(parcel[0])
        if arrive is not None:
            self._agenda.at(self._agenda.now_us + LATENCY_US, arrive, parcel)


def _peek(parcel: Parcel) -> dict[str, object]:
    return wire.fields_of(parcel[2], parcel[3])
