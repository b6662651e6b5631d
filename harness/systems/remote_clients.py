"""The process of the clients as the harness sees it: commands are sent, the latest status comes
back.

Systems differ in the clients that the process runs; commands, status and pipe are the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple

import msgspec
import multiprocess

from harness.clients.factory import ClientFactory
from harness.clients.types import Status
from harness.formats.problem import how_ended
from harness.runs.clock import now_us
from harness.systems.interface import ClientRequest, RunClients
from node.runtime import children
from node.runtime.template import REAP_S

ENDS_S: Final = 1.0
"""How long a process may take to end after its pipe broke."""
SILENT_US: Final = 20_000_000
"""The process reports several times a second."""
START_US: Final = 30_000_000
"""How long it may take to start on a busy machine."""


class ClientCommand(NamedTuple):
    """A command of the harness to the process of the clients: a request, or its end."""

    what: ClientRequest | Literal["quit"]
    arguments: tuple[int, ...] = ()


class ClientsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of the clients' process; `output` is the file for its stdout and stderr."""

    factory: ClientFactory
    history: str
    output: str
    parent_pid: int


class RemoteClients(RunClients):
    """All clients of a run, in a process of their own."""

    def __init__(self, main: Callable[..., None], config: ClientsConfig) -> None:
        """Start `main(config, pipe)`; no client acts before `go`."""
        self._pipe, far_end = multiprocess.Pipe()
        self._process = children.start("clients", main, config, far_end)
        far_end.close()
        self._status = Status()
        self._output = config.output
        self._heard_us = now_us()
        self._silence_us = START_US
        self._problem = ""

    @property
    def pid(self) -> int:
        """The process in which the clients run."""
        return self._process.pid

    @property
    def status(self) -> Status:
        try:
            while self._pipe.poll():
                self._status = self._pipe.recv()
                self._heard_us, self._silence_us = now_us(), SILENT_US
            if now_us() - self._heard_us > self._silence_us:
                self._problem = (
                    f"the process of the clients has said nothing for "
                    f"{self._silence_us // 1_000_000} s (see {self._output})"
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

    def ask(self, what: ClientRequest, *arguments: int) -> None:
        self._command(ClientCommand(what, arguments))

    def close(self, timeout_s: float = 5.0) -> None:
        self._command(ClientCommand("quit"))
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
