"""Our brokers under virtual time: the `ClusterUnderTest`, and the `World` that faults act on."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final

from harness.clients.factory import ClientFactory
from harness.clients.group import ClientGroup
from harness.clients.types import NEVER_US, SessionEffects, Status
from harness.formats.history import GroupState, LogRun, Op
from harness.formats.problem import Exit, Problem
from harness.formats.run_info import Promise
from harness.sim.network import Envelope, EventQueue, Network
from harness.sim.node import HAND_OVER_US, IDEAL, LatencyProfile, SimNode
from harness.systems.floodmark.admin import Admin
from harness.systems.floodmark.brokers import (
    CAPABILITIES,
    StartupMonitor,
    node_config,
    promise_of,
    topic_of,
)
from harness.systems.floodmark.group_states import batches_of_groups, group_states
from harness.systems.floodmark.replica_logs import log_lines
from harness.systems.interface import ClientRequest, ClusterUnderTest, RunClients
from nemesis.formats.schedule import Schedule
from nemesis.links.rule import LinkRule
from nemesis.view import ClusterView
from nemesis.world import Command, DiskCopy, Lasting, World, refuse_shuffle
from node.core.api import Deliver
from node.core.image import PartitionRecord
from node.core.replica import Replica
from node.formats.errors import FloodmarkError
from node.formats.event_text import leadership, log_ends
from node.formats.messages import AdminRequest, AdminResponse
from node.formats.trace import BREAK, TraceEvent
from node.formats.wire import ADMIN
from node.runtime.breakpoints import Breakpoint
from node.runtime.damage import DiskDamage
from node.runtime.failing_disk import DiskFails

_POLL_US: Final = 1_000


class SimClients(RunClients):
    """A `ClientGroup` under virtual time. `ops` is its history; `seen` gets each line of it."""

    def __init__(
        self,
        factory: ClientFactory,
        queue: EventQueue,
        network: Network,
        seen: Callable[[Op], None],
    ) -> None:
        self.ops: list[Op] = []
        self._group = ClientGroup(factory)
        self._queue = queue
        self._network = network
        self._seen = seen
        self._due_us: dict[str, int] = {}
        self._armed_us: dict[str, int] = {}
        self._changed = True

    @property
    def status(self) -> Status:
        if self._changed:
            self._changed = False
            return self._group.status(self._queue.now_us)
        # No client has acted since the last call, so only the time differs.
        status = self._group.statistics.status
        status.t_us = self._queue.now_us
        return status

    def ask(self, what: ClientRequest, *arguments: int) -> None:
        self._changed = True
        for client in getattr(self._group, what)(*arguments):
            self._network.join(client, self._arrive)
            self._due_us[client] = self._queue.now_us
            self._arm(client, self._queue.now_us)

    def close(self) -> None:
        self._due_us.clear()

    def _arrive(self, envelope: Envelope) -> None:
        client, source, message, body = envelope
        if client in self._due_us:
            answer = Deliver(source, message, body)
            self._carry_out(client, self._group.sessions[client].step(self._queue.now_us, answer))

    def _alarm(self, client: str) -> None:
        now_us = self._queue.now_us
        if self._armed_us.get(client) != now_us or client not in self._due_us:
            return
        self._armed_us[client] = NEVER_US
        due_us = self._due_us[client]
        if due_us <= now_us:
            self._carry_out(client, self._group.sessions[client].step(now_us))
        else:
            self._arm(client, due_us)

    def _carry_out(self, client: str, effects: SessionEffects) -> None:
        """Add the effects of a client to the history, then send its messages."""
        self._changed = True
        for op in effects.ops:
            self.ops.append(op)
            self._group.statistics.add(op)
            self._seen(op)
        for out in effects.messages:
            self._network.send(client, out.to, out.message, out.body)
        self._due_us[client] = effects.deadline_us
        self._arm(client, effects.deadline_us)

    def _arm(self, client: str, due_us: int) -> None:
        if due_us < self._armed_us.get(client, NEVER_US):
            at_us = max(due_us, self._queue.now_us + 1)
            self._armed_us[client] = at_us
            self._queue.at(at_us, self._alarm, client)


class SimAdmin(Admin):
    """The commands of an operator, sent through the simulated network."""

    def __init__(self, queue: EventQueue, network: Network, voters: Sequence[str]) -> None:
        super().__init__(voters)
        self._queue = queue
        self._network = network
        self._arrived: list[AdminResponse] = []
        network.join(ADMIN, self._arrive)

    def _now_us(self) -> int:
        return self._queue.now_us

    def _answers(self) -> list[AdminResponse]:
        answers, self._arrived = self._arrived, []
        return answers

    def _send(self, voter: str, request: AdminRequest) -> None:
        self._network.send(ADMIN, voter, request, None)

    def _wait(self) -> None:
        self._queue.run(self._queue.now_us + _POLL_US)

    def _arrive(self, envelope: Envelope) -> None:
        if isinstance(envelope[2], AdminResponse):
            self._arrived.append(envelope[2])


READY_LIMIT_US: Final = 30_000_000
POLL_US: Final = 20_000
"""The virtual time between two polls of the cluster by the phases of a run."""


class NeverStarted(FloodmarkError):
    """A simulated cluster has no leader for a partition, though nothing disturbed its start."""


class SimWorld(World):
    """The simulated nodes, links, disks and clocks, as faults act on them."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._nodes, self._queue, self._network = cluster.nodes, cluster.queue, cluster.network
        self._last_number = 0

    def kill(self, node: str) -> None:
        self._nodes[node].kill()

    def power_cut(self, node: str, keep: float, shuffle: int | None = None) -> tuple[int, int]:
        """Kill the node; keep the first `keep` (0 to 1) of its journal. Return both lengths."""
        refuse_shuffle(shuffle)
        self._nodes[node].kill()
        return self._nodes[node].disk.power_cut(keep)

    def start(self, node: str) -> None:
        self._nodes[node].start()

    def stop(self, node: str) -> None:
        """Send SIGTERM, and let virtual time pass until the process has ended."""
        self.stop_all([node])

    def stop_all(self, nodes: Sequence[str]) -> None:
        """Send SIGTERM to these nodes at once, and let virtual time pass until they end."""
        for node in nodes:
            self._nodes[node].ask_to_stop()
        while any(self._nodes[node].up for node in nodes):
            # The end of a process stops the queue. An event that a fault waits for does too,
            # without harm.
            self._queue.run_until_stopped(self._queue.now_us + HAND_OVER_US)

    def pause(self, node: str) -> None:
        self._nodes[node].pause()

    def resume(self, node: str) -> None:
        self._nodes[node].resume()

    def is_up(self, node: str) -> bool:
        return self._nodes[node].up

    def is_paused(self, node: str) -> bool:
        return self._nodes[node].paused

    def add(self, node: str, what: Lasting) -> int:
        if isinstance(what, LinkRule):
            return self._network.add_rule(what)
        self._last_number = number = self._last_number + 1
        match what:
            case Breakpoint():
                self._nodes[node].arm(number, what)
            case DiskFails(what="unreadable"):
                raise FloodmarkError("a simulated disk cannot be made unreadable; use --world real")
            case DiskFails():
                self._nodes[node].disk.add_fault(number, what)
            case DiskCopy():
                self._nodes[node].disk.copy(number)
            case _:
                super().add(node, what)
        return number

    def remove(self, node: str, what: Lasting, number: int) -> Any:
        match what:
            case LinkRule():
                return self._network.remove_rule(number)
            case Breakpoint():
                return self._nodes[node].disarm(number)
            case DiskFails():
                return self._nodes[node].disk.remove_fault(number)
            case DiskCopy():
                return self._nodes[node].disk.restore(number)
        return super().remove(node, what, number)

    def damage_disk(self, node: str, damage: DiskDamage) -> str:
        if damage.files:
            raise FloodmarkError("a simulated disk has no files to damage; use --world real")
        return self._nodes[node].disk.damage(damage)

    def set_clock_rate(self, node: str, percent: int) -> None:
        self._nodes[node].set_clock_rate(percent)

    def operate(self, operation: int) -> None:
        self._cluster.clients().ask("operate", operation)

    def command(self, command: Command) -> None:
        self._cluster.admin.carry_out(command)

    def set_protocol(self, node: str, protocol: str) -> None:
        self._cluster.upgraded[node] = protocol

    def now_us(self) -> int:
        return self._queue.now_us


class SimCluster(ClusterUnderTest):
    """The cluster of one simulated run. `trace` has every event so far; `exits` and `output` have
    every end of a process. `on_trace` is called with each turn's trace events before the turn's
    messages leave, `on_history` with each line of the history, `on_end` with each
    unexpected end of a process. It is also the `Pace` of the run: `wait` lets virtual time pass."""

    def __init__(
        self,
        schedule: Schedule,
        seed: int,
        on_trace: Callable[[SimNode, list[TraceEvent]], None],
        on_history: Callable[[Op], None],
        on_end: Callable[[Exit, str], None],
        latency: LatencyProfile = IDEAL,
    ) -> None:
        cluster = schedule.cluster
        self._schedule = schedule
        self._on_trace = on_trace
        self._on_end = on_end
        self.brokers = cluster.broker_names()
        self.voters = cluster.voter_names()
        self._unread: list[Problem] = []
        self.view = ClusterView()
        self.trace: list[TraceEvent] = []
        self.exits: list[Exit] = []
        self.output: dict[str, list[str]] = {}
        self.queue = EventQueue()
        self.network = Network(self.queue, random.Random(f"{seed}/links"))
        self.upgraded: dict[str, str] = {}
        """The protocol of each node that was upgraded."""
        self.nodes = {
            name: SimNode(
                name,
                self.queue,
                self.network,
                lambda n, i: node_config(cluster, n, i, self.upgraded),
                seed,
                self._seen,
                self._ended,
                latency,
            )
            for name in (*self.voters, *self.brokers)
        }
        self.factory = ClientFactory(cluster=cluster, workload=schedule.workload)
        self._clients = SimClients(self.factory, self.queue, self.network, on_history)
        self.admin = SimAdmin(self.queue, self.network, self.voters)
        self._world = SimWorld(self)
        self._awaited = _awaited(schedule)
        self._started = False
        self._told = 0
        self._awaits_look = False
        self._notice_us = latency.notice_us
        self._looks_late = any(latency.notice_us)
        self._notice_rng = random.Random(f"{seed}/looks")

    # -- what it is

    @property
    def problems(self) -> list[Problem]:
        return self._unread

    @property
    def capabilities(self) -> tuple[str, ...]:
        return CAPABILITIES

    @property
    def world(self) -> SimWorld:
        return self._world

    @property
    def promise(self) -> Promise:
        return promise_of(self._schedule)

    @property
    def partitions(self) -> dict[str, tuple[str, ...]]:
        return {p: self.view.replicas(p) for p in self._schedule.cluster.partition_names()}

    def ended(self) -> tuple[str, ...]:
        return tuple(exit.node for exit in self.exits if not exit.expected)

    # -- time

    def now_us(self) -> int:
        return self.queue.now_us

    def wait(self, until_us: int) -> None:
        """Let virtual time pass until `until_us`, until the harness polls next, or until an event
        that a fault waits for. Return at once if such an event has happened since the last poll."""
        if self._awaits_look:
            return
        notice_us = self._notice_rng.randint(*self._notice_us) if self._looks_late else POLL_US
        self.queue.run_until_stopped(min(until_us, self.queue.now_us + notice_us))

    # -- life

    def start(self) -> None:
        """Start all nodes and create the topic, up to a leader of each. Raises NeverStarted if that
        does not come, and FloodmarkError if the topic is refused or a process ends."""
        startup = StartupMonitor()
        for node in self.nodes.values():
            node.start()
        everybody, brokers = set(self.nodes), set(self.brokers)
        members = self._schedule.workload.members
        self.admin.begin(topic_of(self._schedule.cluster, groups=members > 0))
        wanted = self._schedule.cluster.partition_names()

        def ready() -> bool:
            if not (startup.started >= everybody and startup.unfenced >= brokers):
                return False
            answer = self.admin.step()
            if answer is not None and answer.error:
                raise NeverStarted(
                    f"the simulated controller refused to create the topic: {answer.detail}"
                )
            return all(self.view.leader(partition) for partition in wanted)

        limit_us = self.queue.now_us + READY_LIMIT_US
        while not ready():
            if self.queue.now_us >= limit_us:
                raise NeverStarted(
                    "not every partition of the simulated cluster had a leader after 30 s"
                )
            self.wait(limit_us)
            events = self.poll()
            startup.feed(events)
            for event in events:
                self.view.observe(event)
            for end in self.exits:
                if not end.expected:
                    raise FloodmarkError(
                        f"simulated node {end.node} ended with code {end.code} at its start"
                    )
        self._started = True

    def clients(self) -> SimClients:
        return self._clients

    def poll(self) -> list[TraceEvent]:
        events = self.trace[self._told :]
        self._told = len(self.trace)
        self._awaits_look = False
        return events

    def stop(self) -> None:
        for group in (self.brokers, self.voters):
            # All at once: otherwise the remaining nodes would elect a leader and append its record.
            self._world.stop_all(group)

    def logs(self) -> dict[str, list[LogRun]]:
        """Return the lines of `logs/<node>.jsonl` for each broker, read from its disk."""
        unread: list[str] = []
        found = {
            name: list(log_lines(name, self.nodes[name].disk.dump(), self.partitions, unread))
            for name in self.brokers
        }
        self._unread += [Problem(kind="log-not-read", sentence=each) for each in unread]
        return found

    def group_states(self) -> list[GroupState]:
        """Return the lines of `group-states.jsonl`; none if the run has no groups."""
        logs = [batches_of_groups(self.nodes[name].disk.dump()) for name in self.brokers]
        return group_states(logs, self.trace)

    # -- inside

    def _seen(self, node: SimNode, events: list[TraceEvent]) -> None:
        self.trace += events
        self._on_trace(node, events)
        # Faults are due only after the start. One more fault changes nothing before its own time.
        if self._started and self._awaited and not self._looks_late:
            for event in events:
                if event["event"] in self._awaited:
                    self.queue.stopping = self._awaits_look = True

    def _ended(self, end: Exit, output: str) -> None:
        self.exits.append(end)
        self.queue.stopping = True
        if output:
            self.output.setdefault(end.node, []).append(output)
        if end.by == "itself":
            self.view.lost(end.node)
        if not end.expected:
            self._on_end(end, output)


def _awaited(schedule: Schedule) -> set[str]:
    """Return the events for which a fault or an operation waits."""
    due = (*schedule.faults, *schedule.workload.operations)
    return {each.after.event for each in due if each.after is not None} | {BREAK}


def stall_report(cluster: SimCluster) -> tuple[str, ...]:
    """Return why a cluster makes no progress: nodes that are down, each partition, each replica."""
    found = [f"{name} is down" for name, node in cluster.nodes.items() if not node.up]
    controllers = [
        name
        for name, node in cluster.nodes.items()
        if node.core is not None and node.core.controller is not None
    ]
    if not controllers:
        found.append("no voter is the controller")
    for name in controllers:
        core = cluster.nodes[name].core
        assert core is not None
        found += [f"{name}: {_record(state)}" for state in core.ctx.image.partitions.values()]
    for name in cluster.brokers:
        core = cluster.nodes[name].core
        if core is not None:
            if core.ctx.broker_epoch < 0:
                found.append(f"{name} is not registered")
            found += [f"{name}: {_replica(r)}" for r in core.replicas.values()]
    return tuple(found)


def _record(state: PartitionRecord) -> str:
    words = leadership(state.leader, state.leader_epoch, state.isr, state.elr)
    return f"{state.partition}: {words}"


def _replica(r: Replica) -> str:
    said = f"{r.role} of {r.partition} in epoch {r.leader_epoch}, {log_ends(r.leo, r.hw)}"
    if r.role == "leader":
        behind = [name for name in r.maximal_isr if name in r.peers and r.peers[name].leo < r.leo]
        silent = [n for n in r.maximal_isr if n not in r.peers and n != r.leader]
        if r.pending_alter is not None:
            said += f", asks for ISR [{' '.join(r.pending_alter.isr)}]"
        if behind or silent:
            said += f", waits for {' '.join([*behind, *silent])}"
        return said + (f", {len(r.acks)} sends unanswered" if r.acks else "")
    if r.role == "follower":
        doing = "asks where an epoch ends" if r.fetching.asking is not None else "fetches"
        return f"{said}, {doing} from {r.leader or 'nobody'}"
    return said
