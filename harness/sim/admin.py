"""The harness's own voice in a simulated cluster: sends commands to the controller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from harness.sim.event_queue import Agenda
from harness.sim.network import Network, Parcel
from harness.systems.floodmark.admin_call import ADMIN, AdminCall, request_of
from nemesis.faults.admin import Command
from nemesis.world import COMMAND_LIMIT_US
from node.core.messages import AdminRequest, AdminResponse
from node.formats.errors import FloodmarkError

_LOOK_US: Final = 1_000


class SimAdmin:
    """One command after the other, as `harness.systems.floodmark.admin`."""

    def __init__(self, agenda: Agenda, network: Network, voters: Sequence[str]) -> None:
        self._agenda = agenda
        self._network = network
        self._voters = tuple(voters)
        self._number = 0
        self._answers: list[AdminResponse] = []
        network.join(ADMIN, self._arrive)

    def begin(self, request: AdminRequest) -> AdminCall:
        """Begin to ask; `step` goes on with it."""
        self._number += 1
        return AdminCall(self._voters, replace(request, corr=self._number))

    def step(self, call: AdminCall) -> AdminResponse | None:
        """Take answers, and ask (again) when it is time. Returns the answer once it is there."""
        answers, self._answers = self._answers, []
        for answer in (*answers, None):
            voter = call.step(self._agenda.now_us, answer)
            if voter:
                self._network.send(ADMIN, voter, call.request, None)
        return call.answer

    def carry_out(self, command: Command) -> None:
        """Have a command of the nemesis done; virtual time passes. Raises FloodmarkError as
        `World.command` says."""
        call = self.begin(request_of(command))
        limit_us = self._agenda.now_us + COMMAND_LIMIT_US
        while self.step(call) is None:
            if self._agenda.now_us >= limit_us:
                kind = call.request.__struct_config__.tag
                raise FloodmarkError(
                    f"no controller answered '{kind}' in {COMMAND_LIMIT_US / 1e6:g} s"
                )
            self._agenda.run(self._agenda.now_us + _LOOK_US)
        if call.unchanged:
            raise FloodmarkError(call.unchanged)

    def _arrive(self, parcel: Parcel) -> None:
        if isinstance(parcel[2], AdminResponse):
            self._answers.append(parcel[2])
