"""The processes of the nodes of a run, for all systems: signals, and the record of each end."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Final, Generic, Literal, Protocol, TypeVar

import msgspec

from harness.formats.problem import Problem, node_ended, suspended
from harness.formats.process_exits import Exit
from harness.runs.clock import now_us
from harness.runs.host_disk import HostDisk
from harness.runs.process_tree import is_stopped
from node.formats.errors import StorageError
from node.formats.files import AppendOnlyFile

Done = Literal["kill", "stop", "itself", "hung"]
"""What the harness did to a process before it ended; "itself": nothing."""
EndedBy = Literal["kill", "stop", "itself", "outside"]


LAST_LINES: Final = 5
_LAST_BYTES: Final = 1024


class RunningNode(Protocol):
    """A running process: its incarnation (1 for the node's first process), and whether it is
    paused."""

    incarnation: int
    paused: bool


Running = TypeVar("Running", bound=RunningNode)


class NodeProcesses(Generic[Running]):
    """All node processes of one run, by name. A subclass starts, signals and reaps them."""

    stop_timeout_s: float
    """How long a process may take to end after SIGTERM."""

    def __init__(self, exits: AppendOnlyFile) -> None:
        """Put each end on record in `exits`."""
        self._running: dict[str, Running] = {}
        self._incarnations: dict[str, int] = {}
        self.go_on(exits)

    def go_on(self, exits: AppendOnlyFile) -> None:
        """Record the ends of processes in `exits` from now on, and forget the earlier ones."""
        self._exits = exits
        self._host = HostDisk(exits.path.parent)
        self.unexpected: list[Exit] = []
        self._problems: list[Problem] = []

    @property
    def problems(self) -> list[Problem]:
        """Return problems caused by signals from outside, and by the disk of the host."""
        return [*self._problems, *self._host.problems]

    def is_up(self, node: str) -> bool:
        """Return whether the node has a process, as of the last `reap`."""
        return node in self._running

    def is_paused(self, node: str) -> bool:
        """Return whether the node has a process that `pause` has stopped."""
        return node in self._running and self._running[node].paused

    def incarnation(self, node: str) -> int:
        """Return the incarnation of the node's latest process: 1 for its first, 0 if there was
        none."""
        return self._incarnations.get(node, 0)

    def pid(self, node: str) -> int | None:
        """Return the process that was started for the node; None when it is down."""
        return self._pid(self._running[node]) if node in self._running else None

    def pids(self, node: str) -> list[int]:
        """Return all processes of a node that is up."""
        return [self._pid(self._running[node])] if node in self._running else []

    def start(self, node: str) -> None:
        """Start the node's next process, unless one runs; return without waiting until it is ready.
        Raises FloodmarkError when it cannot be started."""
        raise NotImplementedError

    def blame_disk(self, node: str, *, now: bool = False, reads: bool = True) -> None:
        """Expect that the node's next process ends because of its disk; with `now` the present one
        too. `reads`: reads can fail as well as writes."""
        raise NotImplementedError

    def boot_again(self, node: str) -> None:
        """Let the node's next processes see a new boot of the host, as after a power cut."""

    def kill(self, node: str) -> None:
        """Send SIGKILL to the node's process; return when it is gone."""
        if node in self._running:
            self._bury(node, "kill" if self._signal(node, signal.SIGKILL) else "itself")

    def kill_all(self) -> None:
        """Kill all processes; their ends count as requested."""
        sent = {node: self._signal(node, signal.SIGKILL) for node in self._running}
        for node in list(self._running):
            self._bury(node, "kill" if sent[node] else "itself")

    def pause(self, node: str) -> None:
        """Stop the node's process with SIGSTOP."""
        if node in self._running:
            self._running[node].paused = True
            self._signal(node, signal.SIGSTOP)

    def resume(self, node: str) -> None:
        """Let the node's process go on with SIGCONT."""
        if node in self._running:
            # In this order: who sees it stopped must know that it is paused.
            self._signal(node, signal.SIGCONT)
            self._running[node].paused = False

    def ask_to_stop(self, node: str) -> None:
        """Send SIGTERM to the node's process; resume it for that if it is paused."""
        if node in self._running:
            self.resume(node)
            self._signal(node, signal.SIGTERM)

    def await_stop(self, node: str) -> None:
        """Wait for the end of a process after `ask_to_stop`. One that hangs is killed, and its end
        counts as unexpected."""
        running = self._running.get(node)
        if running is None:
            return
        ended = self._ends_within(running, self.stop_timeout_s)
        if not ended and self.was_suspended(node):
            ended = self._ends_within(running, self.stop_timeout_s)
        if not ended:
            self._kill_hung(node)
        self._bury(node, "stop" if ended else "hung")

    def close(self) -> None:
        """Kill all processes."""
        self.kill_all()

    def notice_end(self, node: str) -> None:
        """Notice that the node's process has ended by itself, most likely because of a fault."""
        if node in self._running and self._has_ended(self._running[node]):
            self._bury(node, "itself")

    def reap(self) -> list[Exit]:
        """Notice all processes that have ended by themselves; return their ends."""
        self._host.look()
        ended = [node for node, running in self._running.items() if self._has_ended(running)]
        return [self._bury(node, "itself") for node in ended]

    def node_of(self, pid: int) -> str:
        """Return the node that a process belongs to, "" if to none. Any thread may ask."""
        return next((n for n, each in list(self._running.items()) if self._has(n, each, pid)), "")

    def note_stopped(self, node: str, pid: int) -> bool:
        """Note that a process of a node is suspended, which is a problem of the run unless a fault
        did it. Returns whether no fault did it. May be called in any thread."""
        running = self._running.get(node)
        if running is None or running.paused:
            return False
        # A fault may have resumed it, and paused it before, since it was seen.
        if is_stopped(pid) and suspended(node) not in self._problems:
            self._problems.append(suspended(node))
        return True

    def was_suspended(self, node: str) -> bool:
        """Return whether another program suspended a process of the node in this run."""
        return suspended(node) in self._problems

    # -- what a subclass knows

    def _pid(self, running: Running) -> int:
        """Return the number of a process."""
        raise NotImplementedError

    def _has(self, node: str, running: Running, pid: int) -> bool:
        """Return whether a process is that of a node, or one that it started."""
        return self._pid(running) == pid

    def _has_ended(self, running: Running) -> bool:
        """Return whether a process is over; asked before a signal, since it reaps that process."""
        raise NotImplementedError

    def _ends_within(self, running: Running, limit_s: float) -> bool:
        """Wait for the end of a process; return whether it came in time."""
        raise NotImplementedError

    def _kill_hung(self, node: str) -> None:
        """End a process that does not stop."""
        self._signal(node, signal.SIGKILL)

    def _signal(self, node: str, number: signal.Signals) -> bool:
        """Send a signal to a process that runs; return whether one does."""
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
        said = "" if expected or by == "outside" else self._said(node, running)
        if by == "outside":
            self._problems.append(node_ended(node, code))
        elif not expected:
            why = self._host.why_ended(node, said)
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
            said=said or msgspec.UNSET,
        )
        if by != "outside" and not expected:
            self.unexpected.append(ended)
        try:
            self._exits.write(msgspec.json.encode(ended) + b"\n")
        except StorageError as error:
            # The others must still be ended, and noticed.
            lost = Problem(kind="not-saved", sentence=str(error))
            self._problems += [lost] if lost not in self._problems else []
        return ended


def last_lines(output: Path) -> str:
    """Return the last lines of a process's output, in one line; "" if it printed nothing."""
    with contextlib.suppress(OSError), output.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_BYTES))
        lines = file.read().decode(errors="replace").strip().splitlines()
        return " / ".join(line.strip() for line in lines[-LAST_LINES:])
    return ""


def ended_by(done: Done, code: int, *, obeyed: bool, outside: bool) -> EndedBy:
    """Return who ended a process. `done` is what the harness did to it. Its exit code decides the
    rest: `obeyed` if it is the code of a process that obeys SIGTERM, `outside` if it can only come
    from another program."""
    if done == "kill" and code == -signal.SIGKILL:
        return "kill"
    if done == "stop" and obeyed:
        return "stop"
    if done == "hung":
        return "itself"
    return "outside" if outside else "itself"
