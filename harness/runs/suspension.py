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
from pathlib import Path
from typing import Final

from harness.formats.problem import Problem, suspended
from harness.runs.repeated_look import RepeatedLook

LOOK_S: Final = 0.5
_STOPPED: Final = b"T"


def is_stopped(pid: int) -> bool:
    """Whether a signal keeps the process from running; a debugger does not count."""
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


class KeptGoing(RepeatedLook):
    """Lets a process go on whenever somebody stops it, while this is entered.

    For a process that has nothing to do with the system under test, such as the JVM of Spark: that
    it stood still changes no verdict, but who waits for it would wait for ever.
    """

    def __init__(self, pid_of: Callable[[], int]) -> None:
        """`pid_of` gives the process of the moment, 0 while there is none."""
        super().__init__(self._resume, LOOK_S, "kept-going")
        self._pid_of = pid_of

    def _resume(self) -> None:
        if pid := self._pid_of():
            resume_if_stopped(pid)


class SuspensionWatch:
    """Watches the parts of a harness, of which none is ever stopped on purpose."""

    def __init__(self) -> None:
        """Nothing has been suspended yet."""
        self.problems: list[Problem] = []

    def look(self, parts: Mapping[str, int]) -> None:
        """Look at processes by what a person calls them ("The link hub")."""
        for part, pid in parts.items():
            if pid and resume_if_stopped(pid) and suspended(part) not in self.problems:
                self.problems.append(suspended(part))
