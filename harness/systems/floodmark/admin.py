"""Commands to the controller of our brokers, repeated until they are answered.

`AdminCall` is one command (pure: no socket, no clock), also used by the simulator:

    to = call.step(now_us, answer or None)  # the voter to send `call.request` to now, "" for none

Voters are asked in turn; one that is not the controller may name it. A command may be sent twice: a
controller that has carried it out already says so. The answer is final: done, or refused with one
sentence. `Admin` sends one command after the other."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from harness.runs.clock import now_us
from harness.systems.floodmark.brokers import TOPIC
from nemesis.world import COMMAND_LIMIT_US, Command
from node.formats import wire
from node.formats.errors import FloodmarkError, WireError
from node.formats.messages import (
    AdminRequest,
    AdminResponse,
    ElectLeader,
    Error,
    ReassignReplicas,
    SetMinIsr,
)
from node.formats.wire import ADMIN

if TYPE_CHECKING:
    from harness.systems.floodmark.mailbox import ZmqMailbox

_LOOK_S: Final = 0.005
MAX_ANSWER_BYTES: Final = 256 << 10
"""Of one frame that the harness takes in: it waits for the answers to its commands only."""
ASK_EVERY_US: Final = 1_000_000
"""How long one voter may be silent before the next is asked."""
_RETRY_US: Final = 100_000


class AdminCall:
    """One pending command. `answer` is set when a controller has committed or refused it."""

    def __init__(self, voters: Sequence[str], request: AdminRequest) -> None:
        """`request.corr` distinguishes its answers from those to earlier commands."""
        self.request = request
        self.answer: AdminResponse | None = None
        self.next_us = 0
        self._asked = 0
        self._voters = list(voters)

    def step(self, now_us: int, answer: AdminResponse | None = None) -> str:
        """Process an answer, if there is one; return the voter to send the request to now, "" for
        none."""
        if answer is not None and self.answer is None and answer.corr == self.request.corr:
            self._take(now_us, answer)
        if self.answer is not None or now_us < self.next_us:
            return ""
        asked = self._voters.pop(0)
        self._voters.append(asked)
        self._asked += 1
        self.next_us = now_us + ASK_EVERY_US
        return asked

    @property
    def unchanged(self) -> str:
        """The reason why the command changed nothing, "" if it changed something."""
        assert self.answer is not None
        # Whoever asks twice may find that the first time was heard.
        done_before = not self.answer.error and self._asked > 1
        return "" if done_before else self.answer.detail or self.answer.error

    def _take(self, now_us: int, answer: AdminResponse) -> None:
        if answer.error is not Error.NOT_CONTROLLER:
            self.answer = answer
        elif answer.leader in self._voters:
            self._voters.remove(answer.leader)
            self._voters.insert(0, answer.leader)
            self.next_us = now_us
        else:
            self.next_us = min(self.next_us, now_us + _RETRY_US)


def request_of(command: Command) -> AdminRequest:
    """Return a command of the nemesis as a request to the controller."""
    match command.what:
        case "elect-preferred":
            first = command.replicas[0] if command.replicas else ""
            return ElectLeader(partition=command.partition, first=first)
        case "elect-unclean":
            return ElectLeader(partition=command.partition, unclean=True)
        case "reassign":
            return ReassignReplicas(partition=command.partition, replicas=command.replicas)
        case "set-min-isr":
            return SetMinIsr(topic=TOPIC, min_isr=command.min_isr)


class Admin:
    """The sender of commands, one at a time: a new one replaces the one in progress. A subclass
    knows how messages travel, and how time passes."""

    def __init__(self, voters: Sequence[str]) -> None:
        self._voters = tuple(voters)
        self._number = 0
        self._call: AdminCall | None = None

    def begin(self, request: AdminRequest) -> None:
        """Make `request` the command in progress; `step` sends it."""
        self._number += 1
        self._call = AdminCall(self._voters, replace(request, corr=self._number))

    @property
    def idle(self) -> bool:
        """Return whether no command is in progress; then no answer needs to be waited for."""
        return self._call is None or self._call.answer is not None

    def give_up(self) -> None:
        """Drop the command in progress."""
        self._call = None

    def step(self) -> AdminResponse | None:
        """Read answers, and send the request if it is due. Return the final answer, None if there
        is none."""
        call = self._call
        assert call is not None, "begin first"
        for answer in (*self._answers(), None):
            voter = call.step(self._now_us(), answer)
            if voter:
                self._send(voter, call.request)
        return call.answer

    def carry_out(self, command: Command) -> None:
        """Have the controller carry out a command. Raises the errors of `World.command`."""
        self.begin(request_of(command))
        call = self._call
        assert call is not None
        limit_us = self._now_us() + COMMAND_LIMIT_US
        while self.step() is None:
            if self._now_us() >= limit_us:
                kind = call.request.__struct_config__.tag
                limit_s = COMMAND_LIMIT_US / 1e6
                raise FloodmarkError(f"no controller answered '{kind}' in {limit_s:g} s")
            self._wait()
        if call.unchanged:
            raise FloodmarkError(call.unchanged)

    def _now_us(self) -> int:
        """Return the clock of the run."""
        raise NotImplementedError

    def _answers(self) -> list[AdminResponse]:
        """Return the answers that have arrived since the last call."""
        raise NotImplementedError

    def _send(self, voter: str, request: AdminRequest) -> None:
        """Send a request to a voter."""
        raise NotImplementedError

    def _wait(self) -> None:
        """Let a little time pass."""
        raise NotImplementedError


class MailAdmin(Admin):
    """The sender of commands over ZeroMQ, in real time."""

    def __init__(self, mail: ZmqMailbox, voters: Sequence[str]) -> None:
        super().__init__(voters)
        self._mail = mail

    def _now_us(self) -> int:
        return now_us()

    def _answers(self) -> list[AdminResponse]:
        found = []
        for frames in self._mail.receive()[0]:
            try:
                _, source, message, _ = wire.decode(frames)
            except WireError:
                continue
            if isinstance(message, AdminResponse) and source in self._voters:
                found.append(message)
        return found

    def _send(self, voter: str, request: AdminRequest) -> None:
        self._mail.send(ADMIN, voter, request, None)

    def _wait(self) -> None:
        time.sleep(_LOOK_S)
