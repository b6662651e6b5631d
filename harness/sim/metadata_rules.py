"""Rules about decisions of the controller, and what follows on each broker, from docs/protocols.md
("Controller", "Restart", "Elections, recovery, reassignment, shutdown").

The records before and after a step are compared, whatever function made them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from harness.sim.request_rules import RequestRules
from harness.sim.step import BrokerStep
from node.core.controller import Controller
from node.core.image import BrokerRecord, Image, PartitionRecord
from node.core.protocol import Detection, LeaderBy
from node.formats.messages import AlterPartition, Heartbeat, RegisterBroker, ReplicaLogInfo


class _Decisions(NamedTuple):
    """The decisions of a controller when its last step ended."""

    controller: Controller
    end: int
    image: Image


class _Heard(NamedTuple):
    """The time of the last heartbeat of a broker that counts, and the log end that the next one
    must have applied to count."""

    at_us: int
    must_apply: int


class MetadataRules:
    """A memory of the decisions of each controller, and of the heartbeats that it got."""

    def __init__(self) -> None:
        self._known: dict[str, _Decisions] = {}
        self._heard: dict[str, dict[str, _Heard]] = {}
        self._committed: dict[str, int] = {}
        self._ends: dict[tuple[str, str, int], dict[str, tuple[int, int, int]]] = {}
        self._held: dict[str, tuple[str, ...]] = {}
        self._requests = RequestRules()

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
        known = self._known.get(s.node)
        if known is None or known.controller is not active:
            new = _Heard(now_us, active.metadata.leo)
            self._heard[s.node] = dict.fromkeys(image.brokers, new)
        elif isinstance(m, Heartbeat | RegisterBroker):
            self._hears(s, active, known.image.brokers.get(m.broker))
        self._committed[s.node] = active.metadata.hw
        if known is None or known.controller is not active:
            self._requests.begins(s.node)
        else:
            yield from self._requests.check(s, active, known.image, known.end)
            if known.end != active.metadata.leo:
                yield from _decided(s, known.image, image)
            if isinstance(m, ReplicaLogInfo):
                yield from _counted(s, active, m)
                yield from self._recovers(s, known.image.partitions.get(m.partition), m, image)
            record = image.brokers.get(getattr(m, "broker", ""))
            if record and _beats(m, record) and m.want_shutdown and not record.stopping:
                yield f"does not take {m.broker} for stopping, whose process said so"
            if m is None:
                yield from self._silent(s, known.image, image)
            if known.end == active.metadata.leo:
                return
        was = Image()
        was.brokers, was.partitions = dict(image.brokers), dict(image.partitions)
        self._known[s.node] = _Decisions(active, active.metadata.leo, was)

    def _hears(self, s: BrokerStep, active: Controller, was: BrokerRecord | None) -> None:
        """Note a heartbeat: it counts if its sender is the registered process and has applied what
        was committed at the last one that counted ("A broker that receives no metadata")."""
        m, heard, now_us = s.message, self._heard[s.node], s.core.ctx.now_us
        record = active.image.brokers.get(m.broker)
        if record is None:
            return
        if was is None or was.broker_epoch != record.broker_epoch:
            heard[m.broker] = _Heard(now_us, active.metadata.leo)
        elif _beats(m, was):
            must, came = heard[m.broker].must_apply, was.fenced and not record.fenced
            if came or m.metadata_offset >= must:
                heard[m.broker] = _Heard(now_us, max(must, self._committed[s.node]))

    def _silent(self, s: BrokerStep, known: Image, image: Image) -> Iterator[str]:
        """Check that a broker is fenced when it was silent for a session, and not before ("A silent
        broker")."""
        now_us, session_us = s.core.ctx.now_us, s.core.ctx.config.timings.session_ms * 1000
        for name, record in image.brokers.items():
            ago_us = now_us - self._heard[s.node][name].at_us
            if not record.fenced and ago_us > session_us:
                yield f"did not fence {name}, silent for {ago_us // 1000} ms"
            if record.fenced and not known.brokers[name].fenced and ago_us < session_us:
                yield f"fenced {name}, silent for {ago_us // 1000} ms only"

    def _recovers(
        self, s: BrokerStep, b: PartitionRecord | None, m: ReplicaLogInfo, image: Image
    ) -> Iterator[str]:
        """Check that of the replicas which may have lost data the longest leads ("Balanced
        recovery")."""
        ends = self._ends.setdefault((s.node, m.partition, m.partition_epoch), {})
        ends[s.source] = m.broker_epoch, m.last_epoch, m.end_offset
        a = image.partitions.get(m.partition)
        if b is None or a is None or a.leader == b.leader:
            return
        current = {n: end[1:] for n, end in ends.items() if end[0] == image.broker_epoch(n)}
        if current.get(a.leader) != max(current.values(), default=None):
            yield f"elected {a.leader} to lead {m.partition}, and the logs end at {current}"

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
    for name in core.replicas:
        if s.node not in core.ctx.image.partitions[name].replicas:
            yield f"has a replica of {name}, which is placed on others"
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


def _decided(s: BrokerStep, known: Image, image: Image) -> Iterator[str]:
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
    elif was.fenced and not record.fenced:
        if not _beats(m, record) or m.want_shutdown:
            yield f"unfenced {record.broker} without its heartbeat"
        elif m.metadata_offset <= record.broker_epoch:
            yield f"unfenced {record.broker}, which has not applied its registration"
    elif record.stopping and not was.stopping and not (_beats(m, record) and m.want_shutdown):
        yield f"takes {record.broker} for stopping, whose process did not say so"


def _beats(m: Any, record: BrokerRecord | None) -> bool:
    """Return whether a message is a heartbeat of the registered process of a broker."""
    epoch = None if record is None else (record.broker, record.broker_epoch)
    return isinstance(m, Heartbeat) and (m.broker, m.broker_epoch) == epoch


def _placed(s: BrokerStep, state: PartitionRecord, image: Image) -> Iterator[str]:
    """Check who leads and who is in sync, of those who are active."""
    rules, name = s.core.protocol, state.partition
    least = min(state.min_isr, len(state.replicas))
    if state.elr and (not rules.elr or len(state.isr) >= least):
        yield f"keeps ELR {state.elr} of {name} beside ISR {state.isr}, MinISR {least}"
    if state.leader and state.leader not in state.isr:
        yield f"lets {state.leader} lead {name} from outside ISR {state.isr}"
    final = [member for member in state.isr if member in state.target]
    enough = min(state.min_isr, len(state.target)) if rules.elr else 1
    if state.target and {*state.adding} <= {*final} and len(final) >= enough:
        yield f"does not complete the move of {name} to {state.target}, with ISR {state.isr}"
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
    ends, least = {*b.replicas} - {*a.replicas}, min(a.min_isr, len(a.replicas))
    clean = rules.elr and not s.core.ctx.config.unclean_election
    moved = ends and (not b.target or ends <= {*b.removing})
    if clean and once and moved and len({*a.isr, *a.elr}) < least:
        yield f"ended a move of {name} with ISR {a.isr}, and {least} are to have what is committed"
    if a.partition_epoch <= b.partition_epoch:
        yield f"changed {name}, and its partition epoch {b.partition_epoch} did not rise"
    proposed: set[str] = set()
    if isinstance(m, AlterPartition) and m.partition == name:
        proposed = {member for member, _ in m.isr}
    if entered := {*a.isr} - {*b.isr} - proposed - {a.leader}:
        yield f"let {sorted(entered)} enter the ISR of {name} without a proposal"
    if rules.elr and once and len(a.isr) < least and b.min_isr == a.min_isr:
        kept = {*a.isr, *a.elr, *a.last_known_elr}
        if left := {*b.isr, *b.elr} & {*a.replicas} - kept:
            yield f"dropped {sorted(left)} from ISR and ELR of {name}, which is below MinISR"
    if _beats(m, image.brokers.get(getattr(m, "broker", ""))) and name in m.damaged:
        keeps = m.broker in {*a.isr, *a.elr} and (rules.elr or a.isr != (m.broker,))
        if keeps and not (a.unclean and a.leader == m.broker):
            yield f"keeps {m.broker} in ISR {a.isr} or ELR {a.elr} of {name}, and it lost data"


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
