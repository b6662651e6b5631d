"""Our brokers as the system under test in the simulator: the harness's `ClusterUnderTest` and the
nemesis' `World`, over virtual time."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from harness.clients.factory import Crew
from harness.formats.exits import Exit
from harness.formats.history import LogRun, Op
from harness.formats.run_info import Promise
from harness.runs.startup_monitor import Observed
from harness.sim.admin import SimAdmin
from harness.sim.clients import SimClients
from harness.sim.event_queue import Agenda
from harness.sim.latency_profile import CALM, Weather
from harness.sim.network import Network
from harness.sim.node import HAND_OVER_US, SimNode
from harness.systems.floodmark.brokers import CAPABILITIES, node_config, promise_of, topic_of
from harness.systems.floodmark.log_lines import log_lines
from nemesis.faults.admin import Command
from nemesis.formats.schedule import Break, Schedule
from nemesis.links.rule import Counts, LinkRule
from nemesis.view import ClusterView
from node.formats.errors import FloodmarkError
from node.formats.trace import BREAK, TraceEvent
from node.runtime.breakpoints import Breakpoint

READY_LIMIT_US: Final = 30_000_000
LOOK_US: Final = 20_000
"""How often the phases of a run look at how things stand, in virtual time."""


class SimWorld:
    """Implements `nemesis.world.World`."""

    def __init__(
        self,
        agenda: Agenda,
        network: Network,
        nodes: dict[str, SimNode],
        clients: SimClients,
        admin: SimAdmin,
        upgraded: dict[str, str],
    ) -> None:
        self._agenda = agenda
        self._network = network
        self._nodes = nodes
        self._clients = clients
        self._admin = admin
        self._upgraded = upgraded
        self._last_point = 0

    def kill(self, node: str) -> None:
        """SIGKILL."""
        self._nodes[node].kill()

    def power_cut(self, node: str, keep: float) -> tuple[int, int]:
        """SIGKILL, then the journal of unsynced writes is cut to its first `keep`."""
        self._nodes[node].kill()
        return self._nodes[node].disk.power_cut(keep)

    def start(self, node: str) -> None:
        """Start a new process of a node that is down."""
        self._nodes[node].start()

    def stop(self, node: str) -> None:
        """SIGTERM; time passes until the process is gone."""
        self.stop_all([node])

    def stop_all(self, nodes: Sequence[str]) -> None:
        """SIGTERM to all of them at the same moment; time passes until they are gone."""
        for node in nodes:
            self._nodes[node].ask_to_stop()
        limit_us = self._agenda.now_us + HAND_OVER_US
        while any(self._nodes[n].up for n in nodes) and self._agenda.now_us < limit_us:
            self._agenda.run(min(limit_us, self._agenda.now_us + LOOK_US))

    def pause(self, node: str) -> None:
        """SIGSTOP."""
        self._nodes[node].pause()

    def resume(self, node: str) -> None:
        """SIGCONT."""
        self._nodes[node].resume()

    def is_up(self, node: str) -> bool:
        """Whether the node has a process, paused or not."""
        return self._nodes[node].up

    def is_paused(self, node: str) -> bool:
        """Whether that process is paused."""
        return self._nodes[node].paused

    def add_rule(self, rule: LinkRule) -> int:
        """Put a link rule in force."""
        return self._network.add_rule(rule)

    def remove_rule(self, number: int) -> Counts:
        """End a link rule and tell what it did."""
        return self._network.remove_rule(number)

    def add_breakpoint(self, node: str, point: Break) -> int:
        """Arm `point`, in this process and in later ones until one has stopped at it."""
        self._last_point += 1
        self._nodes[node].arm(
            Breakpoint(
                number=self._last_point,
                event=point.event,
                match=point.match,
                nth=point.nth,
                before=point.before,
            )
        )
        return self._last_point

    def remove_breakpoint(self, node: str, number: int) -> None:
        """Disarm a breakpoint; a process that stands at it goes on."""
        self._nodes[node].disarm(number)

    def operate(self, operation: int) -> None:
        """Have its client begin an operation of the workload."""
        self._clients.operate(operation)

    def command(self, command: Command) -> None:
        """Ask the controller; time passes until it has answered."""
        self._admin.carry_out(command)

    def set_protocol(self, node: str, protocol: str) -> None:
        """For the processes after this one."""
        self._upgraded[node] = protocol

    def now_us(self) -> int:
        """Virtual time."""
        return self._agenda.now_us


class SimCluster:
    """All nodes of one run. `trace` has every event so far, `exits` and `words` every end.

    `heed` is told each turn's trace events before anybody else is; `heard` each history line.
    Also the run's `Pace`: `wait` lets virtual time pass.
    """

    def __init__(
        self,
        schedule: Schedule,
        seed: int,
        heed: Callable[[SimNode, list[TraceEvent]], None],
        heard: Callable[[Op], None],
        weather: Weather = CALM,
    ) -> None:
        cluster = schedule.cluster
        self._schedule = schedule
        self._heed = heed
        self._heard = heard
        self.brokers = cluster.broker_names()
        self.voters = cluster.voter_names()
        self.problems: list[str] = []
        self.view = ClusterView()
        self.trace: list[TraceEvent] = []
        self.exits: list[Exit] = []
        self.words: dict[str, list[str]] = {}
        self.agenda = Agenda()
        self.network = Network(self.agenda, random.Random(f"{seed}/links"))
        upgraded: dict[str, str] = {}
        self.nodes = {
            name: SimNode(
                name,
                self.agenda,
                self.network,
                lambda n, i: node_config(cluster, n, i, upgraded),
                seed,
                self._seen,
                self._ended,
                weather,
            )
            for name in (*self.voters, *self.brokers)
        }
        self.crew = Crew(cluster=cluster, workload=schedule.workload)
        self._clients = SimClients(self.crew, self.agenda, self.network, heard)
        self.admin = SimAdmin(self.agenda, self.network, self.voters)
        self.world = SimWorld(
            self.agenda, self.network, self.nodes, self._clients, self.admin, upgraded
        )
        due = (*schedule.faults, *schedule.workload.operations)
        self._awaited = {each.after.event for each in due if each.after is not None} | {BREAK}
        self._started = False
        self._told = 0
        self._look_us = weather.look_us
        self._looks = random.Random(f"{seed}/looks")

    # -- what it is

    @property
    def capabilities(self) -> tuple[str, ...]:
        """Everything that a check can ask for."""
        return CAPABILITIES

    @property
    def promise(self) -> Promise:
        """What these brokers promise under this schedule."""
        return promise_of(self._schedule)

    @property
    def partitions(self) -> dict[str, tuple[str, ...]]:
        """Partition -> its replicas, as the controller placed them."""
        return {p: self.view.replicas(p) for p in self._schedule.cluster.partition_names()}

    def address_map(self) -> dict[str, str]:
        """There are no addresses here."""
        return {}

    # -- time

    def now_us(self) -> int:
        """Virtual time."""
        return self.agenda.now_us

    def wait(self, until_us: int) -> None:
        """Let virtual time pass, until a look is due or an event came that a fault waits for."""
        look_us = self._looks.randint(*self._look_us) if any(self._look_us) else LOOK_US
        self.agenda.run(min(until_us, self.agenda.now_us + look_us))
        self.agenda.stopping = False

    # -- life

    def start(self) -> None:
        """Start everything; return when every partition has a leader.

        Raises FloodmarkError, in one sentence, when that does not come.
        """
        observed = Observed()
        for node in self.nodes.values():
            node.start()
        everybody, brokers = set(self.nodes), set(self.brokers)
        call = self.admin.begin(topic_of(self._schedule.cluster))
        wanted = self._schedule.cluster.partition_names()

        def ready() -> bool:
            if not (observed.started >= everybody and observed.unfenced >= brokers):
                return False
            answer = self.admin.step(call)
            if answer is not None and answer.error:
                raise FloodmarkError(f"the topic could not be made: {answer.detail}")
            return all(self.view.leader(partition) for partition in wanted)

        limit_us = self.agenda.now_us + READY_LIMIT_US
        while not ready():
            if self.agenda.now_us >= limit_us:
                raise FloodmarkError("the simulated cluster did not become ready in 30 s")
            self.wait(limit_us)
            events = self.poll()
            observed.feed(events)
            for event in events:
                self.view.observe(event)
            for end in self.exits:
                if not end.expected:
                    raise FloodmarkError(f"{end.node} ended with code {end.code} at its start")
        self._started = True

    def clients(self) -> SimClients:
        """The clients of the workload, silent until `go`."""
        return self._clients

    def poll(self) -> list[TraceEvent]:
        """What was traced since the last call."""
        events = self.trace[self._told :]
        self._told = len(self.trace)
        return events

    def stop(self) -> None:
        """Stop all nodes cleanly: brokers while there is still a controller, then voters."""
        for group in (self.brokers, self.voters):
            # At once: one by one, those who are left would elect a leader and append its record.
            self.world.stop_all(group)

    def logs(self) -> dict[str, list[LogRun]]:
        """The lines of each broker's `logs/<node>.jsonl`: what its disk has now."""
        return {
            name: list(log_lines(name, self.nodes[name].disk.dump(), self.problems))
            for name in self.brokers
        }

    def dump_logs(self, folder: Path) -> list[str]:
        """Nothing is written here: see `logs`."""
        return []

    def close(self) -> None:
        """There is nothing to let go of."""

    # -- inside

    def _seen(self, node: SimNode, events: list[TraceEvent]) -> None:
        self.trace += events
        self._heed(node, events)
        # Before that nothing is due; and with one fault more, all before it stays as it was.
        if self._started and self._awaited and not any(self._look_us):
            for event in events:
                if event["event"] in self._awaited:
                    self.agenda.stopping = True

    def _ended(self, end: Exit, words: str) -> None:
        self.exits.append(end)
        if words:
            self.words.setdefault(end.node, []).append(words)
        if end.by == "itself":
            self.view.lost(end.node)
