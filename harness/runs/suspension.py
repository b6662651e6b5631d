"""Processes of a run that somebody else suspends (SIGSTOP), which is a problem of the run.

A suspended process looks like a slow network. It is resumed, because later phases need it. A
suspension shorter than the time between two looks is not noticed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harness.formats.problem import Problem, suspended
from harness.runs.clock import PeriodicThread
from harness.runs.process_tree import descendants, is_stopped, resume_if_stopped

if TYPE_CHECKING:
    from harness.systems.node_processes import NodeProcesses

LOOK_S: Final = 0.2
_SPARK: Final = "spark"
"""Its JVM has nothing to do with the system under test: it goes on, and that is all."""


class KeptGoing(PeriodicThread):
    """A thread that resumes all suspended processes below this one, for as long as the context
    lasts. For helpers such as the JVM of Spark, whose suspension must change no verdict."""

    def __init__(self) -> None:
        super().__init__(self._resume, LOOK_S, "kept-going")

    def _resume(self) -> None:
        for pid in descendants(os.getpid()):
            resume_if_stopped(pid)


class SuspensionWatch:
    """A watch for suspended processes below the harness, from `begin` to `end`. It has a thread of
    its own, because the harness itself may wait for a suspended process."""

    def __init__(self, nodes: NodeProcesses[Any], parts: Callable[[], Mapping[str, int]]) -> None:
        """`parts` gives processes that are never stopped on purpose, named for a person."""
        self._nodes = nodes
        self._parts = parts
        self._looking = ExitStack()
        self.problems: list[Problem] = []

    def begin(self) -> None:
        """Start the thread, which calls `look` every `LOOK_S` seconds."""
        self._looking.enter_context(PeriodicThread(self.look, LOOK_S, "suspensions"))

    def end(self) -> None:
        """Stop the thread. May be called before `begin`, and twice."""
        try:
            self._looking.close()
        except Exception as error:
            sentence = f"processes were not watched to the end ({error!r})"
            self.problems.append(Problem(kind="phase-failed", sentence=sentence))

    def look(self) -> None:
        """Find all suspended processes, note and resume each that no fault suspended."""
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
    """Return a name for a process of the harness that has none of its own."""
    with contextlib.suppress(OSError):
        if Path(f"/proc/{pid}/fd/1").readlink().name == f"{_SPARK}.txt":
            return _SPARK
    with contextlib.suppress(OSError):
        return f"A process of the harness ({Path(f'/proc/{pid}/comm').read_text().strip()})"
    return "A process of the harness"
