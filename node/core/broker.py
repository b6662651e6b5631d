"""One node: it hands each event to the part that handles it, and keeps the parts' timers.

    effects = broker.step(now_us, event)

A node is a broker (has data partitions), a voter of the metadata partition, or both; every node
replicates the metadata partition. Messages are handled on `Deliver`, everything that depends on
time on `Tick`, which a world steps once after it has drained the inbox: a node that was paused
reads its messages before it concludes anything from silence."""

from __future__ import annotations

import heapq
from typing import Final

from node.core import (
    bugs,
    follower,
    idle,
    isr_change,
    leader,
    partitions,
    protocol,
    recovery,
    truncation,
)
from node.core import controller as controlling
from node.core.api import Deliver, Effects, Event, NodeConfig, Shutdown, Tick
from node.core.context import Context, Jitter
from node.core.groups.coordinator import Coordinator
from node.core.image import Image, PartitionRecord, Record, fold
from node.core.membership import Membership
from node.core.protocol import RestartRule
from node.core.quorum import Quorum
from node.core.replica import NEVER, Replica, load
from node.core.serve import refuse_fetch
from node.core.storage import Storage
from node.formats.errors import DamagedStore, WireError
from node.formats.messages import (
    CONSUMER,
    AlterPartitionResponse,
    AnyMessage,
    AppendEntries,
    AppendResponse,
    BeginQuorumEpoch,
    ControllerRequest,
    EpochEndRequest,
    EpochEndResponse,
    Error,
    FetchRequest,
    FetchResponse,
    GroupHeartbeat,
    HeartbeatResponse,
    MetadataRequest,
    MetadataResponse,
    OffsetCommit,
    OffsetFetch,
    PartitionNotification,
    ProduceRequest,
    ProduceResponse,
    RegisterBrokerResponse,
    ReplicaLogInfoRequest,
    ReportLeader,
    VoteRequest,
    VoteResponse,
)
from node.formats.trace import (
    CONTROLLER,
    DAMAGED,
    GROUPS_PARTITION,
    METADATA_PARTITION,
    REFUSED,
    STARTED,
    STOPPED,
    TraceEvent,
)

_FIRST_KEY: Final = "first_process"


class Broker:
    """The core of one node (docs/architecture.md#the-contract-of-a-broker). The same inputs give
    the same effects, bit for bit."""

    def __init__(self, config: NodeConfig, storage: Storage, jitter: Jitter, now_us: int) -> None:
        self.ctx = ctx = Context(config, storage, bugs.parse(config.bugs), jitter, now_us)
        rules = protocol.in_format(
            protocol.protocol(config.protocol), record_epochs=config.record_epochs
        )
        self.protocol = bugs.apply_bugs(rules, ctx.bugs)
        timings = config.timings
        idle.check(self.protocol, idle_wait_ms=timings.idle_wait_ms, lag_ms=timings.lag_ms)
        self.replicas: dict[str, Replica] = {}
        ctx.disk_emptied = _disk_emptied(ctx)
        metadata = load(ctx, METADATA_PARTITION, protocol.METADATA_PROTOCOL, durable=True)
        self.quorum = Quorum(ctx, metadata, config.voters)
        self.quorums = {METADATA_PARTITION: self.quorum}
        self.controller: controlling.Controller | None = None
        self.coordinator: Coordinator | None = None
        self.membership = Membership(ctx) if config.node in config.brokers else None
        self._applied = metadata.log.start
        self._metadata_seen: tuple[int, int, str, str] | None = None
        self._touched: dict[str, None] = {}
        self._term = -1
        # A heap of (wake_us, name), and the latest entry of each name. Older entries of a name
        # are out of date; they are skipped when their time comes.
        self._due: list[tuple[int, str]] = []
        self._armed: dict[str, int] = {}
        self._controller_us = NEVER
        self._checkpoint_us = NEVER
        self._flush_us = now_us if config.flush_interval_ms else NEVER
        self._begun = False
        self._stopping = False
        self._shutdown_membership: Membership | None = None

    def step(self, now_us: int, event: Event) -> Effects:
        """Handle one event at `now_us` and return the effects for the world to carry out."""
        ctx = self.ctx
        assert now_us >= ctx.now_us, (now_us, ctx.now_us)
        ctx.now_us = now_us
        before = ctx.effects
        ctx.effects = effects = Effects()
        if not self._begun:
            self._begin(before.trace)
        ctx.more = isinstance(event, Deliver) and event.more
        try:
            self._handle(event)
        except DamagedStore as error:
            self._set_aside(error)
        if not ctx.more:
            effects.deadline_us = self._deadline()
        return effects

    def _handle(self, event: Event) -> None:
        ctx = self.ctx
        if isinstance(event, Deliver):
            try:
                self._dispatch(event.source, event.message, event.body)
            except WireError as error:  # a broker never dies of a message
                kind = str(event.message.__struct_config__.tag)
                ctx.trace(REFUSED, kind=kind, source=event.source, reason=str(error))
        elif isinstance(event, Tick):
            self._tick()
        else:
            assert isinstance(event, Shutdown)
            self._ask_to_stop()
        if ctx.appended and not ctx.more:
            self._serve_appended()
        if self.controller is not None:
            self.controller.settle(ctx)
        self._follow_metadata()
        if self._touched:
            self._arm_touched()
        groups = self.replicas.get(GROUPS_PARTITION)
        if self.coordinator is not None or groups is not None:
            self.coordinator = self.coordinator or Coordinator()
            self.coordinator.settle(ctx, groups)
        asked = self._shutdown_membership
        if self._stopping and (asked is None or asked.may_stop):
            self._shut_down()

    def _serve_appended(self) -> None:
        appended, self.ctx.appended = self.ctx.appended, {}
        for r in appended.values():
            self._touched[r.partition] = None
            leader.serve_appended(self.ctx, r)

    def _set_aside(self, error: DamagedStore) -> None:
        """Take a data replica whose disk returned damaged data out of service. Raises `error` if
        the node cannot go on without that data."""
        r = self.replicas.get(error.partition)
        if r is None or r.log.damage is None:
            raise error
        self._touched[r.partition] = None
        quorum = self.quorums.get(r.partition)
        if quorum is None:
            partitions.set_aside(self.ctx, r, r.log.damage)
        else:
            quorum.set_aside(self.ctx, r.log.damage)
        self._tell_damage()
        self._follow_metadata()
        self._arm_touched()

    def _tell_damage(self) -> None:
        if self.membership is not None:
            damaged = [
                name
                for name, r in self.replicas.items()
                if r.log.damage is not None and name not in self.quorums
            ]
            self.membership.tell_damage(self.ctx, damaged)

    def _begin(self, found: list[TraceEvent]) -> None:
        """Trace the start, then what was `found` on the disk."""
        ctx, self._begun = self.ctx, True
        ctx.trace(
            STARTED,
            protocol=ctx.config.protocol,
            bugs=list(ctx.config.bugs),
            clean=ctx.storage.clean,
        )
        ctx.effects.trace.extend(found)
        self.quorum.start(ctx)

    # -- messages -------------------------------------------------------------------------------

    def _dispatch(self, source: str, message: AnyMessage, body: bytes | None) -> None:
        """Hand a message to the part of the node that handles it. Raises WireError if none does."""
        ctx = self.ctx
        match message:
            case FetchRequest():
                self._on_fetch(source, message)
            case FetchResponse(partition=name):
                if quorum := self._touch_quorum(name):
                    quorum.on_fetch_response(ctx, source, message, body)
                elif r := self._touch(name):
                    follower.on_response(ctx, r, source, message, body)
            case ProduceRequest():
                self._produce(source, message, body)
            case EpochEndRequest(partition=name):
                if r := self._touch(name):
                    truncation.on_request(ctx, r, source, message)
            case EpochEndResponse(partition=name):
                if r := self._touch(name):
                    follower.on_epoch_end(ctx, r, source, message)
            case AppendEntries(partition=name):
                if quorum := self._touch_quorum(name):
                    quorum.on_append(ctx, source, message, body)
            case AppendResponse(partition=name):
                if quorum := self._touch_quorum(name):
                    quorum.on_append_response(ctx, source, message)
            case PartitionNotification(partition=name):
                if r := self._touch(name):
                    idle.on_notification(ctx, r, source)
            case ReportLeader():
                if self.controller is not None:
                    expires_us = self.controller.on_report(ctx, message)
                    self._controller_us = min(self._controller_us, expires_us)
            case AlterPartitionResponse(partition=name):
                if r := self._touch(name):
                    isr_change.on_response(ctx, r, message)
            case MetadataRequest():
                self._answer_metadata(source, message)
            case VoteRequest() | VoteResponse() | BeginQuorumEpoch():
                if quorum := self._touch_quorum(message.partition):
                    quorum.on_message(ctx, source, message)
            case RegisterBrokerResponse() if self.membership is not None:
                self.membership.on_registered(ctx, message)
            case HeartbeatResponse() if self.membership is not None:
                self.membership.on_heartbeat(ctx, message)
            case ReplicaLogInfoRequest(partition=name):
                if r := self._touch(name):
                    recovery.on_request(ctx, r, source, message)
            case _ if isinstance(message, ControllerRequest):
                self._to_controller(source, message)
            case GroupHeartbeat() | OffsetCommit() | OffsetFetch():
                coordinator = self.coordinator or Coordinator()
                coordinator.on_request(ctx, self._touch(GROUPS_PARTITION), source, message)
            case _:
                raise WireError("a node of this role does not take such a message")

    def _on_fetch(self, source: str, message: FetchRequest) -> None:
        if message.replica == CONSUMER and message.partition == GROUPS_PARTITION:
            refuse_fetch(self.ctx, source, message, Error.UNKNOWN_PARTITION, None)
        elif quorum := self._touch_quorum(message.partition):
            quorum.on_fetch(self.ctx, source, message)
        elif r := self._touch(message.partition):
            leader.on_fetch(self.ctx, r, source, message)
        else:
            refuse_fetch(self.ctx, source, message, Error.UNKNOWN_PARTITION, None)

    def _touch_quorum(self, name: str) -> Quorum | None:
        """Return the election state of a local partition whose replicas vote, else None; its timer
        is set again after this step."""
        quorum = self.quorums.get(name)
        if quorum is not None and quorum is not self.quorum:
            self._touched[name] = None  # that of the metadata is looked at after every step
        return quorum

    def _touch(self, name: str) -> Replica | None:
        """Return a data replica that may serve, else None; its timer is set again after this
        step."""
        r = self.replicas.get(name) if self.ctx.serving else None
        if r is not None:
            self._touched[name] = None
        return r

    def _produce(self, source: str, message: ProduceRequest, body: bytes | None) -> None:
        r = self._touch(message.partition)
        if r is not None and message.partition != GROUPS_PARTITION:
            leader.on_produce(self.ctx, r, source, message, body)
        elif message.acks != 0:
            self.ctx.send(
                source,
                ProduceResponse(
                    corr=message.corr, partition=message.partition, error=Error.UNKNOWN_PARTITION
                ),
            )

    def _answer_metadata(self, source: str, message: MetadataRequest) -> None:
        leaders = {
            name: (state.leader, state.leader_epoch)
            for name, state in self.ctx.image.partitions.items()
        }
        for name, quorum in self.quorums.items():
            if name in leaders:
                leaders[name] = (quorum.r.leader, quorum.r.leader_epoch)
        self.ctx.send(source, MetadataResponse(corr=message.corr, leaders=leaders))

    def _to_controller(self, source: str, message: ControllerRequest) -> None:
        ctx, active = self.ctx, self.controller
        if active is None:
            refusal = controlling.not_controller(message, self.quorum.r.leader)
            if refusal is not None:
                ctx.send(source, refusal)
            return
        self._controller_us = min(self._controller_us, active.on_request(ctx, source, message))

    # -- metadata -------------------------------------------------------------------------------

    def _follow_metadata(self) -> None:
        """Apply committed metadata to the image, take roles from it, and become the controller if a
        record of this voter's own term has committed."""
        ctx, metadata = self.ctx, self.quorum.r
        seen = (metadata.hw, metadata.leader_epoch, metadata.role, metadata.leader)
        if seen != self._metadata_seen:
            self._metadata_seen = seen
            ctx.controller = "" if metadata.role == "candidate" else metadata.leader
            self._watch_controllership()
            changed = {
                record.partition: record
                for record in self._newly_committed()
                if isinstance(record, PartitionRecord)
            }
            if self.membership is not None and (changed or not self.ctx.serving):
                self._take_roles(changed)
        elif not self.ctx.serving and self.membership is not None:
            self._take_roles({})

    def _arm_touched(self) -> None:
        for name in self._touched:
            self.arm(name)
        self._touched.clear()

    def put_off(self, now_us: int) -> int:
        """Return the time of the next tick that has work to do. A deadline that was set for work
        which is done already moves to the next one."""
        metadata = self.quorum.r
        if metadata.role == "leader" and metadata.wake_us <= now_us:
            metadata.wake_us = leader.next_us(metadata)
        while self._due and self._due[0][0] <= now_us:
            wake_us, name = self._due[0]
            if self._wake_us(name) == wake_us:
                if name in self.quorums:
                    break
                r = self.replicas[name]
                r.wake_us = leader.next_us(r) if r.role == "leader" else follower.next_us(r)
                if r.wake_us <= now_us:
                    break
            self._next_due()
            self.arm(name)
        return self._deadline()

    def arm(self, name: str) -> None:
        """Set the timer of the replica of partition `name` to the time of its next action."""
        wake_us = self._wake_us(name)
        if wake_us < NEVER and self._armed.get(name) != wake_us:
            self._armed[name] = wake_us
            heapq.heappush(self._due, (wake_us, name))

    def _wake_us(self, name: str) -> int:
        r = self.replicas.get(name)
        if r is None:
            return NEVER
        quorum = self.quorums.get(name)
        return r.wake_us if quorum is None else quorum.next_us()

    def _newly_committed(self) -> list[Record]:
        """Apply the metadata that committed since the last call; return its records."""
        metadata = self.quorum.r
        records = fold(metadata.log, self.ctx.image, self._applied, metadata.hw)
        self._applied = max(self._applied, metadata.hw)
        if metadata.role == "leader":
            for record in records:
                controlling.trace_committed(self.ctx, record)
        return records

    def _watch_controllership(self) -> None:
        ctx, metadata = self.ctx, self.quorum.r
        leads = metadata.role == "leader" and metadata.hw > metadata.leso
        if leads and (self.controller is None or self._term != metadata.leader_epoch):
            image = Image()
            fold(metadata.log, image, metadata.log.start, metadata.leo)
            self.controller = controlling.Controller(ctx, self.protocol, metadata, image)
            self._term = metadata.leader_epoch
            self._controller_us = ctx.now_us
            ctx.trace(CONTROLLER, state="active", term=self._term)
        elif not leads and self.controller is not None:
            self.controller = None
            self._controller_us = NEVER
            ctx.trace(CONTROLLER, state="resigned", term=self._term)

    def _take_roles(self, changed: dict[str, PartitionRecord]) -> None:
        """Give the replicas their roles, once this process is registered in the applied image."""
        ctx = self.ctx
        if not ctx.serving:
            if ctx.broker_epoch < 0 or ctx.image.broker_epoch(ctx.node) != ctx.broker_epoch:
                return
            changed = dict(ctx.image.partitions)
            partitions.delete_orphans(ctx, self.protocol)
        for r in partitions.apply(
            ctx, self.replicas, self.quorums, changed.values(), self.protocol
        ):
            self._touched[r.partition] = None
        ctx.serving = True
        self._tell_damage()

    # -- time -----------------------------------------------------------------------------------

    def _tick(self) -> None:
        ctx, now = self.ctx, self.ctx.now_us
        self.quorum.tick(ctx)
        active = self.controller if self.quorum.r.role == "leader" else None
        if active is not None and self._controller_us <= now:
            self._controller_us = active.tick(ctx)
        if self.membership is not None:
            self.membership.tick(ctx, self._applied)
        if self.coordinator is not None and self.coordinator.wake_us <= now:
            self.coordinator.tick(ctx, self.replicas.get(GROUPS_PARTITION))
        while self._due and self._due[0][0] <= now:
            wake_us, name = self._next_due()
            if self._wake_us(name) != wake_us:
                continue
            r, quorum = self.replicas[name], self.quorums.get(name)
            if quorum is not None:
                quorum.tick(ctx)
            else:
                part = leader if r.role == "leader" else follower
                r.wake_us = part.tick(ctx, r)
            self._touched[name] = None
        if self._checkpoint_us <= now:
            self._checkpoint_us = NEVER
            self._checkpoint()
        if self._flush_us <= now:
            self._flush_us = now + ctx.config.flush_interval_ms * 1000
            ctx.effects.flush = True

    def _next_due(self) -> tuple[int, str]:
        wake_us, name = heapq.heappop(self._due)
        if self._armed.get(name) == wake_us:
            del self._armed[name]
        return wake_us, name

    def _checkpoint(self) -> None:
        for r in (*self.replicas.values(), self.quorum.r):
            r.save_hw(self.ctx)

    def _deadline(self) -> int:
        ctx = self.ctx
        if ctx.hw_moved:
            # Without a change there is no checkpoint: an idle cluster writes nothing.
            ctx.hw_moved = False
            interval_us = ctx.config.timings.hw_checkpoint_ms * 1000
            self._checkpoint_us = min(self._checkpoint_us, ctx.now_us + interval_us)
        while self._due:
            wake_us, name = self._due[0]
            if self._wake_us(name) == wake_us:
                break
            self._next_due()
        # Compared one by one: this runs after every step, and `min` takes three times as long.
        next_us = self.quorum.next_us()
        if self._due and self._due[0][0] < next_us:
            next_us = self._due[0][0]
        if self.membership is not None and self.membership.next_us < next_us:
            next_us = self.membership.next_us
        if self._controller_us < next_us:
            next_us = self._controller_us
        if self.coordinator is not None and self.coordinator.wake_us < next_us:
            next_us = self.coordinator.wake_us
        if self._checkpoint_us < next_us:
            next_us = self._checkpoint_us
        if self._flush_us < next_us:
            next_us = self._flush_us
        return next_us

    def _ask_to_stop(self) -> None:
        """Ask the controller to move leadership away first. If a restart leaves ISR and leader as
        they are (`RestartRule.AT_ONCE`), the broker stops without asking."""
        self._stopping = True
        if self.membership is not None and self.protocol.restart is not RestartRule.AT_ONCE:
            self._shutdown_membership = self.membership
            self.membership.ask_to_stop(self.ctx)

    def _shut_down(self) -> None:
        if self.coordinator is not None:
            self.coordinator.resign(self.ctx, self.replicas.get(GROUPS_PARTITION))
        for r in self.replicas.values():
            if r.role == "leader":
                leader.resign(self.ctx, r)
        self._checkpoint()
        self.ctx.effects.flush = True
        self.ctx.effects.stopped = True
        self.ctx.trace(STOPPED)


def _disk_emptied(ctx: Context) -> bool:
    """Return whether a process other than the node's first began with an empty disk. The first
    process of a disk leaves its number there."""
    incarnation, saved = ctx.config.incarnation, ctx.stored(_FIRST_KEY)
    if saved == b"":
        return True
    if saved is None:
        ctx.storage.put(_FIRST_KEY, incarnation.to_bytes(8, "big"), durable=True)
    if saved is None and incarnation > 1:
        what = f"the disk is empty, and this is process {incarnation}"
        ctx.trace(DAMAGED, offset=-1, key=_FIRST_KEY, what=what)
    first = incarnation if saved is None else int.from_bytes(saved[:8], "big")
    return first > 1
