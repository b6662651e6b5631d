"""The state of a replica before a step, as the rules of steps read it. Apart from the structs of
`harness.sim.step`, which mypyc cannot compile."""

from __future__ import annotations

from typing import Any

from harness.sim.step import Before, Entries
from node.core import batch as batches
from node.core.api import Deliver
from node.core.broker import Broker
from node.core.producers import Written
from node.core.replica import Replica
from node.formats.messages import AppendEntries, EpochEndResponse, FetchResponse, ProduceRequest
from node.formats.trace import METADATA_PARTITION


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
