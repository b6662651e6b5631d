"""A command to the controller, asked until it is answered (pure: no socket, no clock).

    to = call.step(now_us, answer or None)     # whom to send `call.request` to now, "" for nobody

Voters are asked in turn; one that is not the controller may name it. Commands may be asked twice:
who finds the work done says so. The answer is final: done, or refused with one sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from node.core.messages import AdminRequest, AdminResponse, Error

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
        self._voters = list(voters)

    def step(self, now_us: int, answer: AdminResponse | None = None) -> str:
        """Take an answer if one came; returns the voter to ask now, "" when it is not time."""
        if answer is not None and self.answer is None and answer.corr == self.request.corr:
            self._take(now_us, answer)
        if self.answer is not None or now_us < self.next_us:
            return ""
        asked = self._voters.pop(0)
        self._voters.append(asked)
        self.next_us = now_us + ASK_EVERY_US
        return asked

    def _take(self, now_us: int, answer: AdminResponse) -> None:
        if answer.error is not Error.NOT_CONTROLLER:
            self.answer = answer
        elif answer.leader in self._voters:
            self._voters.remove(answer.leader)
            self._voters.insert(0, answer.leader)
            self.next_us = now_us
        else:
            self.next_us = min(self.next_us, now_us + _RETRY_US)
