"""A read-only view of a node, for the invariants and for the choice of the next action.

A view has the attributes of a broker that `harness.sim.invariant_checker` reads, under the same
names."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import Final, NamedTuple

from harness.explore.node_model import ModelNode
from harness.explore.timers import timers
from node.core.log import Log
from node.core.replica import Replica


class _ContextView(NamedTuple):
    broker_epoch: int


class LogView:
    """A view of a log: the end offset of each batch, and the hash of the log up to there."""

    __slots__ = ("_ends", "_hashes", "damage", "last_epoch", "leo", "start")

    def __init__(self, log: Log) -> None:
        self.start, self.leo, self.last_epoch = log.start, log.leo, log.last_epoch
        self.damage = log.damage
        self._hashes = (log.hash_at(log.start), *log.hashes(log.start, log.leo))
        self._ends = tuple(end for end, _ in self._hashes)

    def hash_at(self, offset: int) -> tuple[int, str]:
        """Return the last batch end at or below an offset, and the hash of the log up to there."""
        return self._hashes[max(0, bisect_right(self._ends, offset) - 1)]

    def hashes(self, above: int, upto: int) -> list[tuple[int, str]]:
        """Return the batch ends in (above, upto], each with the hash of the log up to there."""
        first, last = bisect_right(self._ends, above), bisect_right(self._ends, upto)
        return list(self._hashes[max(1, first) : last])


class ReplicaView(NamedTuple):
    """A view of a replica. `waiting` are the followers whose fetches it holds as a leader until
    there are records; `at_end` are followers that have the whole log. `asking`: as a follower it
    has sent a request that is not answered yet."""

    role: str
    leader: str
    leader_epoch: int
    log: LogView
    hw: int
    isr: tuple[str, ...]
    maximal_isr: tuple[str, ...]
    min_isr: int
    pending_alter: bool | None
    waiting: tuple[str, ...]
    at_end: tuple[str, ...]
    voters: tuple[str, ...]
    asking: bool

    @property
    def leo(self) -> int:
        """The log end offset."""
        return self.log.leo


class _QuorumView(NamedTuple):
    r: ReplicaView


_NO_REPLICAS: Final[Mapping[str, ReplicaView]] = {}


class NodeView(NamedTuple):
    """A view of a node. `up`: whether it has a process. `timers` are the names of the waits of that
    process. `registered` has the epoch of each broker that an active controller knows, `fenced` the
    fenced ones; None and empty for another node."""

    up: bool
    timers: tuple[str, ...] = ()
    ctx: _ContextView = _ContextView(-1)
    quorum: _QuorumView | None = None
    replicas: Mapping[str, ReplicaView] = _NO_REPLICAS
    registered: dict[str, int] | None = None
    fenced: frozenset[str] = frozenset()


def view_of(node: ModelNode) -> NodeView:
    """Return a view of a node, taken between two steps."""
    core = node.core
    if core is None:
        return NodeView(up=False)
    brokers = core.controller.image.brokers.values() if core.controller is not None else None
    return NodeView(
        up=True,
        timers=timers(core),
        ctx=_ContextView(core.ctx.broker_epoch),
        quorum=_QuorumView(_replica(core.quorum.r)),
        replicas={name: _replica(r) for name, r in core.replicas.items()},
        registered=None if brokers is None else {b.broker: b.broker_epoch for b in brokers},
        fenced=frozenset(b.broker for b in brokers or () if b.fenced),
    )


def _replica(r: Replica) -> ReplicaView:
    return ReplicaView(
        role=r.role,
        leader=r.leader,
        leader_epoch=r.leader_epoch,
        log=LogView(r.log),
        hw=r.hw,
        isr=r.isr,
        maximal_isr=r.maximal_isr,
        min_isr=r.min_isr,
        pending_alter=None if r.pending_alter is None else True,
        waiting=(*r.follower_waits, *r.data_waiters),
        at_end=tuple(name for name, peer in r.peers.items() if peer.leo >= r.log.leo),
        voters=r.replicas,
        asking=r.fetching.outstanding,
    )
