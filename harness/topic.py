"""Asks the controller to make the topic, in whichever world (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from node.core.messages import AdminResponse, CreateTopic, Error
from node.errors import FloodmarkError

ADMIN: Final = "admin"
"""The node name under which the harness speaks."""
ASK_EVERY_US: Final = 1_000_000


class TopicMaker:
    """Asks for a topic until a controller says that it is made. Asking twice does no harm."""

    def __init__(self, voters: Sequence[str], request: CreateTopic) -> None:
        """`request` is sent to one voter after the other, or to the one a refusal names."""
        self._voters = list(voters)
        self._next_us = 0
        self.request = request
        self.done = False

    def step(self, now_us: int, answers: Iterable[object]) -> str:
        """Take in answers; whom to ask now, "" for nobody. Raises FloodmarkError for a final
        refusal."""
        for answer in answers:
            if isinstance(answer, AdminResponse):
                self._take(answer)
        if self.done or now_us < self._next_us:
            return ""
        voter = self._voters.pop(0)
        self._voters.append(voter)
        self._next_us = now_us + ASK_EVERY_US
        return voter

    def _take(self, answer: AdminResponse) -> None:
        if answer.error is Error.NONE:
            self.done = True
        elif answer.error is Error.NOT_CONTROLLER:
            if answer.leader in self._voters:
                self._voters.remove(answer.leader)
                self._voters.insert(0, answer.leader)
                self._next_us = 0
        else:
            raise FloodmarkError(
                f"the topic could not be made: {answer.detail or answer.error}"
            )
