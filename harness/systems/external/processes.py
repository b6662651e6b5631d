"""The node processes of an external system: started, signalled, reaped, every end recorded.

Each node is a session of its own, so a signal reaches its children too, and its environment has a
mark by which processes that left the session are found. None of them outlives the harness: see
`launcher` and `guardian`."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from harness.formats.problem import ended_from_outside
from harness.formats.process_exits import Exit
from harness.systems.external import guardian, launcher
from harness.systems.node_processes import Done, NodeProcesses, ended_by, last_lines
from node.formats.errors import FloodmarkError
from node.formats.files import AppendOnlyFile
from node.formats.host_errors import reason
from node.runtime import namespaces

STOP_TIMEOUT_S: Final = 20.0
REAP_TIMEOUT_S: Final = 10.0
PORT_TIMEOUT_S: Final = 5.0
_LOOK_S: Final = 0.02


class Launch(msgspec.Struct, frozen=True):
    """The way to start a node: its command line, its folder, the host and ports where it listens,
    and additional environment variables."""

    command: Sequence[str]
    folder: Path
    host: str
    ports: Mapping[str, int]
    environment: Mapping[str, str] = {}


@dataclass(slots=True)
class _NodeProcess:
    process: subprocess.Popen[bytes]
    incarnation: int
    paused: bool = False


class ExpectedExits:
    """The processes that may end by themselves, by node and incarnation, because a fault damaged
    their disk or affects them.

    Data that a disk has lost stays lost, so after that the ends of all later processes are
    expected. A fault that ends concerns only the processes that ran while it was in force."""

    def __init__(self) -> None:
        self._from: dict[str, int] = {}
        self._faults: dict[str, int] = {}
        self._processes: set[tuple[str, int]] = set()

    def from_now_on(self, node: str, incarnation: int) -> None:
        """Expect the end of process `incarnation` of the node and of all later ones."""
        self._from[node] = min(incarnation, self._from.get(node, incarnation))

    def process(self, node: str, incarnation: int) -> None:
        """Expect the end of this one process of the node."""
        self._processes.add((node, incarnation))

    def begin(self, node: str, incarnation: int) -> None:
        """Expect the end of this process, and of those that start before `end` is called for the
        fault."""
        self._faults[node] = self._faults.get(node, 0) + 1
        self.process(node, incarnation)

    def end(self, node: str) -> None:
        """Note that a fault of the node has ended."""
        self._faults[node] = max(0, self._faults.get(node, 0) - 1)

    def started(self, node: str, incarnation: int) -> None:
        """Note that the node has a new process, whose end is expected while a fault is in force."""
        if self._faults.get(node):
            self.process(node, incarnation)

    def covers(self, node: str, incarnation: int) -> bool:
        """Return whether process `incarnation` of the node may end by itself."""
        return (node, incarnation) in self._processes or incarnation >= self._from.get(
            node, incarnation + 1
        )


class ExternalProcesses(NodeProcesses[_NodeProcess]):
    """The processes of a third-party system. Main thread only, because the kernel kills a node when
    the thread that started it ends."""

    stop_timeout_s = STOP_TIMEOUT_S

    def __init__(
        self,
        launch: Callable[[str], Launch],
        started: Callable[[str, int], None],
        output: Path,
        exits: AppendOnlyFile,
        *,
        stop_codes: Collection[int],
        home: str = "",
        look_at_disk: Callable[[str], None] = lambda node: None,
    ) -> None:
        """`launch(node)` says how its next process is started, `started(node, pid)` is called when
        it was; its output goes to `output`/<node>.txt. `home` is removed once the harness is gone.
        `look_at_disk(node)` blames the disk of a node that has ended if the disk has ended too."""
        super().__init__(exits)
        self._look_at_disk = look_at_disk
        self._launch = launch
        self._started = started
        self._output = output
        self._stop_codes = frozenset(stop_codes)
        self._home = home
        self.mark = uuid.uuid4().hex
        self.expected = ExpectedExits()
        self._guardian: subprocess.Popen[bytes] | None = None

    def pids(self, node: str) -> list[int]:
        if node not in self._running:
            return []
        session = self._running[node].process.pid
        return sorted({*guardian.marked(self._mark_of(node)), *guardian.in_sessions({session})})

    def blame_disk(self, node: str, *, now: bool = False, reads: bool = True) -> None:
        first = max(1, self.incarnation(node)) if now else self.incarnation(node) + 1
        self.expected.from_now_on(node, first)

    def start(self, node: str) -> None:
        """Start the node's next process. Raises FloodmarkError, also if a port is taken."""
        if node in self._running:
            return
        if self._guardian is None:
            self._guardian = self._start_guardian()
        launch = self._launch(node)
        _await_free(node, launch)
        self._incarnations[node] = self.incarnation(node) + 1
        try:
            with (self._output / f"{node}.txt").open("ab") as out:
                process = subprocess.Popen(
                    [*launcher.starter(), *launch.command],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    cwd=launch.folder,
                    env={
                        **os.environ,
                        **launch.environment,
                        guardian.MARK: self.mark,
                        _NODE: f"{self.mark}-{node}",
                    },
                    start_new_session=True,
                )
        except OSError as error:
            raise FloodmarkError(f"{node} cannot be started: {reason(error)}") from None
        self._running[node] = _NodeProcess(process, self._incarnations[node])
        self.expected.started(node, self._incarnations[node])
        self._tell_guardian(f"+{process.pid}\n")
        self._started(node, process.pid)

    def close(self) -> None:
        super().close()
        guardian.kill_marked(f"{guardian.MARK}={self.mark}")
        if self._guardian is not None and self._guardian.stdin is not None:
            # A guardian that somebody has ended does not read what is left to be written.
            with contextlib.suppress(OSError):
                self._guardian.stdin.close()
            # One that somebody has stopped would not see that its pipe is closed.
            self._guardian.send_signal(signal.SIGCONT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._guardian.wait(REAP_TIMEOUT_S)
            self._guardian = None

    # -- inside

    def _start_guardian(self) -> subprocess.Popen[bytes]:
        mark = f"{guardian.MARK}={self.mark}"
        return subprocess.Popen(
            [sys.executable, "-I", "-S", guardian.__file__, mark, self._home],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _tell_guardian(self, line: str) -> None:
        if self._guardian is not None and self._guardian.stdin is not None:
            with contextlib.suppress(OSError):
                self._guardian.stdin.write(line.encode())
                self._guardian.stdin.flush()

    def _signal(self, node: str, number: signal.Signals) -> bool:
        """Send a signal to the session of the node, and to those of its processes that left it;
        return whether its first process runs. Only that one is asked to stop, as by an init system:
        a helper that ends before its server looks like a failure to it."""
        process = self._running[node].process
        runs = not self._has_ended(self._running[node])
        if number == signal.SIGTERM:
            process.send_signal(number)
            return runs
        if runs:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        for pid in self.pids(node):
            with contextlib.suppress(OSError):
                if os.getpgid(pid) != process.pid:
                    os.kill(pid, number)
        return runs

    def _mark_of(self, node: str) -> str:
        return f"{_NODE}={self.mark}-{node}"

    def _has(self, node: str, running: _NodeProcess, pid: int) -> bool:
        with contextlib.suppress(OSError):
            if os.getsid(pid) == running.process.pid:
                return True
            return self._mark_of(node).encode() in Path(f"/proc/{pid}/environ").read_bytes()
        return False

    def _said(self, node: str, running: _NodeProcess) -> str:
        return last_lines(self._output / f"{node}.txt")

    def _pid(self, running: _NodeProcess) -> int:
        return running.process.pid

    def _has_ended(self, running: _NodeProcess) -> bool:
        return running.process.poll() is not None

    def _ends_within(self, running: _NodeProcess, limit_s: float) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.process.wait(limit_s)
        return running.process.returncode is not None

    def _bury(self, node: str, done: Done) -> Exit:
        """Reap an ended node and put its end on record; what is left of it is killed."""
        running = self._running.pop(node)
        code = running.process.wait(REAP_TIMEOUT_S)
        self._look_at_disk(node)
        guardian.kill_marked(self._mark_of(node), {running.process.pid})
        self._tell_guardian(f"-{running.process.pid}\n")
        forgiven = self.expected.covers(node, running.incarnation)
        outside = ended_from_outside(code) and not forgiven
        by = ended_by(done, code, obeyed=code in self._stop_codes, outside=outside)
        expected = forgiven or by in ("kill", "stop", "outside")
        return self._record(node, running, code, by, expected=expected)


_NODE: Final = "FLOODMARK_NODE"


def entering(disk: int, *, ordinary: bool) -> list[str]:
    """Return the words to put before a command line whose process must not outlive this one. Its
    disk is in user space, served by the process `disk`, unless that is 0; if `ordinary`, it sees
    another user than root."""
    file, words = namespaces.__file__, list[str]()
    words += [launcher.DISK, file, str(disk)] if disk else []
    words += [launcher.ORDINARY, file] if ordinary and os.geteuid() == 0 else []
    return launcher.starter(*words) if words else []


def _await_free(node: str, launch: Launch) -> None:
    """Wait a little until the node's ports are free: the kernel may still be tidying up.

    Raises FloodmarkError when one stays taken.
    """
    deadline = time.monotonic() + PORT_TIMEOUT_S
    while taken := [p for p in launch.ports.values() if not _is_free(launch.host, p)]:
        if time.monotonic() > deadline:
            raise FloodmarkError(
                f"port {taken[0]} of {node} is taken by another process: end that, or run again "
                "for other ports"
            )
        time.sleep(_LOOK_S)


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host, port))
        except OSError:
            return False
    return True
