"""The processes of the nodes of a run, for all systems: signals, and the record of each end."""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final, Generic, Literal, TypeVar

import msgspec

from harness.formats.problem import Exit, Problem, ended_from_outside, node_ended, suspended
from harness.runs.clock import now_us
from harness.runs.host import HostDisk
from harness.runs.interrupts import resume_stopped
from node.formats.errors import StorageError
from node.formats.files import AppendOnlyFile

Done = Literal["kill", "stop", "itself", "hung"]
"""What the harness did to a process before it ended; "itself": nothing."""
EndedBy = Literal["kill", "stop", "itself", "outside"]

REAP_TIMEOUT_S: Final = 10.0
LAST_LINES: Final = 5
_LAST_BYTES: Final = 8192
_LONGEST_LINE: Final = 300
_REPORTS_ERROR: Final = re.compile(
    r"\b(ERR(OR)?|CRIT(ICAL)?|FTL|FATAL|PANIC|panic|fatal error|Traceback|Assertion|\w+Exception)\b"
)


class NodeProcess:
    """One process of a node: its pid, its incarnation (1 for the node's first process), and whether
    the harness has paused it."""

    def __init__(self, pid: int, incarnation: int) -> None:
        self.pid = pid
        self.incarnation = incarnation
        self.paused = False

    def exit_code(self, limit_s: float = 0.0) -> int | None:
        """Return the exit code of the process, which is reaped, after a wait of up to `limit_s`;
        None if it still runs."""
        raise NotImplementedError

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal to a process that runs; return whether one does."""
        raise NotImplementedError

    def end_hung(self) -> None:
        """End a process that does not stop."""
        self.signal(signal.SIGKILL)

    def pids(self) -> list[int]:
        return [self.pid]

    def said(self) -> str:
        """Return the last sentence of the ended process, "" if there is none."""
        raise NotImplementedError


Running = TypeVar("Running", bound=NodeProcess)
Codes = Collection[int] | None
"""Exit codes; None: any."""


class ExpectedExits:
    """The processes that may end by themselves, because a fault damaged their disk or affects them.

    Data that a disk has lost stays lost, so after that the ends of all later processes are
    expected. A fault that ends concerns only the processes that ran while it was in force."""

    def __init__(self) -> None:
        self._faults: dict[str, int] = {}
        self._rows: list[tuple[str, int, float, Codes]] = []

    def from_now_on(self, node: str, incarnation: int, codes: Codes = None) -> None:
        """Expect process `incarnation` of the node and all later ones to end with such a code."""
        self._rows.append((node, incarnation, math.inf, codes))

    def process(self, node: str, incarnation: int, codes: Codes = None) -> None:
        """Expect this one process of the node to end with such a code."""
        self._rows.append((node, incarnation, incarnation, codes))

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

    def covers(self, node: str, incarnation: int, code: int) -> bool:
        """Return whether process `incarnation` of the node may end by itself with this code."""
        return any(
            node == each and first <= incarnation <= last and (codes is None or code in codes)
            for each, first, last, codes in self._rows
        )


class NodeProcesses(Generic[Running]):
    """All node processes of one run, by name. A subclass starts them."""

    stop_timeout_s: float
    """How long a process may take to end after SIGTERM."""
    stop_codes: Codes = None
    only_asked: Collection[int] = ()
    """See `who_ended`."""

    def __init__(
        self, exits: AppendOnlyFile, look_at_disk: Callable[[str], None] = lambda node: None
    ) -> None:
        """Put each end on record in `exits`. `look_at_disk(node)` blames the disk of a node that
        has ended if the disk has ended too."""
        self.expected = ExpectedExits()
        self._look_at_disk = look_at_disk
        self._running: dict[str, Running] = {}
        self._incarnations: dict[str, int] = {}
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

    def pids(self, node: str) -> list[int]:
        return self._running[node].pids() if node in self._running else []

    def start(self, node: str) -> None:
        """Start the node's next process, unless one runs; return without waiting until it is ready.
        Raises FloodmarkError when it cannot be started."""
        if node not in self._running:
            incarnation = self.incarnation(node) + 1
            self._running[node] = self._started(node, incarnation)
            self._incarnations[node] = incarnation
            self.expected.started(node, incarnation)

    def blame_disk(self, node: str, *, now: bool = False, reads: bool = True) -> None:
        """Expect that the node's next process ends because of its disk; with `now` the present one
        too. `reads`: reads can fail as well as writes."""
        first = self.incarnation(node) + (not now)
        self.expected.from_now_on(node, first, self._codes_of_disk(reads=reads))

    def boot_again(self, node: str) -> None:
        """Let the node's next processes see a new boot of the host, as after a power cut."""

    def kill(self, node: str) -> None:
        """Send SIGKILL to the node's process; return when it is gone."""
        if node in self._running:
            sent = self._running[node].signal(signal.SIGKILL)
            self._bury(node, "kill" if sent else "itself")

    def pause(self, node: str) -> None:
        """Stop the node's process with SIGSTOP."""
        if node in self._running:
            self._running[node].paused = True
            self._running[node].signal(signal.SIGSTOP)

    def resume(self, node: str) -> None:
        """Let the node's process go on with SIGCONT."""
        if node in self._running:
            self._running[node].signal(signal.SIGCONT)
            self._running[node].paused = False

    def ask_to_stop(self, node: str) -> None:
        """Send SIGTERM to the node's process; resume it for that if it is paused."""
        if node in self._running:
            self.resume(node)
            self._running[node].signal(signal.SIGTERM)

    def await_stop(self, node: str) -> None:
        """Wait for the end of a process after `ask_to_stop`. One that hangs is killed, and its end
        counts as unexpected."""
        running = self._running.get(node)
        if running is None:
            return
        code = running.exit_code(self.stop_timeout_s)
        if code is None and self.resume_suspended():
            code = running.exit_code(self.stop_timeout_s)
        if code is None:
            running.end_hung()
        self._bury(node, "hung" if code is None else "stop")

    def close(self) -> None:
        """Kill all processes; their ends count as requested."""
        sent = {node: each.signal(signal.SIGKILL) for node, each in self._running.items()}
        for node in list(self._running):
            self._bury(node, "kill" if sent[node] else "itself")

    def notice_end(self, node: str) -> None:
        """Notice that the node's process has ended by itself, most likely because of a fault."""
        if node in self._running and self._running[node].exit_code() is not None:
            self._bury(node, "itself")

    def reap(self) -> list[Exit]:
        """Notice all processes that have ended by themselves; return their ends."""
        self._host.look()
        ended = [node for node, each in self._running.items() if each.exit_code() is not None]
        return [self._bury(node, "itself") for node in ended]

    def resume_suspended(self) -> bool:
        """Resume each process below the harness that no fault has stopped, a problem of the run;
        return whether there is one, or was at an earlier call."""
        paused = [each for each in self._running.values() if each.paused]
        names = resume_stopped({pid for each in paused for pid in each.pids()})
        self._problems += (suspended(name) for name in dict.fromkeys(names))
        return any(problem.kind == "suspended" for problem in self._problems)

    # -- for a subclass to say

    def _started(self, node: str, incarnation: int) -> Running:
        """Start a process of a node that has none. Raises FloodmarkError."""
        raise NotImplementedError

    def _codes_of_disk(self, *, reads: bool) -> Codes:
        """Return the exit codes of a process whose disk fails."""
        return None

    def _buried(self, node: str, running: Running) -> None:
        """Give back what an ended process had."""

    def _may_end(self, node: str, running: Running, code: int, by: EndedBy) -> bool:
        """Return whether a process may end like this without a kill."""
        return by == "stop"

    # -- inside

    def _bury(self, node: str, done: Done) -> Exit:
        """Reap an ended process, and put its end on record."""
        running = self._running.pop(node)
        found = running.exit_code(REAP_TIMEOUT_S)
        code = -signal.SIGKILL if found is None else found
        self._buried(node, running)
        self._look_at_disk(node)
        expected = self.expected.covers(node, running.incarnation, code)
        by = who_ended(
            done, code, stop_codes=self.stop_codes, only_asked=self.only_asked, expected=expected
        )
        expected |= by in ("kill", "outside") or self._may_end(node, running, code, by)
        return self._record(node, running, code, by, expected=expected)

    def _record(
        self, node: str, running: Running, code: int, by: EndedBy, *, expected: bool
    ) -> Exit:
        """Write down an end. One from outside is a problem of the run, and so is one because of
        the host; another one that was not `expected` is a finding about the system."""
        said = "" if expected or by == "outside" else running.said()
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
    """Return the last line of a process's output, after the last ones that report an error, or else
    after those before it; in one line, "" if it printed nothing."""
    with contextlib.suppress(OSError), output.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_BYTES))
        lines = file.read().decode(errors="replace").strip().splitlines()
        errors = [line for line in lines[:-1] if _REPORTS_ERROR.search(line)]
        chosen = (errors or lines[:-1])[1 - LAST_LINES :] + lines[-1:]
        return " / ".join(line.strip()[:_LONGEST_LINE] for line in chosen)
    return ""


def who_ended(
    done: Done,
    code: int,
    *,
    stop_codes: Codes = None,
    only_asked: Collection[int] = (),
    expected: bool = False,
) -> EndedBy:
    """Return who ended a process. `done` is what the harness did to it, the rest follows from its
    exit code. It obeys SIGTERM with one of `stop_codes` (None: any that no signal causes), and has
    those of `only_asked` only if something asked it. No other program ends it if `expected`."""
    killed = ended_from_outside(code)
    if done == "kill" and code == -signal.SIGKILL:
        return "kill"
    if done == "stop" and (not killed if stop_codes is None else code in stop_codes):
        return "stop"
    if done == "hung" or expected:
        return "itself"
    return "outside" if killed or code in only_asked else "itself"
