"""The process in which all clients of an external system run: one event loop, one history file.

The harness sends commands through a pipe and gets a `Status` back several times a second. A
thread watches the loop, because an adapter whose async method blocks it would silently stop
every client."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from harness.clients.operation_log import HistoryFile
from harness.clients.types import Status
from harness.runs.clock import now_us
from harness.systems.adapter import Node
from harness.systems.external.load import AdapterChoice
from harness.systems.external.sessions import Sessions
from harness.systems.remote_clients import ClientCommand, ClientsConfig
from node.runtime.children import settle_in

STATUS_EVERY_S: Final = 0.1
BLOCKED_S: Final = 10.0
_LOOK_S: Final = 0.5


class ExternalClientsConfig(ClientsConfig, frozen=True, kw_only=True):
    """The adapter and the nodes that it may connect to."""

    choice: AdapterChoice
    nodes: tuple[Node, ...]


def main(config: ExternalClientsConfig, pipe: Connection) -> None:
    """Run the clients of `config` until a quit command, or until the harness has ended."""
    settle_in(config.parent_pid, config.output)
    # What went wrong is in the history; a client library would log it again for every attempt.
    logging.disable(logging.CRITICAL)
    history = HistoryFile(Path(config.history))
    status = Status()
    try:
        with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
            asyncio.run(_ClientsLoop(config, pipe, history).run())
    except Exception as error:
        status.problem = f"the clients could not be run: {type(error).__name__}: {error}"
        status.t_us = now_us()
        with contextlib.suppress(OSError):
            pipe.send(status)
    history.close()
    # Threads of an adapter may be stuck; nothing waits for them.
    os._exit(0)


class _ClientsLoop:
    """A loop that obeys the pipe and reports to it, beside the clients."""

    def __init__(
        self, config: ExternalClientsConfig, pipe: Connection, history: HistoryFile
    ) -> None:
        self._sessions = Sessions(
            *(config.choice.load(), config.factory, config.nodes, history), show=_show
        )
        self._pipe = pipe
        self._sending = threading.Lock()
        self._alive_us = now_us()
        self._quit = asyncio.Event()

    async def run(self) -> None:
        """Run until a quit command."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: _show(str(context.get("exception"))))
        loop.add_reader(self._pipe.fileno(), self._obey_all)
        threading.Thread(target=self._watch, daemon=True).start()
        preparing = asyncio.ensure_future(self._sessions.connect())
        while not preparing.done():
            # The harness waits for the first status before the storm begins.
            self._alive_us = now_us()
            await asyncio.wait({preparing}, timeout=STATUS_EVERY_S)
        while not self._quit.is_set():
            self._alive_us = now_us()
            self._send(self._sessions.status())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._quit.wait(), STATUS_EVERY_S)
        loop.remove_reader(self._pipe.fileno())
        await self._sessions.close()

    def _obey_all(self) -> None:
        try:
            while self._pipe.poll():
                self._obey(self._pipe.recv())
        except (EOFError, OSError):
            self._quit.set()

    def _obey(self, command: ClientCommand) -> None:
        if command.what == "quit":
            self._quit.set()
        else:
            getattr(self._sessions, command.what)(*command.arguments)
        self._send(self._sessions.status())

    def _watch(self) -> None:
        """Report a blocked event loop, from a second thread."""
        waiting = threading.Event()
        while not waiting.wait(_LOOK_S):
            if now_us() - self._alive_us > BLOCKED_S * 1e6:
                self._send(
                    Status(
                        t_us=now_us(),
                        problem="the clients stand still: an async method of the adapter blocks "
                        f"for more than {BLOCKED_S:g} s (a plain method may block)",
                    )
                )
                return

    def _send(self, status: Status) -> None:
        with self._sending:
            self._pipe.send(status)


def _show(text: str) -> None:
    os.write(2, text.rstrip().encode() + b"\n")
