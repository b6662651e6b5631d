"""Our own brokers as the system under test: real processes, ZeroMQ between them, LMDB under them.

Between the nodes sits the link hub, unless the run wants none: then faults on links are impossible.
Everything belongs to one process, the harness, and ends with it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from harness.formats.problem import Problem, how_ended
from harness.formats.run_info import Promise
from harness.runs.run_folder import RunDir
from harness.systems.disks import JOURNAL
from harness.systems.floodmark import client_process, processes
from harness.systems.floodmark.admin import MAX_ANSWER_BYTES, Admin, MailAdmin
from harness.systems.floodmark.brokers import (
    CAPABILITIES,
    StartupMonitor,
    node_config,
    promise_of,
    topic_of,
)
from harness.systems.floodmark.group_states import write_group_states
from harness.systems.floodmark.mailbox import ZmqMailbox
from harness.systems.floodmark.nodes import Nodes
from harness.systems.floodmark.replica_logs import write_logs
from harness.systems.floodmark.trace_tail import TraceTail
from harness.systems.floodmark.world import RealWorld
from harness.systems.ports import socket_folder
from harness.systems.process_cluster import ProcessCluster
from harness.systems.remote_clients import RemoteClients
from nemesis.formats import message_log
from nemesis.formats.schedule import Schedule
from nemesis.links.hub_control import HubConfig, HubControl
from nemesis.links.link_process import LinksGone
from nemesis.world import Command
from node.formats.errors import FloodmarkError
from node.formats.trace import GROUP_STATE, TraceEvent
from node.formats.wire import ADMIN
from node.runtime.mailbox import EVERYONE_ELSE
from node.runtime.process import ProcessConfig

READY_TIMEOUT_S: Final = 30.0
HUB_EVERY_S: Final = 5.0
HUB_SILENT_S: Final = 10.0
HUB: Final = "hub"
CLIENTS: Final = "clients"


class FloodmarkCluster(ProcessCluster[Nodes]):
    """A cluster of our brokers: voters, brokers, the link hub, and the folder of their traces."""

    def __init__(
        self, schedule: Schedule, folder: RunDir, *, with_hub: bool = True, disk: str = JOURNAL
    ) -> None:
        """Prepare files and the folder of the sockets, which no other user may enter."""
        super().__init__(schedule, folder, ports=0, disk=disk)
        self._startup = StartupMonitor()
        self._states: list[TraceEvent] = []
        self._addresses: dict[str, str] = {}
        self._hub_problems: list[Problem] = []
        self._mail: ZmqMailbox | None = None
        self.admin: Admin | None = None
        self.hub: HubControl | None = None
        self._upgraded: dict[str, str] = {}
        self._heard_hub_s = time.monotonic()
        with self._given_back_on_error():
            self._give_addresses(with_hub)
            self._tail = TraceTail(folder.path / "trace", self.names)
            processes.prepare()

    # -- what it is

    @property
    def capabilities(self) -> tuple[str, ...]:
        return CAPABILITIES

    @property
    def undelivered(self) -> dict[str, int]:
        """The numbers of messages that the hub dropped, by receiver: it was not connected, or its
        queue was full; under the hub's name those that found no room in its own queue."""
        with contextlib.suppress(FloodmarkError):
            if self.hub is not None and self.hub.child.exitcode is None:
                stats = self.hub.stats()
                return {**stats.unreachable, HUB: stats.overflow}
        return {}

    @property
    def world(self) -> RealWorld:
        parts = (self.processes, self.hub, *self._world_parts())
        return RealWorld(*parts, self._data, self._command, self._upgraded)

    @property
    def promise(self) -> Promise:
        return promise_of(self._schedule)

    def address_map(self) -> dict[str, str]:
        """Return the address where each node listens; all clients share one address."""
        return {**self._addresses, **dict.fromkeys(self.factory.roles, self._addresses[CLIENTS])}

    # -- life

    def start(self) -> None:
        if HUB in self._addresses:
            self._start_hub()
        self._mail = ZmqMailbox(
            self._addresses[ADMIN], self._peers(ADMIN), max_message_bytes=MAX_ANSWER_BYTES
        )
        for node in self.names:
            self.processes.start(node)
        everybody, brokers = set(self.names), set(self.brokers)
        self._wait_for("every process to start", lambda: self._startup.started >= everybody)
        self._wait_for("every broker to be registered", lambda: self._startup.unfenced >= brokers)
        self.admin = MailAdmin(self._mail, self.voters)
        self._make_topic(self.admin)
        if self._disks is not None:
            self._disks.synced()

    def clients(self) -> RemoteClients:
        return self._start_clients(
            client_process.main,
            client_process.DriverConfig,
            bind=self._addresses[CLIENTS],
            peers=self._peers(CLIENTS),
        )

    def poll(self) -> list[TraceEvent]:
        events = super().poll()
        self._states += [event for event in events if event["event"] == GROUP_STATE]
        if self._mail is not None and (self.admin is None or self.admin.idle):
            self._mail.receive()  # late answers, and whatever else nobody waits for
        self._watch_hub()
        return events

    def dump_logs(self, folder: Path) -> list[str]:
        problems = []
        for node in self.brokers:
            if self.processes.is_up(node):
                problems.append(f"{node} still runs: its logs were not read")
                continue
            file = folder / f"{node}.jsonl"
            problems += write_logs(node, self._data(node), file, self.partitions)
        self.poll()  # the last states were traced at the stop
        if self._states:
            stopped = (node for node in self.brokers if not self.processes.is_up(node))
            write_group_states(map(self._data, stopped), self._states, folder.parent)
        return problems

    # -- inside

    def _make_processes(self) -> Nodes:
        return Nodes(self._config, self._exits, self._look_at_disk, self._environment)

    def _observe(self, event: TraceEvent) -> None:
        self._startup.feed([event])
        super()._observe(event)

    def _events(self) -> list[TraceEvent]:
        return self._tail.read()

    def _problems_of_links(self) -> list[Problem]:
        return self._hub_problems

    def _close_links(self) -> None:
        self._watch_hub()
        if self.hub is not None:
            self.hub.close()
        if self._mail is not None:
            self._mail.close()
        self._tail.close()

    def _watch_hub(self) -> None:
        """Note the end of the hub, or that it does not answer: without it no message passes."""
        if self.hub is None or self._hub_problems:
            return
        code, sentence = self.hub.child.exitcode, ""
        output = self._output / "hub.txt"
        if code is not None:
            sentence = f"the link hub ended during the run ({how_ended(code)}; see {output})"
        elif time.monotonic() - self._heard_hub_s > HUB_EVERY_S:
            try:
                self.hub.stats(HUB_SILENT_S)
            except LinksGone as error:
                sentence = f"{error} (see {output})"
            self._heard_hub_s = time.monotonic()
        if sentence:
            self._hub_problems.append(Problem(kind="hub-ended", sentence=sentence))

    def _command(self, command: Command) -> None:
        if self.admin is None:
            raise FloodmarkError(
                "no command can be sent to the controller before the cluster has started"
            )
        self.admin.carry_out(command)

    def _give_addresses(self, with_hub: bool) -> None:
        names = [*self.names, ADMIN, CLIENTS]
        if with_hub:
            names.append(HUB)
        folder = self._held.enter_context(socket_folder())
        # A path stays with its node: a restarted broker is found where it was.
        self._addresses = {name: f"ipc://{folder}/{name}" for name in names}

    def _peers(self, me: str) -> dict[str, str]:
        """Return the addresses that one process is given: the hub for all, or everyone directly."""
        if HUB in self._addresses:
            return {EVERYONE_ELSE: self._addresses[HUB]}
        direct = {n: a for n, a in self._addresses.items() if n not in (me, CLIENTS)}
        clients = {c: self._addresses[CLIENTS] for c in self.factory.roles if me != CLIENTS}
        return direct | clients

    def _config(self, node: str, incarnation: int) -> ProcessConfig:
        core = node_config(self._schedule.cluster, node, incarnation, self._upgraded)
        data = self._data(node)
        data.mkdir(parents=True, exist_ok=True)
        return ProcessConfig(
            core=core,
            data_dir=str(data),
            trace_file=str(self._path / "trace" / f"{node}.jsonl"),
            output_file=str(self._output / f"{node}.txt"),
            bind=self._addresses[node],
            peers=self._peers(node),
            parent_pid=os.getpid(),
            seed=self._schedule.workload.seed,
            disk_pid=0 if self._disks is None else self._disks.start(node),
        )

    def _start_hub(self) -> None:
        nodes = {
            name: address
            for name, address in self.address_map().items()
            if name not in (HUB, CLIENTS)
        }
        config = HubConfig(
            bind=self._addresses[HUB],
            nodes=nodes,
            seed=self._schedule.workload.seed,
            parent_pid=os.getpid(),
            output_file=str(self._output / "hub.txt"),
            messages_file=str(self._path / message_log.FILE),
        )
        self.hub = HubControl(config)
        self.hub.wait_ready()

    def _make_topic(self, admin: Admin) -> None:
        cluster = self._schedule.cluster
        wanted = cluster.partition_names()
        admin.begin(topic_of(cluster, groups=self._schedule.workload.members > 0))

        def led() -> bool:
            answer = admin.step()
            if answer is not None and answer.error:
                raise FloodmarkError(f"the topic could not be made: {answer.detail}")
            return all(self.view.leader(partition) for partition in wanted)

        self._wait_for("every partition to have a leader", led)
        admin.give_up()  # its leaders may be known before its answer

    def _wait_for(self, what: str, is_so: Callable[[], bool]) -> None:
        """Watch the traces until `is_so`. Raises FloodmarkError after READY_TIMEOUT_S."""
        if not self._await(is_so, READY_TIMEOUT_S):
            raise FloodmarkError(
                f"waited {READY_TIMEOUT_S:g} s for {what}, in vain (see {self._output})"
            )
