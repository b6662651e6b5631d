"""The process in which all clients of a run live: one loop, one inbox, one history file.

In each turn it reads the inbox, steps every session that has mail or is due, appends the turn's
lines to the history, and only then sends. So no message leaves before its invocation is on record,
even if this process is killed in between. The clock is read after a message was received and before
anything is sent, so an operation never seems shorter than it was.

The harness sends commands through a pipe and gets a `Status` back several times a second."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from harness.clients.group import ClientGroup
from harness.clients.operation_log import HistoryFile
from harness.clients.types import NEVER_US, PollSettings, SessionEffects
from harness.runs.clock import now_us
from harness.systems.floodmark.mailbox import ZmqMailbox
from harness.systems.remote_clients import ClientCommand, ClientsConfig
from nemesis.formats.schedule import Send, Workload
from node.core.api import Deliver
from node.core.batch import MAX_PAYLOAD
from node.formats import wire
from node.formats.errors import FloodmarkError, StorageError, WireError
from node.runtime.children import settle_in
from node.runtime.readiness import Readiness

STATUS_EVERY_US: Final = 100_000
LONGEST_WAIT_MS: Final = 100
ANSWER_HEADER_BYTES: Final = 1 << 20
"""Room for what is not records: a header may name all partitions of a cluster."""


class DriverConfig(ClientsConfig, frozen=True, kw_only=True):
    """The addresses: where the clients listen, and those of the brokers or the link hub."""

    bind: str
    peers: dict[str, str]


def main(config: DriverConfig, pipe: Connection) -> None:
    """Run the clients of `config` until a quit command."""
    settle_in(config.parent_pid, config.output)
    driver = _Driver(config, pipe)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        driver.run()
    driver.close()
    os._exit(0)


def _largest_answer(workload: Workload) -> int:
    """Return the most bytes that a broker sends a client in one frame: the batches of a read, of
    which the first may be as large as the largest batch that clients write."""
    sends = [one for one in workload.operations if isinstance(one, Send)]
    sizes = [workload.batch * workload.payload_bytes]
    sizes += [one.count * one.payload_bytes for one in sends]
    return PollSettings().max_bytes + min(MAX_PAYLOAD, max(sizes)) + ANSWER_HEADER_BYTES


class _Driver:
    """The loop of the client process, with its sockets and sessions."""

    def __init__(self, config: DriverConfig, pipe: Connection) -> None:
        self._group = ClientGroup(config.factory)
        self._brokers = frozenset(config.factory.cluster.broker_names())
        self._pipe = pipe
        self._due_us: dict[str, int] = {}
        self._quit = False
        self._reported_us = 0
        self._history = HistoryFile(Path(config.history))
        self._ready = Readiness()
        try:
            self._mail = ZmqMailbox(
                config.bind,
                config.peers,
                max_message_bytes=_largest_answer(config.factory.workload),
            )
        except FloodmarkError as error:
            self._group.statistics.status.problem = str(error)
            self._report(now_us())
            raise SystemExit(str(error)) from None
        self._ready.watch(pipe.fileno())
        self._ready.watch(self._mail.inbox)
        gc.freeze()

    def run(self) -> None:
        """Turn until a quit command."""
        while not self._quit:
            effects: list[tuple[str, SessionEffects]] = []
            for ready in self._ready.wait(self._wait_ms()):
                if ready is self._mail.inbox:
                    arrived, all_of_it = self._mail.receive()
                    effects += self._deliver(arrived)
                    if not all_of_it:
                        self._ready.again(ready)
                else:
                    while self._pipe.poll():
                        self._obey(self._pipe.recv())
            effects += self._tick()
            self._carry_out(effects)
            moment_us = now_us()
            if moment_us - self._reported_us >= STATUS_EVERY_US:
                self._report(moment_us)
        self._carry_out([(c, s.end(now_us())) for c, s in self._group.sessions.items()])

    def close(self) -> None:
        """Close files and sockets."""
        self._history.close()
        self._mail.close()

    def _wait_ms(self) -> int:
        due_us = min(self._due_us.values(), default=NEVER_US)
        wait_ms = -((now_us() - due_us) // 1000)
        return max(0, min(LONGEST_WAIT_MS, wait_ms))

    def _deliver(self, arrived: Iterable[list[bytes]]) -> list[tuple[str, SessionEffects]]:
        effects = []
        for frames in arrived:
            try:
                receiver, sender, message, body = wire.decode(frames)
            except WireError:
                continue
            session = self._group.sessions.get(receiver)
            if session is not None and sender in self._brokers:
                done = session.step(now_us(), Deliver(sender, message, body))
                self._due_us[receiver] = done.deadline_us
                effects.append((receiver, done))
        return effects

    def _tick(self) -> list[tuple[str, SessionEffects]]:
        """Step every session whose deadline has come."""
        effects = []
        moment_us = now_us()
        for client, due_us in list(self._due_us.items()):
            if due_us <= moment_us:
                done = self._group.sessions[client].step(now_us())
                self._due_us[client] = done.deadline_us
                effects.append((client, done))
        return effects

    def _carry_out(self, effects: list[tuple[str, SessionEffects]]) -> None:
        """Record first, then send. On a full disk nothing more is sent, and nothing more begins."""
        ops = [op for _, done in effects for op in done.ops]
        if ops:
            try:
                self._history.write(ops)
            except StorageError as error:
                self._group.statistics.status.problem = str(error)
                self._group.sessions.clear()
                self._due_us.clear()
                return
            for op in ops:
                self._group.statistics.add(op)
        for client, done in effects:
            for out in done.messages:
                self._mail.send(client, out.to, out.message, out.body)

    def _obey(self, command: ClientCommand) -> None:
        if command.what == "quit":
            self._quit = True
            return
        clients = getattr(self._group, command.what)(*command.arguments)
        if not self._group.statistics.status.problem:
            self._due_us.update(dict.fromkeys(clients, 0))
        self._reported_us = 0

    def _report(self, moment_us: int) -> None:
        self._reported_us = moment_us
        self._pipe.send(self._group.status(moment_us))
