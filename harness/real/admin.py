"""The harness's own voice in the cluster: asks the controller to make the topic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from harness.clock import now_us
from harness.real.mail import Mail
from node import wire
from node.core.messages import AdminResponse, CreateTopic, Error
from node.errors import FloodmarkError, WireError

ADMIN: Final = "admin"
"""The node name under which the harness speaks."""

_ASK_EVERY_US: Final = 1_000_000


class TopicMaker:
    """Asks for a topic until a controller says that it is made. Asking twice does no harm."""

    def __init__(self, mail: Mail, voters: Sequence[str], request: CreateTopic) -> None:
        """`request` is sent to one voter after the other, or to the one a refusal names."""
        self._mail = mail
        self._voters = list(voters)
        self._request = request
        self._next_us = 0
        self.refused = ""
        self.done = False

    def step(self) -> None:
        """Read answers; ask (again) when it is time. Raises FloodmarkError for a final refusal."""
        for frames in self._mail.drain():
            try:
                _, _, message, _ = wire.decode(frames)
            except WireError:
                continue
            if isinstance(message, AdminResponse):
                self._take(message)
        moment_us = now_us()
        if not self.done and moment_us >= self._next_us:
            self._mail.send(ADMIN, self._voters[0], self._request, None)
            self._voters.append(self._voters.pop(0))
            self._next_us = moment_us + _ASK_EVERY_US

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
