"""A cluster of processes, whatever the system: its nodes, their disks and clocks, the clients."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from harness.clients.factory import ClientFactory
from harness.formats.problem import Problem
from harness.runs.run_folder import RunDir
from harness.systems.disks import USER_SPACE, UserDisks
from harness.systems.interface import ClusterUnderTest
from harness.systems.node_processes import NodeProcesses, last_lines
from harness.systems.ports import PortLease
from harness.systems.remote_clients import ClientsConfig, RemoteClients
from nemesis.formats.schedule import Schedule
from nemesis.strace import Tracers
from nemesis.view import ClusterView
from nemesis.wall_clocks import WallClocks, clocks_for
from node.formats.errors import FloodmarkError
from node.formats.trace import TraceEvent

_LOOK_S: Final = 0.005

Processes = TypeVar("Processes", bound=NodeProcesses[Any])


class ProcessCluster(ClusterUnderTest, Generic[Processes]):
    """A cluster of processes. A subclass starts them and reads their reports."""

    def __init__(self, schedule: Schedule, folder: RunDir, *, ports: int, disk: str) -> None:
        """Lease ports and prepare files; no process starts yet. `folder` is the run folder, `disk`
        the form of the disks."""
        self._schedule = schedule
        self._path = folder.path
        self.brokers = schedule.cluster.broker_names()
        self.voters = schedule.cluster.voter_names()
        # The brokers need the metadata: voters start first.
        self.names = (*self.voters, *self.brokers)
        self.view = ClusterView()
        self.factory = ClientFactory(cluster=schedule.cluster, workload=schedule.workload)
        self._held = ExitStack()
        with self._given_back_on_error():
            self._lease = self._held.enter_context(PortLease(ports))
            self._exits = self._held.enter_context(closing(folder.append_only("exits.jsonl")))
            self._output = folder.folder("output")
            self._tracers = Tracers(self._output)
            self._clocks = clocks_for(schedule, self._output, self.names)
            self._disks: UserDisks | None = None
            if disk == USER_SPACE:
                folders = {node: self._data(node) for node in self.names}
                self._disks = UserDisks(folders, self._output, schedule)
            self.processes = self._make_processes()
        self._clients: RemoteClients | None = None
        self._closed = False

    @property
    def problems(self) -> list[Problem]:
        disks = () if self._disks is None else self._disks.problems
        return [*self._problems_of_links(), *disks, *self.processes.problems]

    @property
    def output_folder(self) -> Path:
        return self._output.resolve()

    @property
    def partitions(self) -> dict[str, tuple[str, ...]]:
        return {p: self.view.replicas(p) for p in self._schedule.cluster.partition_names()}

    # -- life

    def poll(self) -> list[TraceEvent]:
        if self._disks is not None:
            self._disks.watch(self._blame_disk)
        for ended in self.processes.reap():
            self.view.lost(ended.node)
        return self._events()

    def ended(self) -> tuple[str, ...]:
        return tuple(exit.node for exit in self.processes.unexpected)

    def resume_suspended(self) -> None:
        self.processes.resume_suspended()

    def stop(self) -> None:
        for group in (self.brokers, self.voters):
            for node in group:
                self.processes.ask_to_stop(node)
            for node in group:
                self.processes.await_stop(node)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        # From the last to the first, each even if one before it fails.
        with self._held as rest:
            rest.callback(self._close_links)
            if self._disks is not None:
                rest.callback(self._disks.close)
            rest.callback(self.processes.close)
            rest.callback(self._tracers.close)

    # -- for a subclass to say

    def _make_processes(self) -> Processes:
        """Return the processes of the nodes; none runs yet."""
        raise NotImplementedError

    def _events(self) -> list[TraceEvent]:
        """Return the trace events since the last call."""
        raise NotImplementedError

    def _problems_of_links(self) -> list[Problem]:
        """Return the problems of the links between the nodes."""
        raise NotImplementedError

    def _close_links(self) -> None:
        """End the links between the nodes."""
        raise NotImplementedError

    # -- for a subclass to use

    @contextmanager
    def _given_back_on_error(self) -> Iterator[None]:
        """Give ports and files back when the making of the cluster fails."""
        try:
            yield
        except BaseException:
            self._held.close()
            raise

    def _observe(self, event: TraceEvent) -> None:
        """Take in an event while the cluster starts."""
        self.view.observe(event)

    def _await(self, is_so: Callable[[], bool], limit_s: float) -> bool:
        """Watch the cluster until `is_so`; return whether that came in time. Raises FloodmarkError
        when a node ends, or when there is a problem."""
        deadline = time.monotonic() + limit_s
        while not is_so():
            for event in self.poll():
                self._observe(event)
            if self.processes.unexpected or self.problems:
                raise FloodmarkError(self._why_ended())
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_S)
        return True

    def _why_ended(self) -> str:
        if not self.processes.unexpected:
            return self.problems[0].sentence
        ended = self.processes.unexpected[0]
        lines = self._last_lines(ended.node)
        said = f"its last lines: {lines}" if lines else "it printed nothing"
        return f"{ended.node} ended with code {ended.code} while the cluster was starting; {said}"

    def _last_lines(self, node: str) -> str:
        return last_lines(self._output / f"{node}.txt")

    def _world_parts(
        self,
    ) -> tuple[UserDisks | None, Callable[[int], None], Tracers, WallClocks | None]:
        """Return the parts of a world beside processes and links."""
        return self._disks, self._operate, self._tracers, self._clocks

    def _start_clients(
        self, main: Callable[..., None], config: type[ClientsConfig], **more: Any
    ) -> RemoteClients:
        made = config(
            factory=self.factory,
            history=str(self._path / "history.jsonl"),
            output=str(self._output / "clients.txt"),
            parent_pid=os.getpid(),
            **more,
        )
        self._clients = RemoteClients(main, made)
        return self._clients

    def _operate(self, operation: int) -> None:
        if self._clients is None:
            raise FloodmarkError(f"operation {operation} needs clients, which have not started")
        self._clients.ask("operate", operation)

    def _look_at_disk(self, node: str) -> None:
        """Blame the disk of a node that has ended, if the disk has ended too."""
        if self._disks is not None:
            self._disks.look(node, self._blame_disk)

    def _blame_disk(self, node: str) -> None:
        self.processes.blame_disk(node, now=True)

    def _environment(self, node: str) -> Mapping[str, str]:
        return {} if self._clocks is None else self._clocks.environment(node)

    def _data(self, node: str) -> Path:
        return self._path.absolute() / "data" / node
