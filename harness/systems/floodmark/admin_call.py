"""A command to the controller, asked until it is answered (pure: no socket, no clock).

    to = call.step(now_us, answer or None)     # whom to send `call.request` to now, "" for nobody

Voters are asked in turn; one that is not the controller may name it. Commands may be asked twice:
who finds the work done says so. The answer is final: done, or refused with one sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from harness.systems.floodmark.brokers import TOPIC
from nemesis.world import Command
from node.core.messages import (
    AdminRequest,
    AdminResponse,
    ElectLeader,
    Error,
    ReassignReplicas,
    SetMinIsr,
)

ADMIN: Final = "admin"
"""The node name under which the harness speaks."""
ASK_EVERY_US: Final = 1_000_000
"""How long one voter may be silent before the next is asked."""
_RETRY_US: Final = 100_000


class AdminCall:
    """One command under way. `answer` is there once a controller has committed or refused it."""

    def __init__(self, voters: Sequence[str], request: AdminRequest) -> None:
        """`request.corr` tells the answers to it from those to commands before it."""
        self.request = request
        self.answer: AdminResponse | None = None
        self.next_us = 0
        self._asked = 0
        self._voters = list(voters)

    def step(self, now_us: int, answer: AdminResponse | None = None) -> str:
        """Take an answer if one came; returns the voter to ask now, "" when it is not time."""
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
        """Why the final answer changed nothing, "" if something was done."""
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
    """A command of the nemesis as the controller is told it."""
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
