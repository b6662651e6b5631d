"""The node processes of an external system: started, signalled, reaped, every end recorded.

Each node is a session of its own, so a signal reaches its children too, and its environment has a
mark by which processes that left the session are found. None of them outlives the harness: see
`launcher` and `guardian`."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from harness.systems.external import guardian, launcher
from harness.systems.node_processes import REAP_TIMEOUT_S, NodeProcess, NodeProcesses, last_lines
from harness.systems.ports import is_free
from node.formats.errors import FloodmarkError
from node.formats.files import AppendOnlyFile
from node.formats.host_errors import reason
from node.runtime import namespaces

STOP_TIMEOUT_S: Final = 20.0
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


class _Session(NodeProcess):
    """The session of a node, and the processes of it that left the session, known by `mark`."""

    def __init__(
        self, process: subprocess.Popen[bytes], incarnation: int, mark: str, output: Path
    ) -> None:
        super().__init__(process.pid, incarnation)
        self._process = process
        self._output = output
        self.mark = mark

    def exit_code(self, limit_s: float = 0.0) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(limit_s)
        return self._process.returncode

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal to the session of the node, and to those of its processes that left it;
        return whether its first process runs. Only that one is asked to stop, as by an init system:
        a helper that ends before its server looks like a failure to it."""
        runs = self.exit_code() is None
        if number == signal.SIGTERM:
            self._process.send_signal(number)
            return runs
        if runs:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)
        for pid in self.pids():
            with contextlib.suppress(OSError):
                if os.getpgid(pid) != self.pid:
                    os.kill(pid, number)
        return runs

    def pids(self) -> list[int]:
        return sorted({*guardian.marked(self.mark), *guardian.in_sessions({self.pid})})

    def said(self) -> str:
        return last_lines(self._output)


class ExternalProcesses(NodeProcesses[_Session]):
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
        look_at_disk: Callable[[str], None] = lambda node: None,
    ) -> None:
        """`launch(node)` says how its next process is started, `started(node, pid)` is called when
        it was; its output goes to `output`/<node>.txt."""
        super().__init__(exits, look_at_disk)
        self._launch = launch
        self._tell_started = started
        self._output = output
        self.stop_codes = frozenset(stop_codes)
        self.mark = uuid.uuid4().hex
        self._guardian: subprocess.Popen[bytes] | None = None

    def _started(self, node: str, incarnation: int) -> _Session:
        if self._guardian is None:
            self._guardian = self._start_guardian()
        launch = self._launch(node)
        _await_free(node, launch)
        output, mark = self._output / f"{node}.txt", f"{self.mark}-{node}"
        try:
            with output.open("ab") as out:
                process = subprocess.Popen(
                    [*launcher.starter(), *launch.command],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    cwd=launch.folder,
                    env={**os.environ, **launch.environment, guardian.MARK: self.mark, _NODE: mark},
                    start_new_session=True,
                )
        except OSError as error:
            raise FloodmarkError(f"{node} cannot be started: {reason(error)}") from None
        self._tell_guardian(f"+{process.pid}\n")
        self._tell_started(node, process.pid)
        return _Session(process, incarnation, f"{_NODE}={mark}", output)

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
            [sys.executable, "-I", "-S", guardian.__file__, mark],
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

    def _buried(self, node: str, running: _Session) -> None:
        """Kill what is left of an ended node."""
        guardian.kill_marked(running.mark, {running.pid})
        self._tell_guardian(f"-{running.pid}\n")


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
    while taken := [p for p in launch.ports.values() if not is_free(p, launch.host)]:
        if time.monotonic() > deadline:
            raise FloodmarkError(
                f"port {taken[0]} of {node} is taken by another process: end that, or run again "
                "for other ports"
            )
        time.sleep(_LOOK_S)
