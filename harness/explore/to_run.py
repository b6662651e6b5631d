"""A path of an exploration as the files of a run: it is an execution of the brokers themselves, at
one virtual millisecond a step. What the exploration does to them are the faults of a schedule."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from msgspec.structs import replace

from harness.explore.invariants import operation_of
from harness.explore.model import CLIENT, PARTITION, Model, NodeStep
from harness.explore.node_model import NodeTurn
from harness.explore.waits import Action
from harness.formats.history import Op, Read, Send
from harness.formats.problem import Exit
from harness.runs.run import first_info
from harness.sim.disk import SimDisk
from harness.sim.run import RunFiles
from harness.systems.floodmark.brokers import CAPABILITIES, promise_of
from harness.systems.floodmark.replica_logs import log_lines
from harness.systems.floodmark.system import SYSTEM
from nemesis.faults import Cut, ElectPreferred, Kill, Link, PowerCut, Reassign, Restart
from nemesis.formats.fault_log import FaultLine
from nemesis.formats.schedule import Fault, Schedule, Workload
from node.formats.messages import FetchRequest, ProduceRequest
from node.formats.trace import TraceEvent

STEP_US: Final = 1_000
_LINKS: Final = {"lose": "drop", "delay": "hold", "double": "duplicate"}


def files_of(model: Model, actions: Iterable[Action], name: str) -> RunFiles:
    """Return the files of the run that follows a path from the first state, with the start before
    it, and after it the reads of a cluster that was left alone."""
    path = _Path(model)
    for each in model.replayed(actions):
        path.t_us += STEP_US
        if isinstance(each, NodeStep):
            path.step(each)
        else:
            path.act(each)
    return path.files(name)


class _Path:
    """The lines that the steps of a path leave."""

    def __init__(self, model: Model) -> None:
        self.t_us = 0
        self._model = model
        self._storm_us = 0
        self._heal_us = 0
        self._recovered_us = 0
        self._final_us = 0
        self._trace: list[TraceEvent] = []
        self._ops: list[Op] = []
        self._open: dict[int, Op] = {}
        self._faults: list[Fault] = []
        self._lines: list[FaultLine] = []
        self._lasting: list[int] = []
        self._exits: list[Exit] = []
        self._disks: dict[str, SimDisk] = {}

    # -- what is done to the cluster

    def act(self, action: Action) -> None:
        """Note an action: a fault, its end, or the end of the start."""
        match action:
            case ("storm",):
                self._storm_us = self.t_us
            case ("final",):
                self._heal_us = self.t_us
                for index in self._lasting:
                    self._line(index, "heal")
            case ("heal" | "release", _):
                if self._lasting:
                    self._line(self._lasting.pop(0), "heal")
            case ("crash" | "send-crash", _):
                pass  # Its step says which node ends.
            case _:
                if (fault := self._fault(action)) is not None:
                    self._inject(fault)

    def _fault(self, action: Action) -> Fault | None:
        """Return the fault that an action is, None for the end of a wait or a client's request."""
        names = self._model.names
        voters = ",".join(names[at] for at in self._model.voters)
        at_ms = (self.t_us - self._storm_us) // 1000
        match action:
            case ("kill", at, _):
                return Kill(on=names[at], at_ms=at_ms)
            case ("power-cut", at):
                return PowerCut(on=names[at], keep_percent=0, at_ms=at_ms)
            case ("start", at):
                return Restart(on=names[at], at_ms=at_ms)
            case ("fence", at):
                return Cut(on=names[at], to=voters, at_ms=at_ms)
            case ("cut", (one, other)):
                return Cut(on=names[one], to=names[other], at_ms=at_ms)
            case ("elect", _, first):
                return ElectPreferred(partition=PARTITION, first=first, at_ms=at_ms)
            case ("move", _):
                return Reassign(partition=PARTITION, replicas="rotate", at_ms=at_ms)
            case (("lose" | "delay" | "double") as kind,):
                rule: Any = _LINKS[kind]
                return Link(action=rule, on="all", to="all", limit=1, at_ms=at_ms)
        return None

    def _inject(self, fault: Fault) -> None:
        self._faults.append(fault)
        index = len(self._faults) - 1
        self._line(index, "inject")
        if isinstance(fault, Cut | Link):
            self._lasting.append(index)

    def _line(self, index: int, action: Any) -> None:
        fault = self._faults[index]
        on = getattr(fault, "on", PARTITION)
        nodes = (on,) if on in self._model.names else ()
        line = FaultLine(
            fault=index,
            what=fault.what,
            action=action,
            t_us=self.t_us,
            done_us=self.t_us,
            on=on,
            nodes=nodes,
        )
        self._lines.append(line)

    # -- what the nodes do

    def step(self, step: NodeStep) -> None:
        """Note a step of a node: its trace, its end, requests and answers of the client."""
        name, event = self._model.names[step.at], step.event
        if event[0] == "lost":
            return
        turn = self._model.local.turn(step.node, event)
        if event[0] == "crash":
            at_ms = (self.t_us - self._storm_us) // 1000
            self._inject(Kill(on=name, at_ms=at_ms))
        inner = event[2] if event[0] == "crash" else event
        if inner[0] == "deliver" and inner[1] == CLIENT:
            self._invoke(*self._model.local.messages[inner[2]])
        self._disks[name] = turn.node.disk
        self._trace += [self._stamped(name, turn, each) for each in turn.events]
        for message in turn.messages:
            if message.to == CLIENT:
                self._complete(name, message.message, message.body)
        if event[0] in ("kill", "power-cut", "crash") or turn.error:
            self._ended(name, turn, by_itself=bool(turn.error))

    def _stamped(self, name: str, turn: NodeTurn, event: TraceEvent) -> TraceEvent:
        stamp = {"t_us": self.t_us, "node": name, "incarnation": turn.node.incarnation}
        return {**stamp, **event}

    def _ended(self, name: str, turn: NodeTurn, *, by_itself: bool) -> None:
        end = Exit(
            node=name,
            incarnation=turn.node.incarnation,
            t_us=self.t_us,
            code=70 if by_itself else -9,
            by="itself" if by_itself else "kill",
            expected=not by_itself,
        )
        self._exits.append(end)

    # -- the client

    def _invoke(self, request: Any, body: bytes | None) -> None:
        """Note a request; a record that is sent again is the same operation."""
        key = self._model.record_of(request)
        if key in self._open or not isinstance(request, ProduceRequest | FetchRequest):
            return
        sends = (Send(partition=PARTITION, value=key),) if key else ()
        if self._heal_us and not key:
            self._final_us = self._final_us or self.t_us
        number = sum(op.type == "invoke" for op in self._ops)
        op = Op(
            op=number,
            t_us=self.t_us,
            process=number + 1,
            client=CLIENT,
            type="invoke",
            f="send" if key else "poll",
            sends=sends,
            reads=() if key else (Read(partition=PARTITION),),
            final=bool(self._heal_us and not key),
        )
        self._open[key] = op
        self._ops.append(op)

    def _complete(self, node: str, answer: Any, body: bytes | None) -> None:
        done, op = operation_of(answer, body), self._open.get(self._model.record_of(answer))
        if done is None or op is None:
            return
        if self._heal_us and op.f == "send":
            self._recovered_us = self.t_us
        del self._open[self._model.record_of(answer)]
        sends = tuple(replace(s, offset=d.offset) for s, d in zip(op.sends, done.sends))  # noqa: B905
        reads = tuple(replace(read, node=node) for read in done.reads)
        self._ops.append(replace(op, t_us=self.t_us, type="ok", sends=sends, reads=reads))

    # -- the files

    def files(self, name: str) -> RunFiles:
        bounds, unread = self._model.bounds, list[str]()
        cluster = bounds.cluster()
        workload = Workload(clients=1, consumers=0, idempotent=bounds.retries > 0)
        schedule = Schedule(
            name=name, cluster=cluster, workload=workload, faults=tuple(self._faults)
        )
        info = first_info(
            schedule, 0, SYSTEM, world="simulated", now_us=STEP_US, name=name, run=name
        )
        info.promise, info.capabilities = promise_of(schedule), CAPABILITIES
        brokers = cluster.broker_names()
        info.partitions = {PARTITION: brokers[: cluster.replication_factor]}
        info.state = "finished"
        phases = info.phases
        phases.start_us, phases.storm_us = STEP_US, self._storm_us
        phases.heal_us, phases.final_us = self._heal_us, self._final_us
        phases.recovered_us = phases.in_sync_us = self._recovered_us
        phases.stop_writing_us = self._recovered_us or self._final_us
        phases.end_us = self.t_us + STEP_US
        late = [replace(op, t_us=phases.end_us, type="info") for op in self._open.values()]
        logs = {
            node: list(log_lines(node, self._disks[node].dump(), info.partitions, unread))
            for node in brokers
        }
        return RunFiles(
            info=info,
            schedule=schedule,
            ops=[*self._ops, *late],
            trace=self._trace,
            logs=logs,
            faults=self._lines,
            exits=self._exits,
            output={},
            messages=[],
        )
