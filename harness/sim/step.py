"""One step of a broker, as an invariant sees it: the state before, the event, what followed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from node.core import batch as batches
from node.core.api import Deliver, Effects
from node.core.broker import Broker
from node.core.producers import Written
from node.core.quorum import Quorum
from node.core.replica import PendingAlter, Replica
from node.formats.messages import AppendEntries, EpochEndResponse, FetchResponse, ProduceRequest
from node.formats.trace import METADATA_PARTITION, ROLE

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

    def changed_role(self, r: Replica) -> bool:
        """Return whether a replica's role or epoch changed, perhaps after a message was sent."""
        return any(
            event["event"] == ROLE and event["partition"] == r.partition
            for event in self.effects.trace
        )


def replica_of(core: Broker, partition: str) -> Replica | None:
    """Return a node's replica of a partition, None if it has none."""
    return core.quorum.r if partition == METADATA_PARTITION else core.replicas.get(partition)


def before(core: Broker, r: Replica, event: Deliver) -> Before:
    """Return the state of a replica as rules about a message need it."""
    log, message = r.log, event.message
    peer, quorum = r.peers.get(event.source), core.quorums.get(r.partition)
    hashes: dict[int, str] = {}
    at = (0, "")
    entries: Entries = []
    if isinstance(message, AppendEntries):  # One that leads may follow from here on.
        at = log.hash_at(message.offset)
        hashes = dict(log.hashes(message.offset, log.leo))
    elif r.role != "leader" and _may_cut(message):
        hashes = dict(log.hashes(log.start, log.leo))
    if hashes:
        entries = log.cache.entries()
    return Before(
        r.role,
        r.leader,
        r.leader_epoch,
        log.start,
        log.leo,
        r.hw,
        log.chain,
        log.last_epoch,
        r.fetching.asking,
        r.pending_alter,
        None if peer is None else (peer.leo, peer.broker_epoch),
        entries,
        hashes,
        at,
        core.ctx.serving or quorum is not None,
        "" if quorum is None else quorum.voted_for,
        _known(r, event.body) if isinstance(message, ProduceRequest) else (),
        r,
    )


def _may_cut(message: Any) -> bool:
    """Return whether a follower may cut its log because of an answer."""
    if isinstance(message, FetchResponse):
        return message.diverging is not None or bool(message.error)
    return isinstance(message, EpochEndResponse)


def _known(r: Replica, body: bytes | None) -> tuple[Written, ...]:
    """Return the last batches of the producer of a batch."""
    mine = batches.produced_by(body) if body and len(body) > batches.HEADER.size else None
    return () if mine is None else r.producers.last(mine.producer)
