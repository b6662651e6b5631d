"""What a run does to the processes of its nodes, and how each of them ended; for all systems."""

from __future__ import annotations

import signal
from typing import Generic, Literal, Protocol, TypeVar

import msgspec

from harness.formats.problem import Problem, node_ended, suspended
from harness.formats.process_exits import Exit
from harness.runs.clock import now_us
from harness.runs.host_disk import HostDisk
from harness.runs.suspension import is_stopped
from node.formats.files import AppendOnlyFile

Done = Literal["kill", "stop", "itself", "hung"]
"""What the harness did to a process before it ended; "itself": nothing."""
EndedBy = Literal["kill", "stop", "itself", "outside"]


class RunningNode(Protocol):
    """A process that runs: which one of its node it is, and whether it is paused."""

    incarnation: int
    paused: bool


Running = TypeVar("Running", bound=RunningNode)


class NodeProcesses(Generic[Running]):
    """All node processes of one run, by name. A subclass starts, signals and reaps them."""

    def __init__(self, exits: AppendOnlyFile) -> None:
        """Each end goes on record in `exits`."""
        self._exits = exits
        self._host = HostDisk(exits.path.parent)
        self._running: dict[str, Running] = {}
        self._incarnations: dict[str, int] = {}
        self.unexpected: list[Exit] = []
        self._problems: list[Problem] = []

    @property
    def problems(self) -> list[Problem]:
        """Return what others did to the processes, and what the disk of the host did."""
        return [*self._problems, *self._host.problems]

    def is_up(self, node: str) -> bool:
        """Whether the node has a process, as far as is known since the last `reap`."""
        return node in self._running

    def is_paused(self, node: str) -> bool:
        """Whether it has one that `pause` has stopped."""
        return node in self._running and self._running[node].paused

    def incarnation(self, node: str) -> int:
        """The number of the node's latest process, 0 before the first."""
        return self._incarnations.get(node, 0)

    def kill(self, node: str) -> None:
        """SIGKILL; returns when the process is gone."""
        if node in self._running:
            self._bury(node, "kill" if self._signal(node, signal.SIGKILL) else "itself")

    def kill_all(self) -> None:
        """End everything at once, on record as asked for."""
        sent = {node: self._signal(node, signal.SIGKILL) for node in self._running}
        for node in list(self._running):
            self._bury(node, "kill" if sent[node] else "itself")

    def pause(self, node: str) -> None:
        """SIGSTOP."""
        if node in self._running:
            self._running[node].paused = True
            self._signal(node, signal.SIGSTOP)

    def resume(self, node: str) -> None:
        """SIGCONT."""
        if node in self._running:
            # In this order: who sees it stopped must know that it is paused.
            self._signal(node, signal.SIGCONT)
            self._running[node].paused = False

    def ask_to_stop(self, node: str) -> None:
        """SIGTERM; a paused node is resumed for it."""
        if node in self._running:
            self.resume(node)
            self._signal(node, signal.SIGTERM)

    def reap(self) -> list[Exit]:
        """Notice processes that ended by themselves; returns their ends."""
        self._host.look()
        ended = [node for node, running in self._running.items() if self._has_ended(running)]
        return [self._bury(node, "itself") for node in ended]

    def node_of(self, pid: int) -> str:
        """Return the node that a process belongs to, "" if to none. Any thread may ask."""
        return next((n for n, each in list(self._running.items()) if self._has(n, each, pid)), "")

    def note_stopped(self, node: str, pid: int) -> bool:
        """Note that a process of a node is stopped, which is a problem of the run if no fault did
        that; return whether none did. Any thread may ask."""
        running = self._running.get(node)
        if running is None or running.paused:
            return False
        # A fault may have resumed it, and paused it before, since it was seen.
        if is_stopped(pid) and suspended(node) not in self._problems:
            self._problems.append(suspended(node))
        return True

    def was_suspended(self, node: str) -> bool:
        """Return whether somebody else has stopped a process of the node in this run."""
        return suspended(node) in self._problems

    # -- what a subclass knows

    def _pid(self, running: Running) -> int:
        """The process."""
        raise NotImplementedError

    def _has(self, node: str, running: Running, pid: int) -> bool:
        """Return whether a process is that of a node, or one that it started."""
        return self._pid(running) == pid

    def _has_ended(self, running: Running) -> bool:
        """Whether a process is over; asked before a signal, since it reaps what has ended."""
        raise NotImplementedError

    def _signal(self, node: str, number: signal.Signals) -> bool:
        """Send a signal to a process that runs; whether one does."""
        raise NotImplementedError

    def _bury(self, node: str, done: Done) -> Exit:
        """Reap an ended process, and put its end on record (`_record`)."""
        raise NotImplementedError

    # -- for a subclass

    def _said(self, node: str, running: Running) -> str:
        """Return the last sentence of an ended process, "" if there is none."""
        raise NotImplementedError

    def _record(
        self, node: str, running: Running, code: int, by: EndedBy, *, expected: bool
    ) -> Exit:
        """Write down an end. One from outside is a problem of the run, and so is one because of
        the host; another one that was not `expected` is a finding about the system."""
        if by == "outside":
            self._problems.append(node_ended(node, code))
        elif not expected:
            why = self._host.why_ended(node, self._said(node, running))
            if why is not None:
                self._problems.append(why)
                expected = True
        ended = Exit(
            node=node,
            incarnation=running.incarnation,
            t_us=now_us(),
            code=code,
            by=by,
            expected=expected,
        )
        if by != "outside" and not expected:
            self.unexpected.append(ended)
        self._exits.write(msgspec.json.encode(ended) + b"\n")
        return ended


def ended_by(done: Done, code: int, *, obeyed: bool, outside: bool) -> EndedBy:
    """Who ended a process, by what the harness did to it and its exit code: whether that is one of
    a process that `obeyed` SIGTERM, and one that only somebody `outside` causes."""
    if done == "kill" and code == -signal.SIGKILL:
        return "kill"
    if done == "stop" and obeyed:
        return "stop"
    if done == "hung":
        return "itself"
    return "outside" if outside else "itself"
