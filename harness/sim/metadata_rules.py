"""Rules about decisions of the controller, and what follows on each broker, from docs/protocols.md
("Controller", "Restart", "Elections, recovery, reassignment, shutdown").

The records before and after a step are compared, whatever function made them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from harness.sim.step import BrokerStep
from node.core.controller import Controller
from node.core.image import BrokerRecord, Image, PartitionRecord
from node.core.protocol import Detection, LeaderBy, RestartRule
from node.formats.messages import AlterPartition, Heartbeat, RegisterBroker, ReplicaLogInfo


class _Decisions(NamedTuple):
    """The decisions of a controller when its last step ended."""

    controller: Controller
    end: int
    since_us: int
    brokers: dict[str, BrokerRecord]
    partitions: dict[str, PartitionRecord]


class MetadataRules:
    """A memory of the decisions of each controller, and of the heartbeats that it got."""

    def __init__(self) -> None:
        self._known: dict[str, _Decisions] = {}
        self._heard: dict[tuple[str, str], int] = {}
        self._held: dict[str, tuple[str, ...]] = {}

    def check(self, s: BrokerStep) -> Iterator[str]:
        """Yield what a step decided, or took over, against the rules."""
        if len(s.core.replicas) != len(self._held.get(s.node, ())):
            yield from self._removed(s)
        if s.r is s.core.quorum.r and s.core.ctx.serving:
            yield from _follows(s)
        active = s.core.controller
        if active is None:
            self._known.pop(s.node, None)
            return
        m, now_us, image = s.message, s.core.ctx.now_us, active.image
        if isinstance(m, Heartbeat | RegisterBroker):
            self._heard[s.node, m.broker] = now_us
        known = self._known.get(s.node)
        if known is not None and known.controller is active:
            if known.end != active.metadata.leo:
                yield from _decided(s, known, image)
            elif isinstance(m, AlterPartition) and _accepts(s, known, m):
                yield f"did not accept ISR {m.isr} of {m.broker} for {m.partition}"
            if isinstance(m, ReplicaLogInfo):
                yield from _counted(s, active, m)
            if m is None:
                yield from self._silent(s, known, image)
            if known.end == active.metadata.leo:
                return
        since_us = now_us if known is None or known.controller is not active else known.since_us
        self._known[s.node] = _Decisions(
            active, active.metadata.leo, since_us, dict(image.brokers), dict(image.partitions)
        )

    def _silent(self, s: BrokerStep, known: _Decisions, image: Image) -> Iterator[str]:
        """Check that a broker which is silent for a session is fenced ("A silent broker")."""
        now_us, session_us = s.core.ctx.now_us, s.core.ctx.config.timings.session_ms * 1000
        if now_us - known.since_us <= 2 * session_us:
            return
        for name, record in image.brokers.items():
            if record.fenced:
                continue
            heard_us = max(self._heard.get((s.node, name), 0), known.since_us)
            if now_us - heard_us > session_us:
                yield f"did not fence {name}, silent for {(now_us - heard_us) // 1000} ms"

    def _removed(self, s: BrokerStep) -> Iterator[str]:
        """Check that nothing stays of a replica that left this broker ("Reassignment")."""
        replicas, held = s.core.replicas, self._held.get(s.node, ())
        self._held[s.node] = tuple(replicas)
        storage = s.core.ctx.storage
        for name in held if s.core.ctx.serving and len(held) > len(replicas) else ():
            if name not in replicas and (
                any(storage.get(f"hw/{name}") or b"") or any(True for _ in storage.batches(name))
            ):
                yield f"removed its replica of {name}, and keeps its log or high watermark"


def _follows(s: BrokerStep) -> Iterator[str]:
    """Check that each replica has the role that the applied metadata gives it ("Roles and
    epochs")."""
    core = s.core
    by_controller = core.protocol.leader_by is LeaderBy.CONTROLLER
    for name, record in core.ctx.image.partitions.items():
        r = core.replicas.get(name)
        if s.node not in record.replicas or (r is not None and r.log.damage is not None):
            continue
        if r is None:
            yield f"has no replica of {name}, which is placed on it"
        elif by_controller:
            role = "leader" if record.leader == s.node else "follower" if record.leader else "none"
            ours = r.leader_epoch, r.role, r.leader, r.replicas
            if r.leader_epoch < record.leader_epoch or (
                r.leader_epoch == record.leader_epoch
                and ours[1:] != (role, record.leader, record.replicas)
            ):
                yield f"has epoch, role, leader and replicas {ours}, and should follow {record}"
            if r.partition_epoch == record.partition_epoch and r.isr != record.isr:
                yield f"takes {r.isr} as the ISR of {name}, which is {record.isr}"


def _decided(s: BrokerStep, known: _Decisions, image: Image) -> Iterator[str]:
    for name, record in image.brokers.items():
        if (was := known.brokers.get(name)) is not record:
            yield from _broker(s, was, record)
    for name, state in image.partitions.items():
        before = known.partitions.get(name)
        if s.core.protocol.leader_by is LeaderBy.CONTROLLER:
            yield from _placed(s, state, image)
            if before is not None and before is not state:
                yield from _changed(s, before, state, image)


def _broker(s: BrokerStep, was: BrokerRecord | None, record: BrokerRecord) -> Iterator[str]:
    """Check the record of a broker: who may change it, and when."""
    m = s.message
    if was is None or was.broker_epoch != record.broker_epoch:
        ours = isinstance(m, RegisterBroker) and m.broker == record.broker
        if not ours or m.incarnation != record.incarnation:
            yield f"registered {record.broker}, which did not ask for it"
        elif was is not None and m.incarnation <= was.incarnation:
            yield f"registered process {m.incarnation} of {m.broker} after {was.incarnation}"
        elif (
            was is not None
            and not was.fenced
            and s.core.protocol.restart is RestartRule.AFTER_FENCING
        ):
            yield f"registered {m.broker}, whose former process is not fenced"
    elif was.fenced and not record.fenced:
        beats = isinstance(m, Heartbeat) and m.broker == record.broker
        if not beats or m.broker_epoch != record.broker_epoch or m.want_shutdown:
            yield f"unfenced {record.broker} without its heartbeat"
        elif m.metadata_offset <= record.broker_epoch:
            yield f"unfenced {record.broker}, which has not applied its registration"


def _placed(s: BrokerStep, state: PartitionRecord, image: Image) -> Iterator[str]:
    """Check who leads and who is in sync, of those who are active."""
    rules, name = s.core.protocol, state.partition
    least = min(state.min_isr, len(state.replicas))
    if state.elr and (not rules.elr or len(state.isr) >= least):
        yield f"keeps ELR {state.elr} of {name} beside ISR {state.isr}, MinISR {least}"
    if state.leader and state.leader not in state.isr:
        yield f"lets {state.leader} lead {name} from outside ISR {state.isr}"
    if rules.detection is not Detection.HEARTBEATS:
        return
    last = not rules.elr and len(state.isr) == 1 and not state.leader
    gone = [each for each in state.isr if not image.is_active(each)]
    if gone and not last:
        yield f"keeps {gone} in ISR {state.isr} of {name}, which are not active"
    able = [*state.isr] if state.isr else [*state.elr]
    # One whose log is damaged may stay the last member without an ELR, and must not lead.
    damaged = not rules.elr and len(state.isr) == 1
    if not state.leader and not damaged and any(image.is_active(each) for each in able):
        yield f"lets nobody lead {name}, with ISR {state.isr} and ELR {state.elr}"


def _changed(s: BrokerStep, b: PartitionRecord, a: PartitionRecord, image: Image) -> Iterator[str]:
    """Check the change of a partition from one record to the next."""
    m, rules, name = s.message, s.core.protocol, a.partition
    another = a.leader != b.leader or not {*b.replicas} <= {*a.replicas}
    rose = a.leader_epoch > b.leader_epoch
    # A step may change a partition twice, for example if a tick fences two brokers.
    once = a.partition_epoch == b.partition_epoch + 1
    stays = once and not another and (a.replicas, a.target) == (b.replicas, b.target)
    if a.leader_epoch < b.leader_epoch or (another and not rose) or (stays and rose):
        was = f"epoch {b.leader_epoch} of {b.leader}"
        yield f"changed {name} from {was} to epoch {a.leader_epoch} of {a.leader}"
    if a.partition_epoch <= b.partition_epoch:
        yield f"changed {name}, and its partition epoch {b.partition_epoch} did not rise"
    proposed: set[str] = set()
    if isinstance(m, AlterPartition) and m.partition == name:
        proposed = {member for member, _ in m.isr}
        if {*a.isr} != {*b.isr} and not _may(s, b, m, image):
            yield f"accepted ISR {m.isr} of {m.broker} for {name}, against the rules"
    if entered := {*a.isr} - {*b.isr} - proposed - {a.leader}:
        yield f"let {sorted(entered)} enter the ISR of {name} without a proposal"
    least = min(a.min_isr, len(a.replicas))
    if rules.elr and once and len(a.isr) < least and b.min_isr == a.min_isr:
        kept = {*a.isr, *a.elr, *a.last_known_elr}
        if left := {*b.isr, *b.elr} & {*a.replicas} - kept:
            yield f"dropped {sorted(left)} from ISR and ELR of {name}, which is below MinISR"
    lost = _lost(s, m, image)
    keeps = lost and name in lost[1] and lost[0] in {*a.isr, *a.elr}
    uncleanly = lost and a.unclean and a.leader == lost[0]
    if lost and keeps and not uncleanly and (rules.elr or a.isr != (lost[0],)):
        yield f"keeps {lost[0]} in ISR {a.isr} or ELR {a.elr} of {name}, and it lost data"


def _lost(s: BrokerStep, m: object, image: Image) -> tuple[str, list[str]] | None:
    """Return a broker that says to have lost data, and the partitions ([]: all) of which."""
    if isinstance(m, Heartbeat) and m.damaged:
        current = image.broker_epoch(m.broker) == m.broker_epoch
        return (m.broker, [*m.damaged]) if current else None
    return None


def _may(s: BrokerStep, state: PartitionRecord, m: AlterPartition, image: Image) -> bool:
    """Return whether the ISR that a leader proposes may be accepted ("AlterPartition")."""
    epochs = m.leader_epoch, m.partition_epoch, m.broker
    if epochs != (state.leader_epoch, state.partition_epoch, state.leader):
        return False
    names = [name for name, _ in m.isr]
    if m.broker_epoch != image.broker_epoch(m.broker) or m.broker not in names:
        return False
    if len({*names}) != len(names) or not {*names} <= {*state.replicas}:
        return False
    silence = s.core.protocol.detection is Detection.HEARTBEATS
    for name, epoch in m.isr:
        if (silence or name not in state.isr) and (
            not image.is_active(name) or epoch not in (-1, image.broker_epoch(name))
        ):
            return False
    return True


def _accepts(s: BrokerStep, known: _Decisions, m: AlterPartition) -> bool:
    """Return whether a proposal that changed nothing should have been accepted."""
    state = known.partitions.get(m.partition)
    assert s.core.controller is not None
    return state is not None and _may(s, state, m, s.core.controller.image)


def _counted(s: BrokerStep, active: Controller, m: ReplicaLogInfo) -> Iterator[str]:
    """Check what counts as the log of a replica that may be elected to recover a partition."""
    question = active._recovery._open.get(m.partition)
    found = {} if question is None else question.answers
    if s.source not in found:
        return
    current = m.broker_epoch == active.image.broker_epoch(s.source)
    if not current and found[s.source] == (m.last_epoch, m.end_offset):
        yield f"counts the log of {s.source} that an earlier process stated"
    elif current and found[s.source] != (m.last_epoch, m.end_offset):
        said = m.last_epoch, m.end_offset
        yield f"counts {found[s.source]} as epoch and end of {s.source}, which stated {said}"
