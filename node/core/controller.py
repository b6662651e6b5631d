"""The controller: the one voter that leads the metadata partition, and its decisions.

Every change is a batch of records in the metadata log. It takes effect, and is answered, only when
it is committed there, so a deposed controller changes nothing. Decisions build on `image`, which
includes records that are appended but not committed yet. See docs/protocols.md."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from msgspec.structs import replace

from node.core import admin, election
from node.core import batch as batches
from node.core.context import Context
from node.core.high_watermark import advance_hw
from node.core.image import (
    BrokerRecord,
    Image,
    PartitionRecord,
    Record,
    encode_records,
    epochs_from_offsets,
)
from node.core.leader import append
from node.core.leader_reports import Witnesses
from node.core.protocol import Detection, LeaderBy, Protocol, RestartRule
from node.core.recovery import Recovery
from node.core.replica import Replica
from node.formats.messages import (
    AdminRequest,
    AdminResponse,
    AlterPartition,
    AlterPartitionResponse,
    AnyMessage,
    ControllerRequest,
    Error,
    Heartbeat,
    HeartbeatResponse,
    RegisterBroker,
    RegisterBrokerResponse,
    ReplicaLogInfo,
    ReportLeader,
)
from node.formats.trace import BROKER, PARTITION


class Controller:
    """The state of an active controller: made when its voter's term commits its first record,
    dropped when that voter leads no longer.

    `image` is the metadata log applied up to its end. `applied` is the metadata offset up to which
    each broker has applied the log. `_heard_us` is the time of each broker's last heartbeat that
    had applied the log up to `_must_apply`: older ones do not prove that the broker still gets
    metadata."""

    def __init__(self, ctx: Context, protocol: Protocol, metadata: Replica, image: Image) -> None:
        self._protocol = protocol
        self._bugs = ctx.bugs
        appoints = protocol.leader_by is LeaderBy.CONTROLLER
        self._rules = election.Rules(
            elr=protocol.elr,
            unclean=appoints and ctx.config.unclean_election,
            any_replica=appoints and ctx.bugs.elect_any_replica,
            drops_first=ctx.bugs.reassign_drops_first,
            keeps_elr=ctx.bugs.keep_elr_at_min_isr,
        )
        self.metadata = metadata
        self.image = image
        # Silence counts only from the moment this controller began.
        self._heard_us = dict.fromkeys(image.brokers, ctx.now_us)
        self._must_apply = dict.fromkeys(image.brokers, metadata.leo)
        self.applied = dict.fromkeys(image.brokers, 0)
        self._leaves_at: dict[str, int] = {}
        self._recovery = Recovery()
        self._replies: deque[tuple[int, str, AnyMessage]] = deque()
        self._witnesses = Witnesses()

    # -- log ------------------------------------------------------------------------------------

    def _append(self, ctx: Context, records: list[Record]) -> int:
        """Append records as one batch and apply them. Return the log end after them."""
        r = self.metadata
        if self._protocol.epochs_are_offsets:
            records = epochs_from_offsets(records, r.leo, self.image)
        payload = encode_records(records)
        _, end = append(ctx, r, batches.view(batches.build(len(records), payload)))
        for record in records:
            self.image.apply(record)
        return end

    def _reply(self, to: str, message: AnyMessage, end: int | None = None) -> None:
        """Answer when the log is committed up to `end` (None: its present end)."""
        self._replies.append((self.metadata.leo if end is None else end, to, message))

    def settle(self, ctx: Context) -> None:
        """Advance the metadata's high watermark, and send the answers that waited for it."""
        advance_hw(ctx, self.metadata)
        while self._replies and self._replies[0][0] <= self.metadata.hw:
            _, to, message = self._replies.popleft()
            ctx.send(to, message)

    def on_request(self, ctx: Context, source: str, message: ControllerRequest) -> int:
        """Handle a request to the controller. Return the next deadline in microseconds."""
        match message:
            case RegisterBroker():
                self.on_register(ctx, source, message)
            case Heartbeat():
                self.on_heartbeat(ctx, source, message)
            case AlterPartition():
                self.on_alter(ctx, source, message)
            case ReplicaLogInfo():
                self.on_log_info(ctx, source, message)
            case _:
                self.on_admin(ctx, source, message)
        session_us = ctx.config.timings.session_ms * 1000
        return min(ctx.now_us + session_us, self._recovery.next_us())

    # -- brokers --------------------------------------------------------------------------------

    def on_register(self, ctx: Context, source: str, request: RegisterBroker) -> None:
        """Register a new process of a broker if the broker is unknown or fenced, or the protocol
        asks for no fencing first; answer a process that asks again as before; refuse any other."""
        known = self.image.brokers.get(request.broker)
        response = RegisterBrokerResponse(corr=request.corr, incarnation=request.incarnation)
        if known is not None and known.incarnation == request.incarnation:
            self._reply(source, replace(response, broker_epoch=known.broker_epoch))
            return
        at_once = self._protocol.restart is RestartRule.AT_ONCE
        stale = known is not None and request.incarnation < known.incarnation
        if stale or (known is not None and not known.fenced and not at_once):
            self._reply(source, replace(response, error=Error.DUPLICATE_REGISTRATION))
            return
        epoch = self.metadata.leo
        record = BrokerRecord(
            broker=request.broker,
            broker_epoch=epoch,
            incarnation=request.incarnation,
            fenced=not at_once or known is None or known.fenced,
        )
        records: list[Record] = [record]
        unclean = known is not None and request.intact_since > known.incarnation
        if unclean and not at_once and not ctx.bugs.unclean_as_clean:
            # An unclean restart may have lost anything: out of ISR, ELR and leadership.
            records += self._without_broker(request.broker, lost_data=True)
        self._must_apply[request.broker] = self._append(ctx, records)
        self._heard_us[request.broker] = ctx.now_us
        self._reply(source, replace(response, broker_epoch=epoch))

    def on_heartbeat(self, ctx: Context, source: str, beat: Heartbeat) -> None:
        """Note that a broker lives; unfence it once it has applied the record that registered or
        fenced it."""
        known = self.image.brokers.get(beat.broker)
        if known is None or known.broker_epoch != beat.broker_epoch:
            self._reply(source, HeartbeatResponse(corr=beat.corr, error=Error.STALE_BROKER_EPOCH))
            return
        if beat.damaged:
            self._on_damage(ctx, beat)
        self.applied[beat.broker] = beat.metadata_offset
        learns = beat.metadata_offset >= self._must_apply[beat.broker]
        if learns:
            self._heard_us[beat.broker] = ctx.now_us
        if beat.want_shutdown:
            self._on_shutdown(ctx, known)
        elif known.fenced and not known.stopping and learns:
            self._unfence(ctx, known)
        if learns:
            self._must_apply[beat.broker] = max(self._must_apply[beat.broker], self.metadata.hw)
        known = self.image.brokers[beat.broker]
        self._reply(
            source,
            HeartbeatResponse(
                corr=beat.corr,
                broker_epoch=beat.broker_epoch,
                fenced=known.fenced,
                should_shutdown=known.stopping and known.fenced,
            ),
        )

    def _on_damage(self, ctx: Context, beat: Heartbeat) -> None:
        """Take a broker out of ISR, ELR and leadership of the partitions whose logs it reports as
        damaged, until it has caught up again."""
        if self._protocol.leader_by is not LeaderBy.CONTROLLER:
            return
        records: list[Record] = []
        records += self._without_broker(beat.broker, beat.damaged, lost_data=True)
        if records:
            self._append(ctx, records)

    def _on_shutdown(self, ctx: Context, broker: BrokerRecord) -> None:
        """Lead a broker through its shutdown. First it leaves leadership and ISRs; when every other
        active broker has applied that, it is fenced, and its next heartbeat lets it stop."""
        if not broker.stopping:
            records: list[Record] = [replace(broker, stopping=True)]
            records += self._without_broker(broker.broker)
            self._leaves_at[broker.broker] = self._append(ctx, records)
        elif not broker.fenced:
            # An earlier controller moved its leaderships away, at an offset not known here.
            leaves_at = self._leaves_at.setdefault(broker.broker, self.metadata.leo)
            others = self.image.active(self.image.brokers)
            if all(self.applied[name] >= leaves_at for name in others):
                self._append(ctx, [replace(broker, fenced=True)])

    def _fence(self, ctx: Context, broker: BrokerRecord) -> None:
        """Remove a silent broker from every ISR and leadership, in one batch. It comes back only
        when it has applied that, so a broker that receives nothing does not flap."""
        records: list[Record] = [replace(broker, fenced=True)]
        if self._protocol.detection is Detection.HEARTBEATS:
            records += self._without_broker(broker.broker)
        self._must_apply[broker.broker] = self._append(ctx, records)

    def _without_broker(
        self, broker: str, names: Iterable[str] | None = None, *, lost_data: bool = False
    ) -> list[PartitionRecord]:
        """Return the new record of each partition that must change because `broker` left; `names`
        are the partitions that it left (None: all)."""
        partitions = self.image.partitions
        found = [partitions[n] for n in (partitions if names is None else names) if n in partitions]
        changes = (
            election.broker_left(
                state, broker, self.image.is_active, self._rules, lost_data=lost_data
            )
            for state in found
            if broker in state.isr or broker == state.leader or (lost_data and broker in state.elr)
        )
        return [change for change in changes if change is not None]

    def _unfence(self, ctx: Context, broker: BrokerRecord) -> None:
        """Make a broker active and elect leaders of partitions that have none, in one batch: a
        controller that took over after the first of two would not hold the elections."""
        records: list[Record] = [replace(broker, fenced=False)]
        for state in self.image.partitions.values():
            change = election.broker_came(
                state, lambda n: n == broker.broker or self.image.is_active(n), self._rules
            )
            if change is not None:
                records.append(change)
        self._append(ctx, records)
        self._recovery.look(ctx, self.image)

    # -- partitions -----------------------------------------------------------------------------

    def on_alter(self, ctx: Context, source: str, request: AlterPartition) -> None:
        """Accept or refuse the ISR that a leader proposes."""
        state = self.image.partitions.get(request.partition)
        error = self._check_alter(state, request)
        if state is None:
            self._answer_alter(source, request, None, error)
            return
        if not error:
            members = [member for member, _ in request.isr]
            state = election.isr_accepted(state, members, self.image.is_active, self._rules)
            self._append(ctx, [state])
        elif error is Error.INELIGIBLE_REPLICA:
            state = election.isr_refused(state)
            self._append(ctx, [state])
        self._answer_alter(source, request, self.image.partitions[request.partition], error)

    def _check_alter(self, state: PartitionRecord | None, request: AlterPartition) -> Error:
        """Return why a proposal is refused, tested in Kafka's order; NONE if it is not."""
        if state is None:
            return Error.UNKNOWN_PARTITION
        if request.leader_epoch > state.leader_epoch:
            return Error.NOT_CONTROLLER
        if request.partition_epoch > state.partition_epoch:
            return Error.NOT_CONTROLLER
        if request.leader_epoch < state.leader_epoch:
            return Error.FENCED_LEADER_EPOCH
        stale = request.partition_epoch < state.partition_epoch
        if stale and not self._bugs.no_partition_epoch_test:
            return Error.INVALID_UPDATE_VERSION
        if self.image.broker_epoch(request.broker) != request.broker_epoch:
            return Error.STALE_BROKER_EPOCH
        members = [member for member, _ in request.isr]
        if request.broker != state.leader or request.broker not in members:
            return Error.INVALID_REQUEST
        if len(set(members)) != len(members) or not set(members) <= set(state.replicas):
            return Error.INVALID_REQUEST
        silence_counts = self._protocol.detection is Detection.HEARTBEATS
        for member, epoch in request.isr:
            if member in state.isr and not silence_counts:
                continue
            if not self.image.is_active(member) and not self._bugs.expand_fenced:
                return Error.INELIGIBLE_REPLICA
            stale = epoch >= 0 and epoch != self.image.broker_epoch(member)
            if stale and not self._bugs.expand_stale_process:
                return Error.INELIGIBLE_REPLICA
        return Error.NONE

    def _answer_alter(
        self, to: str, request: AlterPartition, state: PartitionRecord | None, error: Error
    ) -> None:
        self._reply(
            to,
            AlterPartitionResponse(
                corr=request.corr,
                partition=request.partition,
                error=error,
                request_epoch=request.partition_epoch,
                isr=state.isr if state else (),
                leader=state.leader if state else "",
                leader_epoch=state.leader_epoch if state else -1,
                partition_epoch=state.partition_epoch if state else -1,
            ),
        )

    def on_log_info(self, ctx: Context, source: str, info: ReplicaLogInfo) -> None:
        """Note the log end of a member of a last-known ELR; when all members have answered, elect
        the one with the longest log."""
        best = self._recovery.on_info(self.image, source, info)
        if best is not None:
            state = self.image.partitions[info.partition]
            record = election.recovered(state, best, self.image.is_active, self._rules)
            assert record is not None, state
            self._append(ctx, [record])

    def on_admin(self, ctx: Context, source: str, request: AdminRequest) -> None:
        """Carry out an admin command, and answer it when its change is committed."""
        decision = admin.decide(self.image, request, self._protocol, self._rules, ctx.jitter)
        if decision.records:
            self._append(ctx, [*decision.records])
        self._reply(
            source, AdminResponse(corr=request.corr, error=decision.error, detail=decision.detail)
        )

    # -- leader reports ---------------------------------------------------------------------------

    def on_report(self, ctx: Context, report: ReportLeader) -> int:
        """Note a follower's report that its leader does not answer; replace the leader after enough
        reports. Return when the next reports expire, in microseconds."""
        state = self.image.partitions.get(report.partition)
        if state is not None and self._witnesses.count(ctx, state, report):
            change = election.leader_reported(
                state, self.image.is_active, self._leads(), self._rules
            )
            if change is not None:
                self._append(ctx, [change])
                self._witnesses.settled(report.partition)
        return self._witnesses.next_us()

    def _leads(self) -> dict[str, int]:
        load = dict.fromkeys(self.image.brokers, 0)
        for state in self.image.partitions.values():
            load[state.leader] = load.get(state.leader, 0) + 1
        return load

    # -- time -----------------------------------------------------------------------------------

    def tick(self, ctx: Context) -> int:
        """Fence silent brokers, drop expired reports, and drive recoveries. Return the next
        deadline in microseconds."""
        session_us = ctx.config.timings.session_ms * 1000
        deadline = self._witnesses.expire(ctx)
        for broker in list(self.image.brokers.values()):
            if broker.fenced:
                continue
            silent_at = self._heard_us[broker.broker] + session_us
            if silent_at <= ctx.now_us:
                self._fence(ctx, broker)
            else:
                deadline = min(deadline, silent_at)
        return min(deadline, self._recovery.look(ctx, self.image))


def trace_committed(ctx: Context, record: Record) -> None:
    if isinstance(record, BrokerRecord):
        state = "fenced" if record.fenced else "stopping" if record.stopping else "unfenced"
        ctx.trace(BROKER, broker=record.broker, broker_epoch=record.broker_epoch, state=state)
    elif isinstance(record, PartitionRecord):
        ctx.trace(
            PARTITION,
            record.partition,
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            isr=list(record.isr),
            elr=list(record.elr),
            last_known_elr=list(record.last_known_elr),
            replicas=list(record.replicas),
            unclean=record.unclean,
            adding=list(record.adding),
            removing=list(record.removing),
            min_isr=record.min_isr,
        )


def not_controller(message: ControllerRequest, hint: str) -> AnyMessage | None:
    """Return the answer of a node that is not the active controller: `hint` is the voter to ask
    instead. None for a message that wants no answer."""
    error = Error.NOT_CONTROLLER
    match message:
        case RegisterBroker():
            return RegisterBrokerResponse(
                corr=message.corr, incarnation=message.incarnation, error=error, leader=hint
            )
        case Heartbeat():
            return HeartbeatResponse(corr=message.corr, error=error, leader=hint)
        case AlterPartition():
            return AlterPartitionResponse(
                corr=message.corr,
                partition=message.partition,
                error=error,
                request_epoch=message.partition_epoch,
                leader=hint,
            )
        case ReplicaLogInfo():
            return None
        case _:
            return AdminResponse(corr=message.corr, error=error, leader=hint)
