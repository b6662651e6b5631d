"""The harness's own voice in the cluster: sends commands to the controller over ZeroMQ."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from harness.runs.clock import now_us
from harness.systems.floodmark.admin_call import ADMIN, AdminCall, request_of
from harness.systems.floodmark.mail import Mail
from nemesis.world import COMMAND_LIMIT_US, Command
from node.core import wire
from node.core.messages import AdminRequest, AdminResponse
from node.formats.errors import FloodmarkError, WireError

_LOOK_S: Final = 0.005


class Admin:
    """One command after the other; who begins another gives up the one before."""

    def __init__(self, mail: Mail, voters: Sequence[str]) -> None:
        self._mail = mail
        self._voters = tuple(voters)
        self._number = 0
        self._call: AdminCall | None = None

    def begin(self, request: AdminRequest, *, first: str = "") -> None:
        """Begin to ask, the voter `first` before the others; `step` goes on with it."""
        self._number += 1
        voters = sorted(self._voters, key=lambda voter: voter != first)
        self._call = AdminCall(voters, replace(request, corr=self._number))

    def step(self) -> AdminResponse | None:
        """Read answers, and ask (again) when it is time. Returns the answer once it is there."""
        call = self._call
        assert call is not None, "begin first"
        answers: list[AdminResponse | None] = [None]
        for frames in self._mail.drain():
            try:
                _, _, message, _ = wire.decode(frames)
            except WireError:
                continue
            if isinstance(message, AdminResponse):
                answers.append(message)
        for answer in answers:
            to = call.step(now_us(), answer)
            if to:
                self._mail.send(ADMIN, to, call.request, None)
        return call.answer

    def carry_out(self, command: Command) -> None:
        """Have a command of the nemesis done. Raises FloodmarkError as `World.command` says."""
        self.ask(request_of(command), COMMAND_LIMIT_US / 1e6)
        assert self._call is not None
        if self._call.unchanged:
            raise FloodmarkError(self._call.unchanged)

    def ask(self, request: AdminRequest, timeout_s: float) -> AdminResponse:
        """Ask and wait. Raises FloodmarkError when no controller answers in time: what becomes of
        the command is not known then."""
        self.begin(request)
        deadline = time.monotonic() + timeout_s
        while (answer := self.step()) is None:
            if time.monotonic() > deadline:
                kind = request.__struct_config__.tag
                raise FloodmarkError(f"no controller answered '{kind}' in {timeout_s:g} s")
            time.sleep(_LOOK_S)
        return answer
