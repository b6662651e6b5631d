"""A small specification of the controller's answers: what each request gets, given the records in
which it finds the cluster (docs/protocols.md, "Controller", "Elections, recovery, reassignment,
shutdown"), and what a command that is accepted has led to.

An answer leaves when the log of the decision is committed, in the order of the requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from msgspec.structs import replace

from harness.sim.step import BrokerStep
from node.core.broker import Broker
from node.core.controller import Controller
from node.core.image import Image, PartitionRecord
from node.core.protocol import Detection, LeaderBy, Protocol, RestartRule
from node.formats import messages
from node.formats.messages import AlterPartition, ControllerRequest, Error
from node.formats.trace import DAMAGED, GROUPS_PARTITION
from node.formats.wire_bounds import MAX_PARTITIONS

_ANSWERS: Final = (
    *(messages.RegisterBrokerResponse, messages.HeartbeatResponse),
    *(messages.AlterPartitionResponse, messages.AdminResponse),
)
_INVALID: Final = Error.INVALID_REQUEST
_NONE: Final = Error.NONE


class RequestRules:
    """A memory of the answers that each active controller owes: log end, receiver, answer. None if
    a damaged disk has broken off a step of it."""

    def __init__(self) -> None:
        self._due: dict[str, deque[tuple[int, str, Any]] | None] = {}

    def begins(self, node: str) -> None:
        """Note that another controller began in this step: it owes nothing."""
        self._due[node] = deque()

    def check(self, s: BrokerStep, active: Controller, b: Image, end: int) -> Iterator[str]:
        """Yield what is wrong with the decision of a request, and with the answers of this step.
        `b` is the image of the controller when its last step ended, `end` that of its log."""
        m, due, metadata = s.message, self._due[s.node], active.metadata
        if due is None or s.traced(DAMAGED):
            self._due[s.node] = None
            return
        if isinstance(m, ControllerRequest) and type(m) is not messages.ReplicaLogInfo:
            answer = _answer(s.core, b, active.image, m)
            due.append((metadata.leo, s.source, answer))
            if not answer.error:
                yield from _led_to(b, active.image, m)
            elif metadata.leo != end and answer.error is not Error.INELIGIBLE_REPLICA:
                yield f"took over a request to be refused: {answer.error}"
        said = list[tuple[str, Any]]()
        for out in s.effects.messages:
            if isinstance(told := out.message, _ANSWERS):
                prose = isinstance(told, messages.AdminResponse)  # its detail
                said.append((out.to, replace(told, detail="") if prose else told))
        owed = list[tuple[str, Any]]()
        while due and due[0][0] <= metadata.hw:
            owed.append(due.popleft()[1:])
        if said != owed:
            self._due[s.node] = None
            yield f"answered {said}, and should answer {owed}"


def _answer(core: Broker, b: Image, a: Image, m: Any) -> Any:
    """Return the answer that a request gets, without the detail of an admin command."""
    rules = core.protocol
    if isinstance(m, messages.RegisterBroker):
        error = _registration_error(rules, b, m)
        epoch = -1 if error else a.broker_epoch(m.broker)
        return messages.RegisterBrokerResponse(
            corr=m.corr, incarnation=m.incarnation, error=error, broker_epoch=epoch
        )
    if isinstance(m, messages.Heartbeat):
        known = a.brokers.get(m.broker)
        if known is None or b.broker_epoch(m.broker) != m.broker_epoch:
            return messages.HeartbeatResponse(corr=m.corr, error=Error.STALE_BROKER_EPOCH)
        more: dict[str, Any] = {"fenced": known.fenced}
        more |= {"should_shutdown": known.fenced and known.stopping}
        return messages.HeartbeatResponse(corr=m.corr, broker_epoch=m.broker_epoch, **more)
    if isinstance(m, AlterPartition):
        state = a.partitions.get(m.partition)
        answer = messages.AlterPartitionResponse(
            corr=m.corr,
            partition=m.partition,
            error=_proposal_error(rules, b, m),
            request_epoch=m.partition_epoch,
        )
        names = ("isr", "leader", "leader_epoch", "partition_epoch")
        return replace(answer, **{name: getattr(state, name) for name in names if state})
    return messages.AdminResponse(corr=m.corr, error=_admin_error(core, b, m))


def _registration_error(rules: Protocol, b: Image, m: messages.RegisterBroker) -> Error:
    """Return why a process is not registered ("Restart: clean or unclean")."""
    known = b.brokers.get(m.broker)
    if known is None or known.incarnation == m.incarnation:
        return _NONE
    waits = not known.fenced and rules.restart is RestartRule.AFTER_FENCING
    return Error.DUPLICATE_REGISTRATION if waits or m.incarnation < known.incarnation else _NONE


def _proposal_error(rules: Protocol, b: Image, m: AlterPartition) -> Error:
    """Return why the ISR that a leader proposes is not accepted ("AlterPartition")."""
    state = b.partitions.get(m.partition)
    if state is None:
        return Error.UNKNOWN_PARTITION
    if m.leader_epoch > state.leader_epoch or m.partition_epoch > state.partition_epoch:
        return Error.NOT_CONTROLLER
    if m.leader_epoch < state.leader_epoch:
        return Error.FENCED_LEADER_EPOCH
    if m.partition_epoch < state.partition_epoch:
        return Error.INVALID_UPDATE_VERSION
    if m.broker_epoch != b.broker_epoch(m.broker):
        return Error.STALE_BROKER_EPOCH
    names = [name for name, _ in m.isr]
    twice = len({*names}) != len(names)
    if m.broker != state.leader or not {m.broker} <= {*names} <= {*state.replicas} or twice:
        return _INVALID
    silence = rules.detection is Detection.HEARTBEATS
    judged = [(name, epoch) for name, epoch in m.isr if silence or name not in state.isr]
    current = all(b.is_active(name) and e in (-1, b.broker_epoch(name)) for name, e in judged)
    return _NONE if current else Error.INELIGIBLE_REPLICA


def _admin_error(core: Broker, b: Image, m: Any) -> Error:
    """Return why a command is refused. One whose work is done is not."""
    if isinstance(m, messages.CreateTopic):
        active = sum(b.is_active(name) for name in b.brokers)
        room = MAX_PARTITIONS - len(b.partitions)
        room -= m.groups and GROUPS_PARTITION not in b.partitions
        fits = 1 <= m.replication_factor <= active and 1 <= m.partitions <= min(room, 10_000)
        return _NONE if f"{m.topic}-0" in b.partitions or (fits and m.min_isr >= 1) else _INVALID
    if core.protocol.leader_by is LeaderBy.VOTES:
        return _INVALID
    if isinstance(m, messages.SetMinIsr):
        known = any(name.rpartition("-")[0] == m.topic for name in b.partitions)
        return _INVALID if m.min_isr < 1 else _NONE if known else Error.UNKNOWN_PARTITION
    state = b.partitions.get(m.partition)
    if state is None:
        return Error.UNKNOWN_PARTITION
    if isinstance(m, messages.ReassignReplicas):
        names = m.replicas
        able = len({*names}) == len(names) and {*names} <= {*b.brokers}
        if not names and state.target and not core.ctx.config.unclean_election:
            back = _before_move(state)
            least = min(state.min_isr, len(back)) if core.protocol.elr else 1
            able = len({*back} & {*state.isr}) >= least
        return _NONE if able else _INVALID
    if m.unclean:
        return _NONE if state.leader or b.active(state.replicas) else _INVALID
    first = m.first or state.replicas[0]
    if first not in state.replicas or (m.first and state.target):
        return _INVALID
    able = state.leader == first or (first in state.isr and b.is_active(first))
    return _NONE if able else _INVALID


def _led_to(b: Image, a: Image, m: Any) -> Iterator[str]:
    """Yield what an accepted request should have led to, and did not."""
    if isinstance(m, messages.SetMinIsr):
        for name, state in a.partitions.items():
            if name.rpartition("-")[0] == m.topic and state.min_isr != m.min_isr:
                yield f"set MinISR {m.min_isr}, and {name} has {state.min_isr}"
        return
    if not isinstance(m, AlterPartition | messages.ElectLeader | messages.ReassignReplicas):
        return
    was, state = b.partitions[m.partition], a.partitions[m.partition]
    if isinstance(m, AlterPartition):
        if was.replicas == state.replicas and {*state.isr} != {name for name, _ in m.isr}:
            yield f"accepted ISR {m.isr} of {m.partition}, and has {state.isr}"
    elif isinstance(m, messages.ElectLeader):
        first = was.leader or state.leader if m.unclean else m.first or was.replicas[0]
        if not state.leader or state.leader != first:
            yield f"elected {first or 'a leader'}, and {state.leader or 'nobody'} leads"
    else:
        wanted = m.replicas or _before_move(was)
        if (state.target or state.replicas) != wanted or (state.target and not m.replicas):
            yield f"moves {m.partition} to {wanted}, and has {state}"


def _before_move(state: PartitionRecord) -> tuple[str, ...]:
    return tuple(name for name in state.replicas if name not in state.adding)
