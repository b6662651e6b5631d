"""One node while the clock stands still: the unchanged core and a disk, as a value between steps.

The time is `NOW_US` at every step, so a deadline is never reached; the exploration ends a wait
itself (`timers.py`). A step is a turn (`node.core.turn`), or the part of one that a process makes
before it ends.

Fields that do not affect what a node does are set to fixed values (`forget`), so that nodes that
differ only in them count as one state. Some decide only how long a wait takes, or how a node stops,
some belong to a role that the replica does not have, some are read under other protocols only.
`Explorer(check=True)` also steps the nodes with the fields as they were, and compares."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from harness.explore.snapshot import canonical, restore, snapshot
from harness.explore.timers import expire, timers
from harness.sim.disk import DiskState, SimDisk
from node.core.api import Deliver, Event, NodeConfig, Outgoing
from node.core.broker import Broker
from node.core.log import Log
from node.core.protocol import Commit, Detection, Waiting
from node.core.replica import LONG_AGO, NEVER, Fetching, Replica
from node.core.turn import TurnStep, carry_out, take
from node.formats.trace import TraceEvent


def forget(broker: Broker) -> None:
    """Set the fields of a broker that do not affect what it does to fixed values."""
    for name in (broker.quorum.r.partition, *broker.replicas):
        voted = broker.quorums.get(name)
        r = broker.replicas[name] if voted is None else voted.r
        if r.role == "leader" or (r.role == "none" and voted is None):
            # A replica that begins to follow sets all of these fields.
            r.fetching = Fetching()
        else:
            _forget_fetching(r)
        _forget_peers(r)
    if broker.membership is not None:
        broker.membership.fenced = True  # how often to send heartbeats
    if broker.controller is not None:
        # Whether a broker that asked to stop may do so.
        broker.controller.applied = dict.fromkeys(broker.controller.applied, 0)


def _forget_fetching(r: Replica) -> None:
    fetching, protocol = r.fetching, r.protocol
    sleeps = protocol.waiting is Waiting.IDLE_WAIT
    if not sleeps:
        fetching.notified = False
    if protocol.detection is not Detection.LEADER_REPORTS:
        fetching.heard_us = LONG_AGO
        if not sleeps and not protocol.falls_back_after:
            fetching.failures = 0  # how long the pause is
    if not r.bugs.one_round_only:
        fetching.cut = False


def _forget_peers(r: Replica) -> None:
    """Reset what a leader knows of its followers and its commit rule does not read: of a majority
    only the log ends of voters count; of an ISR, the last high watermark sent does not."""
    majority = r.protocol.commit is Commit.MAJORITY
    if majority:
        r.next_lag_check_us = NEVER
    for name, peer in r.peers.items():
        if peer.hw_sent < r.hw or not r.protocol.sends_hw_at_once:
            peer.hw_sent = -1
        if not majority:
            continue
        peer.broker_epoch = -1
        peer.leader_leo_at_fetch = 0
        peer.last_caught_up_us = LONG_AGO
        if name not in r.replicas:
            peer.leo = 0
            peer.last_fetch_us = LONG_AGO


NOW_US: Final = 1 << 40
_encoder: Final = msgspec.msgpack.Encoder()


class NodeState(NamedTuple):
    """A node: how many processes it had, its disk, and its process's state, None if down."""

    incarnation: int
    disk: DiskState
    core: bytes | None


class NodeTurn(NamedTuple):
    """A node after a step, the messages that left and the trace that was written; whether messages
    left before the commit (`early`); `error`: why its process ended, or ""."""

    node: ModelNode
    messages: tuple[Outgoing, ...] = ()
    events: tuple[TraceEvent, ...] = ()
    early: bool = False
    error: str = ""


class _LowestDraw:
    """Jitter that always draws the lowest number: lengths of waits do not matter."""

    def randint(self, low: int, high: int) -> int:
        return low


class ModelNode:
    """A node that can be stepped, and turned into a value and back. Its process ends before the
    step `ends_before` of a turn that has it."""

    def __init__(
        self,
        config: NodeConfig,
        state: NodeState | None = None,
        ends_before: TurnStep | None = None,
    ) -> None:
        self.config = config
        self._before = state
        self._stop = () if ends_before is None else (ends_before,)
        self._messages: list[Outgoing] = []
        self._events: list[TraceEvent] = []
        self.incarnation = 0 if state is None else state.incarnation
        self.disk = SimDisk() if state is None else SimDisk.of(state.disk)
        self.core: Broker | None = None
        if state is not None and state.core is not None:
            self.core = restore(state.core, self.disk, _LowestDraw())

    def state(self) -> NodeState:
        core = None if self.core is None else snapshot(self.core)
        return NodeState(self.incarnation, self.disk.state(), core)

    def forget(self) -> None:
        """Set the fields that do not affect what the node does to fixed values."""
        if self.core is not None:
            forget(self.core)

    def key(self) -> bytes:
        """Return a hash of 16 bytes of all fields that affect what a node does."""
        core = None if self.core is None else canonical(self.core, timed=False)
        whole = (self.config.node, self.incarnation, self.disk.contents(), core)
        return hashlib.blake2b(_encoder.encode(whole), digest_size=16).digest()

    # -- steps

    def start(self) -> NodeTurn:
        """Start a new process of the node."""
        self.incarnation += 1
        self.disk.open()
        config = msgspec.structs.replace(self.config, incarnation=self.incarnation)
        self.core = Broker(config, self.disk, _LowestDraw(), NOW_US)
        return self._turn([], first=True)

    def deliver(self, source: str, message: Any, body: bytes | None) -> NodeTurn:
        """Deliver a message; a node that is down ignores it."""
        return NodeTurn(self) if self.core is None else self._turn([Deliver(source, message, body)])

    def expire(self, names: tuple[str, ...]) -> NodeTurn:
        """End the waits with these names, as if their time were over."""
        assert self.core is not None
        for name in names:
            expire(self.core, name)
        return self._turn([], first=True)

    def kill(self) -> NodeTurn:
        """Kill the process (SIGKILL); the disk keeps unsynced data."""
        self.core = None
        return NodeTurn(self)

    def power_cut(self) -> NodeTurn:
        """Kill the process and lose all unsynced data."""
        self.core = None
        self.disk.power_cut(0.0)
        return NodeTurn(self)

    def _turn(self, events: list[Event], *, first: bool = False) -> NodeTurn:
        assert self.core is not None
        try:
            turn = take(self.core, NOW_US, events, deadline_us=0, first=first)
        except Exception as error:  # The process ends: that is for the invariants to judge.
            self.core = None
            return NodeTurn(self, error=f"{type(error).__name__}: {error}")
        at = carry_out(turn, self, stop=self._stop)
        node = self
        if at < len(turn.steps):
            if TurnStep.COMMIT in turn.steps[at:]:
                node = ModelNode(self.config, self._before)
            node.core = None
        return NodeTurn(node, tuple(self._messages), tuple(self._events), bool(turn.early))

    # -- the hands of a turn

    def trace(self, events: list[TraceEvent]) -> None:
        self._events += events

    def commit(self, *, flush: bool) -> None:
        if flush:
            self.disk.flush()
        else:
            self.disk.commit()

    def send(self, messages: list[Outgoing]) -> None:
        self._messages += messages


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
