"""The harness's end of a process of clients: commands go down, the latest status comes up.

What runs in the process differs by system; commands, status and their pipe do not.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import multiprocess

from harness.clients.types import Status
from harness.formats.problem import how_ended
from harness.runs.clock import now_us
from node.runtime import children
from node.runtime.reap import REAP_S

ENDS_S: Final = 1.0
"""How long a process may take to end after its pipe broke."""
SILENT_US: Final = 20_000_000
"""The process reports several times a second."""


class ClientCommand(msgspec.Struct, frozen=True, kw_only=True):
    """What the harness wants; `t_us` belongs to `healed`, which says as of when it is so, and
    `operation` to `operate`."""

    what: Literal["go", "operate", "healed", "stop-writing", "final-reads", "quit"]
    t_us: int = 0
    operation: int = -1


class RemoteClients:
    """All clients of a run, in a process of their own."""

    def __init__(self, main: Callable[..., None], config: Any, output: Path) -> None:
        """Start `main(config, pipe)`, which writes to `output`; no client says anything before
        `go`."""
        self._pipe, far_end = multiprocess.Pipe()
        self._process = children.start("clients", main, config, far_end)
        far_end.close()
        self._status = Status()
        self._output = output
        self._heard_us = 0
        self._problem = ""

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    @property
    def turned_away(self) -> int:
        """How often they turned away what came from outside of the run, as last reported."""
        return self._status.turned_away

    @property
    def status(self) -> Status:
        """The newest status that has arrived; `problem` is set if the process is gone, or says
        nothing any more."""
        try:
            while self._pipe.poll():
                self._status = self._pipe.recv()
                self._heard_us = now_us()
            if self._heard_us and now_us() - self._heard_us > SILENT_US:
                self._problem = (
                    f"the process of the clients has said nothing for {SILENT_US // 1_000_000} s "
                    f"(see {self._output})"
                )
        except (EOFError, OSError):
            if not self._status.problem and not self._problem:
                self._process.join(ENDS_S)
                code = self._process.exitcode
                how = "its pipe broke" if code is None else how_ended(code)
                self._problem = (
                    f"the process of the clients ended during the run ({how}; see {self._output})"
                )
        self._status.problem = self._status.problem or self._problem
        return self._status

    def go(self) -> None:
        """Start the workload."""
        self._command(ClientCommand(what="go"))

    def operate(self, operation: int) -> None:
        """Have its client begin an operation of the workload, by its number."""
        self._command(ClientCommand(what="operate", operation=operation))

    def healed(self, t_us: int) -> None:
        """Tell from when on an acknowledgement counts as recovery."""
        self._command(ClientCommand(what="healed", t_us=t_us))

    def stop_writing(self) -> None:
        """Producers invoke nothing more; wait for `status.writers_idle`."""
        self._command(ClientCommand(what="stop-writing"))

    def read_everything(self) -> None:
        """Begin the final reads; wait for `status.final == "done"`."""
        self._command(ClientCommand(what="final-reads"))

    def close(self, timeout_s: float = 2.0) -> None:
        """End the process."""
        self._command(ClientCommand(what="quit", t_us=now_us()))
        self._process.join(timeout_s)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join(REAP_S)
        self._pipe.close()

    def _command(self, command: ClientCommand) -> None:
        try:
            self._pipe.send(command)
        except (OSError, ValueError):
            # It is gone; `status` says so.
            return
