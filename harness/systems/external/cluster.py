"""A cluster of an external system: nodes, links, clients, probe and log dump, from an adapter."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.formats.history import GROUP_PREFIX
from harness.formats.problem import Problem
from harness.formats.run_info import MemberRecord, Promise
from harness.formats.seal import PROBES
from harness.runs.run_folder import RunDir
from harness.systems.adapter import Adapter, Members, Node
from harness.systems.disks import PLAIN
from harness.systems.external import calls, client_process, launcher
from harness.systems.external.links import CLIENTS, KERNEL_LINKS, PROXY_LINKS, Links
from harness.systems.external.load import AdapterChoice
from harness.systems.external.logs import DumpConfig, NodeDump, dump_logs
from harness.systems.external.membership import MemberChanges
from harness.systems.external.probe import Probe
from harness.systems.external.processes import ExternalProcesses, Launch, entering
from harness.systems.external.unsynced import UnsyncedFiles
from harness.systems.external.versions import servers_of, unsupported_change
from harness.systems.external.world import ExternalWorld
from harness.systems.interface import NO_LINKS
from harness.systems.process_cluster import ProcessCluster
from harness.systems.remote_clients import RemoteClients
from nemesis.faults.losses import may_lose_synced
from nemesis.formats.schedule import Schedule
from nemesis.links import kernel_links
from nemesis.links.dialers import direct_connections
from nemesis.links.kernel_links import KernelLinks
from nemesis.links.tcp_control import Door, ProxyConfig, TcpLinks
from node.formats.errors import FloodmarkError
from node.formats.files import AppendOnlyFile
from node.formats.host_errors import reason
from node.formats.trace import TraceEvent

CREATE_TIMEOUT_S: Final = 10.0
IN_SYNC_TIMEOUT_S: Final = 10.0
_RETRY_S: Final = 0.2


class ExternalCluster(ProcessCluster[ExternalProcesses]):
    """A cluster of a third-party system."""

    def __init__(
        self,
        choice: AdapterChoice,
        name: str,
        schedule: Schedule,
        folder: RunDir,
        form: str,
        disk: str = PLAIN,
    ) -> None:
        """Lease ports and prepare files. `form` is that of the links."""
        self._choice = choice
        self._name = name
        self._adapter = adapter = choice.load()
        self._form = form
        names = (*schedule.cluster.broker_names(), *schedule.cluster.voter_names())
        needed = len(names) * ports_per_node(adapter, form)
        super().__init__(schedule, folder, ports=needed, disk=disk)
        self._links: Links | None = None
        self._kernel: KernelLinks | None = None
        with self._given_back_on_error():
            self._held.enter_context(_without_logging())
            ports = iter(self._lease.ports)
            self.nodes = {node: self._node(node, ports) for node in self.names}
            self._changes = MemberChanges(
                *(adapter, self.nodes, self.brokers, schedule.cluster.brokers, self),
                view=self.view,
                servers=servers_of(adapter),
                copies=schedule.cluster.replication_factor,
            )
            self._healing: Iterator[None] | None = None
            self._unsynced = UnsyncedFiles(adapter.unsynced_files)
            self._partitions = schedule.cluster.partition_names()
            groups = [GROUP_PREFIX + name for name in self._partitions if adapter.group_members]
            changes = (*adapter.changes, "operate")
            self._probe = Probe(
                adapter,
                self.nodes,
                lambda: self._changes.members,
                *((*self._partitions, *groups), self._running, self._output / "probe.txt"),
                asks_members=any(fault.what in changes for fault in schedule.faults),
            )
            self._answers: AppendOnlyFile | None = None
            self.view.leaderless = not adapter.writes("probe")
            if self._watched:
                self._answers = self._held.enter_context(closing(folder.append_only(PROBES)))
            self._dumped: list[NodeDump] | None = None

    # -- what it is

    @property
    def capabilities(self) -> tuple[str, ...]:
        """The evidence of a run: "logs" if the adapter can read them."""
        return ("logs",) if self._adapter.writes("dump") else ()

    @property
    def tells_in_sync(self) -> bool:
        """Return whether the adapter names in-sync nodes, or may still do so."""
        return self._watched and not self._never_in_sync

    @property
    def promise(self) -> Promise:
        """The promise of the system in this configuration, without guarantees for data that the
        schedule's faults may destroy."""
        found = self._ask("promise", self._adapter.promise)
        if not isinstance(found, Promise):
            raise FloodmarkError(f"system '{self._name}': promise returned no Promise")
        if why := unsupported_change(self._adapter, self._schedule):
            found = msgspec.structs.replace(found, words=why, source="")
        if why or may_lose_synced(self._schedule, self._adapter.damaged_disks + 1):
            return msgspec.structs.replace(
                found, disks_kept=False, committed_kept=False, durable_acks=False
            )
        return found

    @property
    def partitions(self) -> dict[str, tuple[str, ...]]:
        """The replicas of each partition as reported by the probe; after the logs were read, the
        nodes whose `dump` gave a log. No property of the system depends on the probe."""
        if self._dumped is None:
            return super().partitions
        return {
            name: tuple(dump.node for dump in self._dumped if name in dump.partitions)
            for name in self._partitions
        }

    @property
    def world(self) -> ExternalWorld:
        parts = (self.processes, self._links, *self._world_parts())
        return ExternalWorld(*parts, self.nodes, self._unsynced, self._changes)

    # -- life

    def start(self) -> None:
        """Start everything; return when every partition is made and, if the probe reports it, has
        all its replicas in sync."""
        if self._form != NO_LINKS:
            self._start_links()
        for node in (*self.voters, *self._changes.members):
            self.processes.start(node)
        self._probe.start()
        for partition in self._partitions:
            self._create(partition)
        if self._watched:
            self._await(self._all_in_sync, IN_SYNC_TIMEOUT_S)
        if self._disks is not None:
            self._disks.synced()
        for each in self.nodes.values():
            self._unsynced.synced(each.name, each.folder)
        self._note_bypassed()

    def clients(self) -> RemoteClients:
        clients = self._start_clients(
            client_process.main,
            client_process.ExternalClientsConfig,
            choice=self._choice,
            nodes=tuple(self.nodes[name] for name in self.brokers),
        )
        if self._links is not None:
            self._links.set_processes(CLIENTS, (os.getpid(), clients.pid))
        return clients

    def poll(self) -> list[TraceEvent]:
        self._changes.step()
        return super().poll()

    def heal_members(self) -> bool:
        if self._healing is None:
            self._healing = self._changes.heal()
        return next(self._healing, self) is self

    @property
    def membership(self) -> MemberRecord | None:
        return self._changes.record()

    # -- for changes of members

    def start_node(self, node: str) -> None:
        self.processes.start(node)

    def end_node(self, node: str, *, kill: bool) -> None:
        """End the process of a node, if it has one, and wait until it is gone."""
        if kill:
            self.processes.kill(node)
        else:
            self.processes.notice_end(node)
            self.processes.ask_to_stop(node)
            self.processes.await_stop(node)
        self.view.lost(node)

    def empty_disk(self, node: str) -> None:
        """Put the folder of a node that is down aside, and give it an empty one."""
        folder = self._data(node)
        if self._disks is not None:
            self._disks.rest(node)
        with contextlib.suppress(FileNotFoundError):
            folder.rename(folder.with_name(f"{node}.former-{self.processes.incarnation(node)}"))
        folder.mkdir(parents=True)

    def expect_end(self, node: str) -> None:
        """Expect that the present process of a node ends by itself."""
        self.processes.expected.process(node, self.processes.incarnation(node))

    def running(self) -> Collection[str]:
        """Return the brokers that have a process which is not paused."""
        return [node for node in self.brokers if self._running(node)]

    def said(self) -> Mapping[str, tuple[int, Members]]:
        return self._probe.said

    def stop(self) -> None:
        self._changes.note_listed()
        self._note_bypassed()
        self._probe.close()
        super().stop()

    def _note_bypassed(self) -> None:
        """Note the direct connections of now: a restarted node may dial others than before."""
        if isinstance(self._links, TcpLinks):
            pids = {node: self.processes.pids(node) for node in self.names}
            found = (
                f"{dialer} dials {self._port_in_words(node, port)} directly"
                for dialer, node, port in direct_connections(pids)
            )
            self.bypassed = tuple(sorted({*self.bypassed, *found}))

    def _port_in_words(self, node: str, port: int) -> str:
        """Return the address of a port, with its role if the adapter gave it one."""
        role = next((r for r, number in self.nodes[node].listens.items() if number == port), "")
        return f"{node}:{port} ({role})" if role else f"{node}:{port}"

    def dump_logs(self, folder: Path) -> list[str]:
        if not self._adapter.writes("dump"):
            return []
        running = [node for node in self.brokers if self.processes.is_up(node)]
        problems = [f"{node} still runs: its logs were not read" for node in running]
        config = DumpConfig(
            choice=self._choice,
            nodes=tuple(self.nodes[name] for name in self.brokers if name not in running),
            members=tuple(self._changes.members),
            partitions=self._partitions,
            record_bytes=self._schedule.workload.payload_bytes,
            folder=str(folder),
            output=str(self._output / "logs.txt"),
            parent_pid=os.getpid(),
        )
        self._dumped, more = dump_logs(config)
        return problems + more

    def close(self) -> None:
        """End all processes and threads."""
        self._probe.close()
        closing = calls.in_thread(self._adapter.resources.close)
        super().close()
        with contextlib.suppress(Exception):
            closing.result(calls.CLOSE_TIMEOUT_S)

    # -- inside

    @property
    def _watched(self) -> bool:
        """Return whether the nodes are asked who is in sync."""
        return self._adapter.writes("probe", "ready")

    def _make_processes(self) -> ExternalProcesses:
        return ExternalProcesses(
            *(self._launch, self._started, self._output, self._exits),
            stop_codes=self._adapter.stop_codes,
            look_at_disk=self._look_at_disk,
        )

    def _events(self) -> list[TraceEvent]:
        events = self._probe.events()
        if self._answers is not None and events:
            self._answers.write(msgspec.json.Encoder().encode_lines(events))
        return events

    def _problems_of_links(self) -> list[Problem]:
        sentences = self._links.problems if self._links is not None else []
        return [Problem(kind="hub-ended", sentence=sentence) for sentence in sentences]

    def _close_links(self) -> None:
        if self._links is not None:
            self._links.close()

    def _node(self, name: str, ports: Iterator[int]) -> Node:
        adapter = self._adapter
        listens = {role: next(ports) for role in (*adapter.listens, *adapter.probed)}
        others = {role: next(ports) for role in adapter.listens if self._form == PROXY_LINKS}
        made = Node(
            name=name,
            folder=self._data(name),
            listens=listens,
            dialed=listens | others,
            identity=name,
            files=self._output.absolute() / "files" / name,
        )
        if self._form == KERNEL_LINKS:
            return msgspec.structs.replace(made, host=kernel_links.address(name))
        return made

    def _start_links(self) -> None:
        """Start the links before any node dials."""
        if self._form == KERNEL_LINKS:
            spared = [n.listens[role] for n in self.nodes.values() for role in self._adapter.probed]
            self._links = self._kernel = KernelLinks(
                tuple(self.nodes), self.factory.working, spared
            )
            return
        doors = tuple(
            Door(node=node.name, role=role, listen=(node.host, port), target=(node.host, target))
            for node in self.nodes.values()
            for role, port in node.dialed.items()
            if (target := node.listens[role]) != port
        )
        self._links = TcpLinks(
            ProxyConfig(
                doors=doors,
                shared_clients=self.factory.working,
                seed=self._schedule.workload.seed,
                parent_pid=os.getpid(),
                output_file=str(self._output / "links.txt"),
            )
        )
        self._links.wait_ready()
        # The partitions are made from here.
        self._links.set_processes(CLIENTS, (os.getpid(),))

    def _started(self, node: str, pid: int) -> None:
        """Tell the links the processes of a started node."""
        if self._links is not None:
            self._links.set_processes(node, (pid,))

    def _running(self, node: str) -> int:
        """Return the number of the node's process; 0 while it has none, or a paused one."""
        processes = self.processes
        asleep = not processes.is_up(node) or processes.is_paused(node)
        return 0 if asleep else processes.incarnation(node)

    def _launch(self, name: str) -> Launch:
        me = msgspec.structs.replace(self.nodes[name], server=self._changes.server_of(name))
        members = (*self.voters, *self._changes.members)
        others = [self.nodes[other] for other in self.nodes if other in members and other != name]
        try:
            me.folder.mkdir(parents=True, exist_ok=True)
            me.files.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FloodmarkError(f"{me.folder}: cannot be made: {reason(error)}") from None
        command = self._ask("command", self._adapter.command, me, others)
        has_several = command and all(isinstance(each, list | tuple) and each for each in command)
        if has_several or self._adapter.restarts:
            commands = command if has_several else [command]
            command = launcher.together(commands, again=self._adapter.restarts)
        if isinstance(command, str) or not all(isinstance(word, str) for word in command):
            raise FloodmarkError(
                f"system '{self._name}': command must return a list of words, not {command!r}"
            )
        disk = 0 if self._disks is None else self._disks.start(name)
        command = [*entering(disk, ordinary=self._adapter.refuses_root), *command]
        launch = Launch(
            command=list(command),
            folder=me.folder,
            host=me.host,
            ports=me.listens,
            environment=self._environment(name),
        )
        if self._kernel is None:
            return launch
        # Nobody else is in its namespace, so its ports are free.
        inside = [*self._kernel.prefix(name), *command]
        return msgspec.structs.replace(launch, command=inside, ports={})

    def _ask(self, what: str, method: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method of the adapter; what it raises becomes one sentence."""
        try:
            return method(*arguments)
        except FloodmarkError:
            raise
        except Exception as error:
            raise FloodmarkError(
                f"system '{self._name}': {what} raised {calls.in_words(error)}"
            ) from error

    def _create(self, partition: str) -> None:
        """Create a partition, trying again until that succeeds. Raises FloodmarkError."""
        copies = self._schedule.cluster.replication_factor
        nodes = tuple(self.nodes[name] for name in self._changes.members)
        deadline = time.monotonic() + self._adapter.start_s
        why = ""
        while time.monotonic() < deadline:
            asked = (self._adapter.create, nodes, partition, copies)
            attempt = calls.begin(*asked, timeout_s=CREATE_TIMEOUT_S)
            if not self._await(attempt.done, CREATE_TIMEOUT_S):
                why = f"create took more than {CREATE_TIMEOUT_S:g} s"
                continue
            error = attempt.exception()
            if error is None:
                return
            if isinstance(error, NotImplementedError | FloodmarkError):
                why = f"create raised {calls.in_words(error)}"
                break
            why = f"create last raised {calls.in_words(error)}"
            self._await(lambda: False, _RETRY_S)
        raise FloodmarkError(
            f"system '{self._name}': {partition} could not be made within "
            f"{self._adapter.start_s:g} s: {why}{self._outputs()}"
        )

    @property
    def _never_in_sync(self) -> bool:
        """Return whether the probe named every leader and never a node that is in sync."""
        return not self._probe.names_in_sync and self._probe.led.issuperset(self._partitions)

    def _all_in_sync(self) -> bool:
        copies = self._schedule.cluster.replication_factor
        return self._never_in_sync or all(
            len(self.view.isr(partition)) >= copies for partition in self._partitions
        )

    def _outputs(self) -> str:
        """Return the last output of the nodes, to be appended to a sentence."""
        said = {node: self._last_lines(node) for node in self.nodes}
        return "".join(f"; {node} printed last: {lines}" for node, lines in said.items() if lines)


@contextlib.contextmanager
def _without_logging() -> Iterator[None]:
    """Client libraries log every attempt that fails, of `create` and `probe` too."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def ports_per_node(adapter: Adapter, form: str) -> int:
    """Return how many ports each node needs: those it listens on, and those of the proxies before
    it."""
    return len(adapter.listens) * (2 if form == PROXY_LINKS else 1) + len(adapter.probed)
