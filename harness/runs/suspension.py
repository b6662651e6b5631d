"""Notices processes of a run that somebody suspends (SIGSTOP), and lets them go on.

A suspended process looks like a slow network to everybody else. A run in which that happened says
nothing about the system, so it is a problem of the run. The process is resumed, because what
follows needs it. A suspension shorter than the time between two looks is not seen: it is no longer
than the wait for a processor.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Protocol

from harness.formats.problem import Problem, suspended
from harness.runs.clock import PeriodicThread

LOOK_S: Final = 0.2
_STOPPED: Final = b"T"
_SPARK: Final = "spark"
"""Its JVM has nothing to do with the system under test: it goes on, and that is all."""


def is_stopped(pid: int) -> bool:
    """Return whether a signal keeps the process from running; a debugger does not count."""
    try:
        # The name of the program, in parentheses, may have any character.
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return False
    return state[:1] == [_STOPPED]


def resume_if_stopped(pid: int) -> bool:
    """Let a process go on that somebody else has stopped; whether one had."""
    if not is_stopped(pid):
        return False
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGCONT)
    return True


class KeptGoing(PeriodicThread):
    """Lets all processes below this one go on whenever somebody stops them, while it is entered.

    For processes that have nothing to do with the system under test, such as the JVM of Spark: that
    they stood still changes no verdict, but who waits for them would wait for ever.
    """

    def __init__(self) -> None:
        """Nothing is resumed before it is entered."""
        super().__init__(self._resume, LOOK_S, "kept-going")

    def _resume(self) -> None:
        for pid in descendants(os.getpid()):
            resume_if_stopped(pid)


def descendants(pid: int) -> list[int]:
    """Return all processes that `pid` started, and theirs; threads and processes end meanwhile."""
    found = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split():
                    found += [int(child), *descendants(int(child))]
    return found


def kill_helpers() -> None:
    """Kill the processes below this one that are left as it ends, stopped ones too: one that ends
    when a pipe is closed does not do so while it is stopped. A browser has a session of its own."""
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            if os.getsid(pid) == os.getsid(0) or is_stopped(pid):
                os.kill(pid, signal.SIGKILL)


class StoppableNodes(Protocol):
    """The node processes of a run, which faults pause and resume."""

    def node_of(self, pid: int) -> str:
        """Return the node that a process belongs to, "" if to none."""

    def note_stopped(self, node: str, pid: int) -> bool:
        """Note that a process of a node is stopped; return whether no fault did that."""


class SuspensionWatch:
    """Watches all processes below the harness from `begin` to `end`, whatever they are: a look
    lists them from the process tree. It has a thread of its own, because the harness itself may be
    waiting for the process that is stopped."""

    def __init__(self, nodes: StoppableNodes, parts: Callable[[], Mapping[str, int]]) -> None:
        """`parts` gives the processes that are never stopped on purpose and have a name for a
        person ("The link hub")."""
        self._nodes = nodes
        self._parts = parts
        self._looking = ExitStack()
        self.problems: list[Problem] = []

    def begin(self) -> None:
        """Look every so often from now on."""
        self._looking.enter_context(PeriodicThread(self.look, LOOK_S, "suspensions"))

    def end(self) -> None:
        """Look no more. May be called before `begin`, and twice."""
        try:
            self._looking.close()
        except Exception as error:
            sentence = f"processes were not watched to the end ({error!r})"
            self.problems.append(Problem(kind="phase-failed", sentence=sentence))

    def look(self) -> None:
        """Resume all processes that somebody else has stopped, and note them."""
        for pid in descendants(os.getpid()):
            if is_stopped(pid) and self._note(pid):
                resume_if_stopped(pid)

    def _note(self, pid: int) -> bool:
        """Return whether a stopped process shall go on."""
        node = self._nodes.node_of(pid)
        if node:
            return self._nodes.note_stopped(node, pid)
        names = {part: name for name, part in self._parts().items()}
        name = names.get(pid) or _title(pid)
        if name != _SPARK and suspended(name) not in self.problems:
            self.problems.append(suspended(name))
        return True


def _title(pid: int) -> str:
    """Return what to call a process of the harness that has no name of its own."""
    with contextlib.suppress(OSError):
        if Path(f"/proc/{pid}/fd/1").readlink().name == f"{_SPARK}.txt":
            return _SPARK
    with contextlib.suppress(OSError):
        return f"A process of the harness ({Path(f'/proc/{pid}/comm').read_text().strip()})"
    return "A process of the harness"
