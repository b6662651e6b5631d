"""Our own brokers as the system under test: real processes, ZeroMQ between them, LMDB under them.

Between the nodes sits the link hub, unless the run wants none: then faults on links cannot be
carried out. Everything belongs to one process, the harness, and ends with it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from harness.clients.factory import ClientFactory
from harness.formats.problem import Problem, how_ended
from harness.formats.run_info import Promise
from harness.runs.run_folder import RunDir
from harness.runs.suspension import SuspensionWatch
from harness.systems.disks import JOURNAL, USER_SPACE, UserDisks
from harness.systems.floodmark import client_process, processes
from harness.systems.floodmark.admin import MAX_ANSWER_BYTES, Admin
from harness.systems.floodmark.brokers import (
    CAPABILITIES,
    StartupMonitor,
    node_config,
    promise_of,
    topic_of,
)
from harness.systems.floodmark.keyring import CLIENTS, HUB, HUB_CONTROL, Keyring
from harness.systems.floodmark.mail import EVERYONE_ELSE, Mail
from harness.systems.floodmark.nodes import Nodes
from harness.systems.floodmark.replica_logs import write_logs
from harness.systems.floodmark.trace_tail import TraceTail
from harness.systems.floodmark.world import RealWorld
from harness.systems.ports import PortLease
from harness.systems.remote_clients import RemoteClients
from nemesis.formats import message_log
from nemesis.formats.schedule import Schedule
from nemesis.links import hub
from nemesis.links.hub_control import HubControl, HubGone
from nemesis.strace import Tracers
from nemesis.view import ClusterView
from nemesis.wall_clocks import clocks_for
from nemesis.world import Command
from node.formats.errors import FloodmarkError
from node.formats.trace import UNAUTHENTICATED, TraceEvent
from node.formats.wire import ADMIN
from node.runtime import children
from node.runtime.curve import CurveKeys
from node.runtime.process import ProcessConfig
from node.runtime.reap import REAP_S

READY_TIMEOUT_S: Final = 30.0
HUB_EVERY_S: Final = 5.0
HUB_SILENT_MS: Final = 10_000
_LOOK_S: Final = 0.005


class FloodmarkCluster:
    """Voters, brokers, the hub between them, and the folder they leave their traces in."""

    tells_in_sync = True

    def __init__(
        self,
        schedule: Schedule,
        folder: RunDir,
        *,
        with_hub: bool = True,
        with_curve: bool = True,
        disk: str = JOURNAL,
    ) -> None:
        """Lease ports, make keys and prepare files; no process starts yet. `folder` is the run
        folder. Without `with_curve` anybody on this host can speak to the nodes. `disk` is the form
        of their disks."""
        self._schedule = schedule
        self._folder = folder
        self.brokers = schedule.cluster.broker_names()
        self.voters = schedule.cluster.voter_names()
        self.view = ClusterView()
        self._startup = StartupMonitor()
        self.factory = ClientFactory(cluster=schedule.cluster, workload=schedule.workload)
        self._addresses: dict[str, str] = {}
        self._lease = PortLease(len(self.brokers) + len(self.voters) + 4)
        self._give_addresses(with_hub)
        nodes = (*self.voters, *self.brokers)
        self.keyring = Keyring(nodes, self.factory.roles, with_hub=with_hub) if with_curve else None
        self._exits = folder.append_only("exits.jsonl")
        self._problems: list[Problem] = []
        output = folder.folder("output")
        self._tracers = Tracers(output)
        self._clocks = clocks_for(schedule, output, nodes)
        self.nodes = Nodes(self._config, self._exits, self._look_at_disk, self._environment)
        self._tail = TraceTail(folder.path / "trace", (*self.voters, *self.brokers))
        self._hub: children.Child | None = None
        self._mail: Mail | None = None
        self._clients: RemoteClients | None = None
        self.admin: Admin | None = None
        self.hub: HubControl | None = None
        self._upgraded: dict[str, str] = {}
        self._suspensions = SuspensionWatch(self.nodes, self._parts)
        self._heard_hub_s = time.monotonic()
        self._turned_away: Counter[str] = Counter()
        self._disks: UserDisks | None = None
        if disk == USER_SPACE:
            folders = {node: self._data(node) for node in (*self.voters, *self.brokers)}
            self._disks = UserDisks(folders, output, schedule)
        self._closed = False
        processes.prepare()

    # -- what it is

    @property
    def capabilities(self) -> tuple[str, ...]:
        """Everything that a check can ask for."""
        return CAPABILITIES

    @property
    def problems(self) -> list[Problem]:
        """What the brokers did not do themselves: the hub ended, a process was ended or suspended
        by others."""
        disks = () if self._disks is None else self._disks.problems
        return [*self._problems, *disks, *self._suspensions.problems, *self.nodes.problems]

    @property
    def turned_away(self) -> dict[str, int]:
        """As the traces say, the hub, the clients, and our own gate; complete once it is closed."""
        return {name: count for name, count in sorted(self._turned_away.items()) if count}

    @property
    def world(self) -> RealWorld:
        """Signals and link rules."""
        return RealWorld(
            *(self.nodes, self.hub, self._data, self._operate, self._command, self._upgraded),
            *(self._disks, self._tracers, self._clocks),
        )

    @property
    def promise(self) -> Promise:
        """What these brokers promise under this schedule."""
        return promise_of(self._schedule)

    @property
    def partitions(self) -> dict[str, tuple[str, ...]]:
        """Partition -> its replicas, as the controller placed them."""
        return {p: self.view.replicas(p) for p in self._schedule.cluster.partition_names()}

    def address_map(self) -> dict[str, str]:
        """Where each node listens; all clients share one address."""
        return {**self._addresses, **dict.fromkeys(self.factory.roles, self._addresses[CLIENTS])}

    # -- life

    def start(self) -> None:
        """Start everything; return when every partition has a leader.

        Raises FloodmarkError, in one sentence, when a process ends or the time runs out.
        """
        self._suspensions.begin()
        if HUB in self._addresses:
            self._start_hub()
        self._mail = Mail(
            self._addresses[ADMIN],
            self._peers(ADMIN),
            max_message_bytes=MAX_ANSWER_BYTES,
            keys=self._curve(ADMIN),
        )
        for node in (*self.voters, *self.brokers):
            self.nodes.start(node)
        everybody = {*self.voters, *self.brokers}
        self._await("every process to start", lambda: self._startup.started >= everybody)
        brokers = set(self.brokers)
        self._await("every broker to be registered", lambda: self._startup.unfenced >= brokers)
        self.admin = Admin(self._mail, self.voters)
        self._make_topic(self.admin)

    def clients(self) -> RemoteClients:
        """Start the clients of the workload, silent until `go`."""
        output = self._folder.path / "output" / "clients.txt"
        config = client_process.DriverConfig(
            factory=self.factory,
            bind=self._addresses[CLIENTS],
            peers=self._peers(CLIENTS),
            history=str(self._folder.path / "history.jsonl"),
            output=str(output),
            parent_pid=os.getpid(),
            curve=self._curve(CLIENTS),
        )
        self._clients = RemoteClients(client_process.main, config, output)
        return self._clients

    def poll(self) -> list[TraceEvent]:
        """What the traces say since the last call; also notices processes that ended."""
        events = self._read_traces()
        if self._disks is not None:
            self._disks.watch(self._blame_disk)
        for ended in self.nodes.reap():
            self.view.lost(ended.node)
        if self._mail is not None:
            self._mail.gate.serve()
            if self.admin is None or self.admin.idle:
                self._mail.drain()  # late answers, and whatever else nobody waits for
        self._watch_hub()
        return events

    def ended(self) -> tuple[str, ...]:
        """The nodes that ended by themselves."""
        return tuple(exit.node for exit in self.nodes.unexpected)

    def stop(self) -> None:
        """Stop all nodes cleanly: brokers while there is still a controller, then voters."""
        for group in (self.brokers, self.voters):
            for node in group:
                self.nodes.ask_to_stop(node)
            for node in group:
                self.nodes.await_stop(node)

    def dump_logs(self, folder: Path) -> list[str]:
        """Write each broker's logs to `folder`/<node>.jsonl; returns problems, in sentences."""
        problems = []
        for node in self.brokers:
            if self.nodes.is_up(node):
                problems.append(f"{node} still runs: its logs were not read")
                continue
            file = folder / f"{node}.jsonl"
            problems += write_logs(node, self._data(node), file, self.partitions)
        return problems

    def close(self) -> None:
        """Leave no process and no port behind. May be called at any moment, and twice."""
        if self._closed:
            return
        self._closed = True
        self._suspensions.end()
        self._tracers.close()
        with contextlib.suppress(FloodmarkError):
            self.nodes.kill_all()
        if self._disks is not None:
            self._disks.close()
        self._watch_hub()
        self._count_turned_away()
        if self._hub is not None:
            self._hub.kill()
            self._hub.join(REAP_S)
        if self.hub is not None:
            self.hub.close()
        if self._mail is not None:
            self._mail.close()
        self._tail.close()
        self._exits.close()
        self._lease.release()

    # -- inside

    def _read_traces(self) -> list[TraceEvent]:
        """What is new in them; counts the turns in which a node turned somebody away."""
        events = self._tail.read()
        self._turned_away.update(
            each["node"] for each in events if each.get("reason") == UNAUTHENTICATED
        )
        return events

    def _count_turned_away(self) -> None:
        """Ask everybody who keeps count of it, as far as they still answer."""
        self._read_traces()
        if self._mail is not None:
            self._mail.gate.serve()
            self._turned_away[ADMIN] = self._mail.gate.turned_away
        if self._clients is not None:
            self._turned_away[CLIENTS] = self._clients.turned_away
        if self.hub is not None and self._hub is not None and self._hub.exitcode is None:
            with contextlib.suppress(FloodmarkError):
                self._turned_away[HUB] = self.hub.stats().unauthenticated

    def _watch_hub(self) -> None:
        """Put the end of the hub on record, and that it does not answer: without it no message
        passes."""
        if self._hub is None or any(each.kind == "hub-ended" for each in self._problems):
            return
        code, sentence = self._hub.exitcode, ""
        output = self._folder.path / "output" / "hub.txt"
        if code is not None:
            sentence = f"the link hub ended during the run ({how_ended(code)}; see {output})"
        elif self.hub is not None and time.monotonic() - self._heard_hub_s > HUB_EVERY_S:
            try:
                self.hub.ping(HUB_SILENT_MS)
            except HubGone as error:
                sentence = f"{error} (see {output})"
            self._heard_hub_s = time.monotonic()
        if sentence:
            self._problems.append(Problem(kind="hub-ended", sentence=sentence))

    def _operate(self, operation: int) -> None:
        if self._clients is None:
            raise FloodmarkError("there are no clients yet")
        self._clients.operate(operation)

    def _command(self, command: Command) -> None:
        if self.admin is None:
            raise FloodmarkError("there is no controller yet")
        self.admin.carry_out(command)

    def _give_addresses(self, with_hub: bool) -> None:
        names = [*self.voters, *self.brokers, ADMIN, CLIENTS]
        if with_hub:
            names += [HUB, HUB_CONTROL]
        # A port handed out once stays with its node: a restarted broker is found where it was.
        for name, port in zip(names, self._lease.ports, strict=False):
            self._addresses[name] = f"tcp://127.0.0.1:{port}"

    def _curve(self, owner: str) -> CurveKeys | None:
        """The keys of one process of this run."""
        return None if self.keyring is None else self.keyring.of(owner, self._addresses)

    def _peers(self, me: str) -> dict[str, str]:
        """The map of addresses one node is given: the hub for all, or everyone directly."""
        if HUB in self._addresses:
            return {EVERYONE_ELSE: self._addresses[HUB]}
        direct = {n: a for n, a in self._addresses.items() if n not in (me, CLIENTS)}
        clients = {c: self._addresses[CLIENTS] for c in self.factory.roles if me != CLIENTS}
        return direct | clients

    def _config(self, node: str, incarnation: int) -> ProcessConfig:
        path = self._folder.path
        core = node_config(self._schedule.cluster, node, incarnation, self._upgraded)
        data = self._data(node)
        data.mkdir(parents=True, exist_ok=True)
        return ProcessConfig(
            core=core,
            data_dir=str(data),
            trace_file=str(path / "trace" / f"{node}.jsonl"),
            output_file=str(path / "output" / f"{node}.txt"),
            bind=self._addresses[node],
            peers=self._peers(node),
            curve=self._curve(node),
            parent_pid=os.getpid(),
            seed=self._schedule.workload.seed,
            disk_pid=0 if self._disks is None else self._disks.start(node),
        )

    def _parts(self) -> dict[str, int]:
        """Return the processes of the harness that a person has a name for."""
        disks = {} if self._disks is None else self._disks.pids()
        parts = {"The link hub": self._hub, "The process of the clients": self._clients}
        return disks | {name: part.pid for name, part in parts.items() if part}

    def _look_at_disk(self, node: str) -> None:
        if self._disks is not None:
            self._disks.look(node, self._blame_disk)

    def _blame_disk(self, node: str) -> None:
        self.nodes.blame_disk(node, now=True)

    def _environment(self, node: str) -> Mapping[str, str]:
        return {} if self._clocks is None else self._clocks.environment(node)

    def _data(self, node: str) -> Path:
        return self._folder.path / "data" / node

    def _start_hub(self) -> None:
        nodes = {
            name: address
            for name, address in self.address_map().items()
            if name not in (HUB, HUB_CONTROL, CLIENTS)
        }
        config = hub.HubConfig(
            bind=self._addresses[HUB],
            control=self._addresses[HUB_CONTROL],
            nodes=nodes,
            seed=self._schedule.workload.seed,
            parent_pid=os.getpid(),
            output_file=str(self._folder.path / "output" / "hub.txt"),
            messages_file=str(self._folder.path / message_log.FILE),
            curve=self._curve(HUB),
        )
        child = self._hub = children.start("hub", hub.main, config)
        self.hub = HubControl(
            config.control, is_alive=lambda: child.exitcode is None, keys=self._curve(ADMIN)
        )
        self.hub.wait_ready()

    def _make_topic(self, admin: Admin) -> None:
        cluster = self._schedule.cluster
        wanted = cluster.partition_names()
        admin.begin(topic_of(cluster))

        def led() -> bool:
            answer = admin.step()
            if answer is not None and answer.error:
                raise FloodmarkError(f"the topic could not be made: {answer.detail}")
            return all(self.view.leader(partition) for partition in wanted)

        self._await("every partition to have a leader", led)
        admin.give_up()  # its leaders may be known before its answer

    def _await(self, what: str, is_so: Callable[[], bool]) -> None:
        """Watch the traces until `is_so`. Raises FloodmarkError after READY_TIMEOUT_S."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not is_so():
            events = self.poll()
            self._startup.feed(events)
            for event in events:
                self.view.observe(event)
            if self.nodes.unexpected:
                raise FloodmarkError(self._why_ended())
            if self.problems:
                raise FloodmarkError(self.problems[0].sentence)
            if time.monotonic() > deadline:
                raise FloodmarkError(
                    f"waited {READY_TIMEOUT_S:g} s for {what}, in vain "
                    f"(see {self._folder.path / 'output'})"
                )
            time.sleep(_LOOK_S)

    def _why_ended(self) -> str:
        ended = self.nodes.unexpected[0]
        said = self._last_words(ended.node)
        if said:
            return f"a process could not be started: {said}"
        return f"{ended.node} ended with code {ended.code} while the cluster was starting"

    def _last_words(self, node: str) -> str:
        """The last line of a node's output: why it ended."""
        output = self._folder.path / "output" / f"{node}.txt"
        with contextlib.suppress(OSError, IndexError):
            return output.read_text(errors="replace").strip().splitlines()[-1]
        return ""
