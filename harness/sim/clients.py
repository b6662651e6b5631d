"""All clients of a simulated run under virtual time, and an operator's client."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from harness.clients.factory import ClientFactory
from harness.clients.group import ClientGroup
from harness.clients.types import NEVER_US, Answer, SessionEffects, Status
from harness.formats.history import Op
from harness.sim.event_queue import EventQueue
from harness.sim.network import Envelope, Network
from harness.systems.floodmark.admin import Admin
from harness.systems.interface import ClientRequest, RunClients
from node.formats.messages import AdminRequest, AdminResponse
from node.formats.wire import ADMIN

_POLL_US: Final = 1_000


class SimClients(RunClients):
    """A `ClientGroup` under virtual time. `ops` is its history; `seen` gets each line of it."""

    def __init__(
        self,
        factory: ClientFactory,
        queue: EventQueue,
        network: Network,
        seen: Callable[[Op], None],
    ) -> None:
        self.ops: list[Op] = []
        self._group = ClientGroup(factory)
        self._queue = queue
        self._network = network
        self._seen = seen
        self._due_us: dict[str, int] = {}
        self._armed_us: dict[str, int] = {}
        self._changed = True

    @property
    def status(self) -> Status:
        if self._changed:
            self._changed = False
            return self._group.status(self._queue.now_us)
        # No client has acted since the last call, so only the time differs.
        status = self._group.statistics.status
        status.t_us = self._queue.now_us
        return status

    def ask(self, what: ClientRequest, *arguments: int) -> None:
        self._changed = True
        for client in getattr(self._group, what)(*arguments):
            self._network.join(client, self._arrive)
            self._due_us[client] = self._queue.now_us
            self._arm(client, self._queue.now_us)

    def close(self) -> None:
        self._due_us.clear()

    def _arrive(self, envelope: Envelope) -> None:
        client, source, message, body = envelope
        if client in self._due_us:
            answer = Answer(source, message, body)
            self._carry_out(client, self._group.sessions[client].step(self._queue.now_us, answer))

    def _alarm(self, client: str) -> None:
        now_us = self._queue.now_us
        if self._armed_us.get(client) != now_us or client not in self._due_us:
            return
        self._armed_us[client] = NEVER_US
        due_us = self._due_us[client]
        if due_us <= now_us:
            self._carry_out(client, self._group.sessions[client].step(now_us))
        else:
            self._arm(client, due_us)

    def _carry_out(self, client: str, effects: SessionEffects) -> None:
        """Add the effects of a client to the history, then send its messages."""
        self._changed = True
        for op in effects.ops:
            self.ops.append(op)
            self._group.statistics.add(op)
            self._seen(op)
        for out in effects.messages:
            self._network.send(client, out.to, out.message, out.body)
        self._due_us[client] = effects.deadline_us
        self._arm(client, effects.deadline_us)

    def _arm(self, client: str, due_us: int) -> None:
        if due_us < self._armed_us.get(client, NEVER_US):
            at_us = max(due_us, self._queue.now_us + 1)
            self._armed_us[client] = at_us
            self._queue.at(at_us, self._alarm, client)


class SimAdmin(Admin):
    """The commands of an operator, sent through the simulated network."""

    def __init__(self, queue: EventQueue, network: Network, voters: Sequence[str]) -> None:
        super().__init__(voters)
        self._queue = queue
        self._network = network
        self._arrived: list[AdminResponse] = []
        network.join(ADMIN, self._arrive)

    def _now_us(self) -> int:
        return self._queue.now_us

    def _answers(self) -> list[AdminResponse]:
        answers, self._arrived = self._arrived, []
        return answers

    def _send(self, voter: str, request: AdminRequest) -> None:
        self._network.send(ADMIN, voter, request, None)

    def _wait(self) -> None:
        self._queue.run(self._queue.now_us + _POLL_US)

    def _arrive(self, envelope: Envelope) -> None:
        if isinstance(envelope[2], AdminResponse):
            self._arrived.append(envelope[2])
