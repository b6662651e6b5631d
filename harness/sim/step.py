"""One step of a broker, as an invariant sees it: the state before, the event, what followed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from node.core.api import Effects
from node.core.broker import Broker
from node.core.producers import Written
from node.core.quorum import Quorum
from node.core.replica import PendingAlter, Replica
from node.formats.trace import ROLE

Entries = list[tuple[int, int]]
"""Leader epochs of a log, each with its start offset."""


class Before(msgspec.Struct):
    """The state of a replica before a step. `peer` is (log end, broker epoch) of the sender as the
    leader counts it. `hashes` are the ends of batches and the prefix hashes there, from where a
    message of the leader may cut the log."""

    role: str
    leader: str
    epoch: int
    start: int
    leo: int
    hw: int
    chain: bytes
    last_epoch: int
    asking: int | None
    pending: PendingAlter | None
    peer: tuple[int, int] | None
    entries: Entries
    hashes: dict[int, str]
    at: tuple[int, str]
    serving: bool
    voted_for: str
    known: tuple[Written, ...]
    r: Replica

    def floor(self, target: int) -> int:
        """Return where a log ends that was cut at `target`: whole batches stay."""
        if target < self.start:
            return 0
        return max((end for end in self.hashes if end <= target), default=self.start)


class BrokerStep(msgspec.Struct):
    """A step of `core`; `message`, `source` and `body` are those of a delivery (else None and
    ""). `more`: another message of the turn follows. `r` is the replica that the message names,
    None if there is none; `before` is its state then."""

    core: Broker
    node: str
    message: Any
    source: str
    body: bytes
    more: bool
    r: Replica | None
    before: Before | None
    effects: Effects

    @property
    def quorum(self) -> Quorum | None:
        """The election state of the replica, None if a controller elects its leader."""
        return None if self.r is None else self.core.quorums.get(self.r.partition)

    def sent(self, kind: type, to: str) -> Iterator[Any]:
        """Yield the messages of a kind that the step sends to a node or client."""
        for out in self.effects.messages:
            if out.to == to and type(out.message) is kind:
                yield out.message

    def traced(self, name: str) -> bool:
        """Return whether the step traced an event of that name."""
        return any(event["event"] == name for event in self.effects.trace)

    def traced_of(self, r: Replica, name: str) -> bool:
        """Return whether the step traced an event of that name about the partition of a replica."""
        return any(
            event["event"] == name and event["partition"] == r.partition
            for event in self.effects.trace
        )

    def changed_role(self, r: Replica) -> bool:
        """Return whether a replica's role or epoch changed, perhaps after a message was sent."""
        return self.traced_of(r, ROLE)
