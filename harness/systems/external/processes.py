"""The node processes of an external system: started, signalled, reaped, every end on record.

Each node is a session of its own, so a signal reaches its children too, and its environment has a
mark by which the rest is found. Nothing of it outlives the harness: see `launcher` and `guardian`.
"""

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
from typing import Final, Literal

import msgspec

from harness.formats.problem import Problem, ended_from_outside, node_ended
from harness.formats.process_exits import Exit
from harness.runs.clock import now_us
from harness.systems.external import guardian, launcher
from node.formats.errors import FloodmarkError
from node.formats.files import AppendOnlyFile

STOP_TIMEOUT_S: Final = 20.0
REAP_TIMEOUT_S: Final = 10.0
PORT_TIMEOUT_S: Final = 5.0
LAST_LINES: Final = 5
_LAST_BYTES: Final = 4096
_LOOK_S: Final = 0.02


class Launch(msgspec.Struct, frozen=True):
    """How to start a node: its command line, its folder, where it listens."""

    command: Sequence[str]
    folder: Path
    host: str
    ports: Mapping[str, int]


@dataclass(slots=True)
class _NodeProcess:
    process: subprocess.Popen[bytes]
    incarnation: int
    paused: bool = False


class ExternalProcesses:
    """All node processes of one run, by name. Main thread only: the kernel ends a node when the
    thread that started it ends."""

    def __init__(
        self,
        launch: Callable[[str], Launch],
        started: Callable[[str, int], None],
        output: Path,
        exits: AppendOnlyFile,
        *,
        stop_codes: Collection[int],
        prefix: Sequence[str] = (),
    ) -> None:
        """`launch(node)` says how its next process is started, `started(node, pid)` is told that it
        was; its output goes to `output`/<node>.txt. `prefix` are words before each command line."""
        self._launch = launch
        self._started = started
        self._output = output
        self._exits = exits
        self._stop_codes = frozenset(stop_codes)
        self._prefix = tuple(prefix)
        self.mark = uuid.uuid4().hex
        self._running: dict[str, _NodeProcess] = {}
        self._incarnations: dict[str, int] = {}
        self._guardian: subprocess.Popen[bytes] | None = None
        self.unexpected: list[Exit] = []
        self.problems: list[Problem] = []

    # -- what there is

    def is_up(self, node: str) -> bool:
        """Whether the node has a process, as far as is known since the last `reap`."""
        return node in self._running

    def is_paused(self, node: str) -> bool:
        """Whether it has one that `pause` has stopped."""
        return node in self._running and self._running[node].paused

    def incarnation(self, node: str) -> int:
        """The number of the node's latest process, 0 before the first."""
        return self._incarnations.get(node, 0)

    def pid(self, node: str) -> int | None:
        """The process that was started for the node; None when it is down."""
        running = self._running.get(node)
        return None if running is None else running.process.pid

    def last_lines(self, node: str) -> str:
        """The end of the node's output, in one line."""
        with contextlib.suppress(OSError), (self._output / f"{node}.txt").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_BYTES))
            lines = file.read().decode(errors="replace").strip().splitlines()
            return " / ".join(line.strip() for line in lines[-LAST_LINES:])
        return ""

    # -- what can be done

    def start(self, node: str) -> None:
        """Start the node's next process, unless one runs; returns long before it is ready.

        Raises FloodmarkError when one of its ports is taken, or it cannot be started at all.
        """
        if node in self._running:
            return
        if self._guardian is None:
            self._guardian = self._start_guardian()
        launch = self._launch(node)
        _await_free(node, launch)
        self._incarnations[node] = self.incarnation(node) + 1
        starter = [sys.executable, "-I", "-S", launcher.__file__, str(os.getpid())]
        try:
            with (self._output / f"{node}.txt").open("ab") as out:
                process = subprocess.Popen(
                    [*starter, *self._prefix, *launch.command],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    cwd=launch.folder,
                    env=os.environ | {guardian.MARK: self.mark, _NODE: f"{self.mark}-{node}"},
                    start_new_session=True,
                )
        except OSError as error:
            raise FloodmarkError(f"{node} cannot be started: {error}") from None
        self._running[node] = _NodeProcess(process, self._incarnations[node])
        self._started(node, process.pid)

    def kill(self, node: str) -> None:
        """SIGKILL to all that belongs to it; returns when its process is gone."""
        if node in self._running:
            self._bury(node, "kill" if self._signal(node, signal.SIGKILL) else "itself")

    def pause(self, node: str) -> None:
        """SIGSTOP to all that belongs to it."""
        if node in self._running:
            self._running[node].paused = True
            self._signal(node, signal.SIGSTOP)

    def resume(self, node: str) -> None:
        """SIGCONT."""
        if node in self._running:
            self._running[node].paused = False
            self._signal(node, signal.SIGCONT)

    def ask_to_stop(self, node: str) -> None:
        """SIGTERM; a paused node is resumed for it."""
        if node in self._running:
            self.resume(node)
            self._signal(node, signal.SIGTERM)

    def await_stop(self, node: str, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Wait for a node that was asked to stop. One that hangs is killed, and its end counts as
        unexpected."""
        running = self._running.get(node)
        if running is None:
            return
        try:
            running.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._signal(node, signal.SIGKILL)
            self._bury(node, "hung")
        else:
            self._bury(node, "stop")

    def reap(self) -> list[Exit]:
        """Notice nodes that ended by themselves; returns their ends."""
        ended = [n for n, each in self._running.items() if each.process.poll() is not None]
        return [self._bury(node, "itself") for node in ended]

    def close(self) -> None:
        """Leave no process behind."""
        sent = {node: self._signal(node, signal.SIGKILL) for node in self._running}
        for node in list(self._running):
            self._bury(node, "kill" if sent[node] else "itself")
        guardian.kill_marked(f"{guardian.MARK}={self.mark}")
        if self._guardian is not None and self._guardian.stdin is not None:
            self._guardian.stdin.close()
            self._guardian.wait()
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

    def _signal(self, node: str, number: signal.Signals) -> bool:
        """To the session of the node, and to those of its processes that left it; whether the one
        that was started runs."""
        process = self._running[node].process
        # `poll` reaps an ended process, and its number may then be somebody else's.
        runs = process.poll() is None
        if runs:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        for pid in guardian.marked(self._mark_of(node)):
            with contextlib.suppress(OSError):
                if os.getpgid(pid) != process.pid:
                    os.kill(pid, number)
        return runs

    def _mark_of(self, node: str) -> str:
        return f"{_NODE}={self.mark}-{node}"

    def _bury(self, node: str, why: Literal["kill", "stop", "itself", "hung"]) -> Exit:
        """Reap an ended node and put its end on record; what is left of it is killed. `why`: what
        the harness did to it."""
        running = self._running.pop(node)
        code = running.process.wait(REAP_TIMEOUT_S)
        guardian.kill_marked(self._mark_of(node))
        by = _ended_by(why, code, self._stop_codes)
        done = Exit(
            node=node,
            incarnation=running.incarnation,
            t_us=now_us(),
            code=code,
            by=by,
            expected=by in ("kill", "stop", "outside"),
        )
        self._exits.write(msgspec.json.encode(done) + b"\n")
        if by == "outside":
            self.problems.append(node_ended(node, code))
        elif not done.expected:
            self.unexpected.append(done)
        return done


def _ended_by(
    why: Literal["kill", "stop", "itself", "hung"], code: int, stop_codes: Collection[int]
) -> Literal["kill", "stop", "itself", "outside"]:
    """Who ended a node, by what the harness did to it and its exit code."""
    if why == "kill" and code == -signal.SIGKILL:
        return "kill"
    if why == "stop" and code in stop_codes:
        return "stop"
    if why == "hung":
        return "itself"
    return "outside" if ended_from_outside(code) else "itself"


_NODE: Final = "FLOODMARK_NODE"


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
