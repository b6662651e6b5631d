"""`floodmark bench failover`: how long a new leader takes, and what an idle cluster sends.

Real processes with the timings of a storm; the only fault is a SIGKILL. Every moment is read off
the traces, which all nodes stamp with the one monotonic clock of the host: what the harness takes
to notice is in no figure but one, and that one says so.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harness.bench.broker import let_pass
from harness.runs import run_folder
from harness.runs.clock import now_us
from harness.runs.progress import Progress
from harness.systems.floodmark.brokers import TOPIC
from harness.systems.floodmark.system import HUB_LINKS, SYSTEM
from harness.systems.interface import NO_LINKS
from harness.systems.remote_clients import RemoteClients
from nemesis.formats import schedule as schedules
from nemesis.formats.schedule import Cluster, Schedule, Timings, Workload
from node.core.messages import SetMinIsr
from node.core.protocol import REGISTRY, Commit, Detection, protocol
from node.formats import trace
from node.formats.errors import FloodmarkError, UsageError

if TYPE_CHECKING:
    from harness.systems.floodmark.cluster import FloodmarkCluster

PATIENCE_S: Final = 20.0
WARM_UP_S: Final = 1.0
SETTLE_S: Final = 0.4
"""Between two kills of controllers: the one that came back must hear of the new one first."""
MOST_STUCK: Final = 3
_LOOK_S: Final = 0.004
_LOG: Final = "log-0"

Event = Mapping[str, Any]


class FailoverSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How many leaders of each protocol are killed, and how long an idle cluster is listened to."""

    kills: int = 10
    idle_s: float = 5.0
    protocols: tuple[str, ...] = tuple(REGISTRY)


class Failover(msgspec.Struct, frozen=True, kw_only=True):
    """Leader killed to the first write that the new leader acknowledged: medians in ms.

    `elected_ms` is the part until somebody led, of which `timeout_ms` is the least time without a
    word that must pass. `stuck`: clusters that had to be given up; `all_ms` are the samples.
    """

    protocol: str
    failover_ms: float
    elected_ms: float
    timeout_ms: int
    stuck: int
    all_ms: tuple[float, ...]


class ControllerFailover(msgspec.Struct, frozen=True, kw_only=True):
    """Active controller of three voters killed: to the next one, and to its first change, in ms.

    The change is asked for when the harness has seen the new one, a few ms after it began.
    """

    active_ms: float
    committed_ms: float
    timeout_ms: int
    all_ms: tuple[float, ...]


class Idle(msgspec.Struct, frozen=True, kw_only=True):
    """Messages a second between the nodes of an idle cluster: 3 brokers, 1 voter, 4 partitions."""

    protocol: str
    messages_s: float


class FailoverFigures(msgspec.Struct, frozen=True, kw_only=True):
    """All figures; `load` is the machine's load average before and after."""

    settings: FailoverSettings
    load: tuple[float, float]
    failovers: tuple[Failover, ...]
    controller: ControllerFailover
    idle: tuple[Idle, ...]


class Stuck(FloodmarkError):
    """What was waited for did not come."""


def run_failover(settings: FailoverSettings, progress: Progress) -> FailoverFigures:
    """Measure everything. Raises UsageError, or FloodmarkError when a cluster does not start."""
    if settings.kills < 1 or settings.idle_s <= 0:
        raise UsageError("--kills and the time of listening must be positive")
    names = [protocol(name).name for name in settings.protocols]
    before = round(os.getloadavg()[0], 2)
    with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as folder:
        store = Path(folder)
        idle = []
        for name in names:
            progress.phase(f"{name}, idle", settings.idle_s)
            idle.append(listen(store, name, settings.idle_s))
        failovers = []
        for name in names:
            progress.phase(f"{name}, {settings.kills} leaders killed")
            failovers.append(kill_leaders(store, name, settings.kills))
        progress.phase(f"{settings.kills} controllers killed")
        controller = kill_controllers(store, settings.kills)
    return FailoverFigures(
        settings=settings,
        load=(before, round(os.getloadavg()[0], 2)),
        idle=tuple(idle),
        failovers=tuple(failovers),
        controller=controller,
    )


def listen(store: Path, name: str, seconds: float) -> Idle:
    """Count what passes the link hub while no client is there."""
    cluster = _cluster(store, f"idle-{name}", Cluster(protocol=name), hub=True)
    try:
        cluster.start()
        assert cluster.hub is not None
        let_pass(cluster, WARM_UP_S, lambda: "")
        first, began_us = cluster.hub.stats().forwarded, now_us()
        let_pass(cluster, seconds, lambda: "")
        last, ended_us = cluster.hub.stats().forwarded, now_us()
    finally:
        cluster.close()
    return Idle(protocol=name, messages_s=round((last - first) * 1e6 / (ended_us - began_us), 1))


def kill_leaders(store: Path, name: str, kills: int) -> Failover:
    """Kill the leader of the one partition, again and again, each time with all in sync."""
    samples: list[tuple[float, float]] = []
    stuck = 0
    while len(samples) < kills:
        try:
            _kill_leaders(store, name, kills, samples)
        except Stuck:
            # Some protocols are meant to lose their way: then a fresh cluster goes on.
            stuck += 1
            if stuck > MOST_STUCK:
                raise
    timings = Timings()
    chosen = protocol(name)
    if chosen.commit is Commit.MAJORITY:
        timeout_ms = timings.election_min_ms
    elif chosen.detection is Detection.LEADER_REPORTS:
        timeout_ms = timings.leader_timeout_ms
    else:
        timeout_ms = timings.session_ms
    return Failover(
        protocol=name,
        failover_ms=_median(acked for _, acked in samples),
        elected_ms=_median(elected for elected, _ in samples),
        timeout_ms=timeout_ms,
        stuck=stuck,
        all_ms=tuple(acked for _, acked in samples),
    )


def _kill_leaders(store: Path, name: str, kills: int, samples: list[tuple[float, float]]) -> None:
    """As many as one cluster gives; adds (ms until elected, ms until acknowledged) to `samples`."""
    # Many short attempts: the first of them after the election finds the new leader at once.
    workload = Workload(clients=8, consumers=0, rate=20, batch=1, timeout_ms=300)
    cluster = _cluster(store, f"failover-{name}", Cluster(protocol=name, partitions=1), workload)
    clients = cluster.clients()
    try:
        cluster.start()
        clients.go()
        watch = _Watch(cluster, clients)
        watch.until("a first acknowledgement", lambda e: e["event"] == trace.ACK)
        while len(samples) < kills:
            samples.append(_kill_leader(watch, protocol(name).commit is Commit.ISR))
    finally:
        clients.close()
        cluster.close()


def _kill_leader(watch: _Watch, has_isr: bool) -> tuple[float, float]:
    """One kill; returns when the killed node has come back and has everything."""
    cluster, view = watch.cluster, watch.cluster.view
    leader = view.leader(_LOG)
    if leader is None:
        raise Stuck("nobody leads")
    killed_us = watch.kill(leader)

    def at_successor(event: Event, what: str) -> bool:
        return (
            event["event"] == what
            and event.get("partition") == _LOG
            and event["node"] != leader
            and event["t_us"] > killed_us
        )

    elected = watch.until(
        "another leader", lambda e: at_successor(e, trace.ROLE) and e["role"] == "leader"
    )
    acked = watch.until("an acknowledgement", lambda e: at_successor(e, trace.ACK))
    hw = view.hw(_LOG)
    cluster.nodes.start(leader)
    watch.until(
        f"{leader} to catch up",
        lambda e: (
            e["event"] == trace.HW
            and e["node"] == leader
            and e["hw"] >= hw
            and e.get("partition") == _LOG
        ),
    )
    if has_isr:
        watch.until("all in sync", lambda _: len(view.isr(_LOG)) == len(cluster.brokers))
    return _ms(killed_us, elected), _ms(killed_us, acked)


def kill_controllers(store: Path, kills: int) -> ControllerFailover:
    """Kill the active one of three voters, again and again, each time with all three up."""
    samples: list[tuple[float, float]] = []
    cluster = _cluster(store, "failover-controller", Cluster(voters=3, partitions=1))
    try:
        cluster.start()
        watch = _Watch(cluster)
        while len(samples) < kills:
            samples.append(_kill_controller(watch, min_isr=1 + len(samples) % 2))
            let_pass(cluster, SETTLE_S, lambda: "")
    finally:
        cluster.close()
    return ControllerFailover(
        active_ms=_median(active for active, _ in samples),
        committed_ms=_median(committed for _, committed in samples),
        timeout_ms=Timings().election_min_ms,
        all_ms=tuple(done for _, done in samples),
    )


def _kill_controller(watch: _Watch, min_isr: int) -> tuple[float, float]:
    """One kill; `min_isr` is the change that is asked for, so it must not be so already."""
    cluster = watch.cluster
    controller, admin = cluster.view.controller(), cluster.admin
    if controller is None or admin is None:
        raise Stuck("nobody is the controller")
    killed_us = watch.kill(controller)
    active = watch.until(
        "another controller",
        lambda e: (
            e["event"] == trace.CONTROLLER and e["state"] == "active" and e["node"] != controller
        ),
    )
    admin.begin(SetMinIsr(topic=TOPIC, min_isr=min_isr), first=active["node"])

    def committed(event: Event) -> bool:
        # As it becomes active a controller may tell of older changes again.
        since = event["event"] == trace.PARTITION and event["t_us"] > active["t_us"]
        return since and bool(event["min_isr"] == min_isr)

    done = watch.until("a change of the metadata", committed, meanwhile=admin.step)
    cluster.nodes.start(controller)
    watch.until(
        f"{controller} to follow",
        lambda e: e["event"] == trace.ROLE and e["node"] == controller and e["role"] == "follower",
    )
    return _ms(killed_us, active), _ms(killed_us, done)


class _Watch:
    """Reads the traces of a cluster as they grow, and keeps its view up to date."""

    def __init__(self, cluster: FloodmarkCluster, clients: RemoteClients | None = None) -> None:
        self.cluster = cluster
        self._clients = clients

    def kill(self, node: str) -> int:
        """SIGKILL a node; returns the moment before it."""
        killed_us = now_us()
        self.cluster.nodes.kill(node)
        self.cluster.view.lost(node)
        return killed_us

    def until(
        self, what: str, is_it: Callable[[Event], bool], *, meanwhile: Callable[[], object] = int
    ) -> Event:
        """The first event from now on that is it. Raises Stuck when it does not come, or when a
        process ends by itself."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            found = None
            for event in self.cluster.poll():
                self.cluster.view.observe(event)
                if found is None and is_it(event):
                    found = event
            if found is not None:
                return found
            if ended := self.cluster.ended():
                raise Stuck(f"{ended[0]} ended by itself")
            if self.cluster.problems:
                raise FloodmarkError(self.cluster.problems[0].sentence)
            # Clients whose status nobody reads would have to wait for somebody who does.
            if self._clients is not None and (problem := self._clients.status.problem):
                raise FloodmarkError(problem)
            meanwhile()
            time.sleep(_LOOK_S)
        raise Stuck(f"waited {PATIENCE_S:g} s for {what}, in vain")


def _cluster(
    store: Path, name: str, cluster: Cluster, workload: Workload | None = None, *, hub: bool = False
) -> FloodmarkCluster:
    silent = Workload(clients=0, consumers=0)
    schedule = Schedule(cluster=cluster, workload=silent if workload is None else workload)
    schedules.check(schedule, source="options")
    links = HUB_LINKS if hub else NO_LINKS
    return SYSTEM.launch(schedule, run_folder.create(store, name), links=links)


def _ms(since_us: int, event: Event) -> float:
    return round((int(event["t_us"]) - since_us) / 1000, 1)


def _median(values: Iterable[float]) -> float:
    return round(statistics.median(values), 1)


def table(figures: FailoverFigures) -> str:
    """The figures for a person."""
    kills = figures.settings.kills
    idle = {each.protocol: each.messages_s for each in figures.idle}
    lines = [
        f"medians of {kills} kills, load {figures.load[0]:g} to {figures.load[1]:g}; "
        f"3 brokers, RF 3, MinISR 2; idle: 1 voter, 4 partitions, {figures.settings.idle_s:g} s",
        f"{'protocol':<16} {'kill to ack ms':>14} {'to elected ms':>14} {'timeout ms':>11} "
        f"{'min..max ms':>13} {'idle msg/s':>11}",
    ]
    for each in figures.failovers:
        spread = f"{min(each.all_ms):.0f}..{max(each.all_ms):.0f}"
        stuck = f"  ({each.stuck} clusters given up)" if each.stuck else ""
        lines.append(
            f"{each.protocol:<16} {each.failover_ms:>14,.0f} {each.elected_ms:>14,.0f} "
            f"{each.timeout_ms:>11,} {spread:>13} {idle[each.protocol]:>11,.0f}{stuck}"
        )
    controller = figures.controller
    lines.append(
        f"controller, 3 voters: killed to the next one active {controller.active_ms:.0f} ms, to "
        f"its first change committed {controller.committed_ms:.0f} ms "
        f"(timeout {controller.timeout_ms} ms)"
    )
    return "\n".join(lines)
