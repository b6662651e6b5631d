"""System calls that fail on demand: strace is attached to a process while a fault lasts.

Nothing runs slower before and after that. A process goes on as before when its strace is killed; if
the harness dies, the kernel kills strace. `--seccomp-bpf` is not used: with it the signals of an
injection are lost."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from nemesis.world import CallFails
from node.formats import host_tools
from node.formats.errors import FloodmarkError, UsageError

SYSCALL: Final = "syscall"
ATTACH_S: Final = 10.0
DETACH_S: Final = 10.0
_LOOK_S: Final = 0.01
_GROUPS: Final = {
    "sync": ("fsync", "fdatasync", "msync", "sync_file_range", "sync", "syncfs"),
    "write": ("write", "pwrite64", "writev", "pwritev", "pwritev2"),
    "read": ("read", "pread64", "readv", "preadv", "preadv2"),
    "open": ("open", "openat", "creat"),
}
_AFFECTED: Final = r"\((INJECTED|DELAYED)\)$"
"""The end of strace's line about a call that an injection has changed."""
_KILLED: Final = r"= \?$"
"""The end of its line about a call that never returned."""


def program() -> str:
    """Return the path of strace. Raises UsageError, which names the package to install."""
    found = host_tools.program("strace")
    if found is None:
        raise UsageError("the fault syscall needs strace, which is not installed: Debian: strace")
    return found


class Tracer:
    """A strace that is attached to some processes and makes their system calls fail."""

    def __init__(
        self, starter: Sequence[str], pids: Collection[int], fault: CallFails, counts: Path
    ) -> None:
        """Attach strace; return when all threads of the processes are traced. `starter` are words
        before its command line (to enter a namespace); the file `counts` gets the number of
        affected calls. Raises FloodmarkError."""
        self._counts = counts
        calls = ",".join(_GROUPS[fault.calls])
        inject = f"inject={calls}:{_effect(fault)}:when={fault.nth}"
        inject += "" if fault.action == "kill" else "+"
        targets = [word for pid in pids for word in ("-p", str(pid))]
        self._kills = fault.action == "kill"
        # strace counts the calls of each thread apart, so a total does not say which it changed.
        lines = _KILLED if self._kills else _AFFECTED
        counter = f"|grep -cE {shlex.quote(lines)} > {shlex.quote(str(counts))}"
        options = ["-f", "-qq", "-o", counter, "-e", "signal=none"]
        options += ["-e", f"raw={calls}", "-e", f"trace={calls}", "-e", inject]
        self._process = subprocess.Popen(
            [*starter, program(), *options, *targets],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        deadline = time.monotonic() + ATTACH_S
        while not all(map(_is_traced, pids)):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise FloodmarkError(f"strace cannot attach: {self._why()}")
            time.sleep(_LOOK_S)

    def detach(self) -> int:
        """Detach strace; return how many calls were affected."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(DETACH_S)
        self.kill()
        affected = self._counted()
        return min(1, affected) if self._kills else affected

    def kill(self) -> None:
        """Kill strace: the kernel lets its processes go on."""
        self._process.kill()
        self._process.wait(DETACH_S)
        if self._process.stderr is not None:
            self._process.stderr.close()

    def _why(self) -> str:
        self._process.kill()
        _, said = self._process.communicate(timeout=DETACH_S)
        lines = said.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def _counted(self) -> int:
        """Return how many lines of strace were about a call that was affected."""
        with contextlib.suppress(OSError, ValueError):
            return int(self._counts.read_text())
        return 0


def _effect(fault: CallFails) -> str:
    return {
        "error": f"error={fault.errno}",
        "lie": "retval=0",
        "delay": f"delay_exit={fault.delay_ms * 1000}",
        "kill": "signal=KILL",
    }[fault.action]


def _is_traced(pid: int) -> bool:
    """Return whether every thread of a process has a tracer; True if the process is gone."""
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            status = Path(f"/proc/{pid}/task/{thread}/status").read_text()
            if "\nTracerPid:\t0\n" in status:
                return False
    return True


class Tracers:
    """The faults of system calls of one run, by number. Main thread only."""

    def __init__(self, folder: Path) -> None:
        """Keep the counts of strace in `folder`."""
        self._folder = folder
        self._tracers: dict[int, tuple[str, Tracer]] = {}
        self._last_number = 0

    def add(
        self, node: str, starter: Sequence[str], pids: Collection[int], fault: CallFails
    ) -> int:
        """Attach strace (its command line begins with `starter`) to the processes `pids` of a node;
        return the number of the fault. Raises FloodmarkError if it is down or strace fails."""
        if not pids:
            raise FloodmarkError(f"{node} is down")
        if any(other == node for other, _ in self._tracers.values()):
            raise FloodmarkError(f"{node} already has a system-call fault (strace)")
        self._last_number += 1
        counts = self._folder / f"strace-{node}-{self._last_number}.txt"
        self._tracers[self._last_number] = node, Tracer(starter, pids, fault, counts)
        return self._last_number

    def remove(self, number: int) -> int:
        """Detach the strace of that fault; return how many calls were affected."""
        _, tracer = self._tracers.pop(number)
        return tracer.detach()

    def close(self) -> None:
        """Kill every strace that is still attached."""
        for _, tracer in self._tracers.values():
            tracer.kill()
        self._tracers.clear()
