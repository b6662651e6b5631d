"""An injector that knows where other schedules part from its own.

Two schedules of the same cluster and workload that begin with the same faults have the same run up
to the moment at which one of them does what the other does not. There the world can be copied, and
the copy continues with the other schedule (`harness.sim.branches`). What the other schedule has
counted until then, it has counted here.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from typing import Any

from nemesis.formats.fault_log import FaultLine
from nemesis.formats.schedule import Fault, Schedule
from nemesis.injector import INJECT, Injector
from nemesis.triggers import Triggers
from nemesis.view import ClusterView
from nemesis.world import World


class _Branch:
    """Another schedule: its number, how many faults it begins with alike, and what of the others
    has fired. Times in milliseconds."""

    def __init__(self, number: int, schedule: Schedule, common: int) -> None:
        self.number = number
        self.schedule = schedule
        self.common = common
        own = list(enumerate(schedule.faults))[common:]
        self.times_ms = [(fault.at_ms, index) for index, fault in own if fault.at_ms is not None]
        self.next_ms = min((at_ms for at_ms, _ in self.times_ms), default=None)
        self.triggers = Triggers({index: fault.after for index, fault in own if fault.after})
        self.fired: list[int] = []

    def is_due(self, now_ms: int) -> bool:
        """Whether one of its own faults comes now."""
        return bool(self.fired) or (self.next_ms is not None and self.next_ms <= now_ms)


class BranchingInjector(Injector):
    """Carries out one schedule, and calls `part` with the number of each of `others` where that one
    parts from it. `part` returns True in the copy of the world that goes on with the other one."""

    def __init__(
        self,
        schedule: Schedule,
        world: World,
        view: ClusterView,
        seed: int,
        record: Callable[[FaultLine], None],
        *,
        clients: Sequence[str],
        others: Sequence[Schedule],
        part: Callable[[int], bool],
    ) -> None:
        super().__init__(schedule, world, view, random.Random(seed), record, clients=clients)
        self._seed = seed
        self._part = part
        self._branches = [
            _Branch(number, other, shared_faults(schedule, other))
            for number, other in enumerate(others)
        ]

    def observe(self, event: dict[str, Any]) -> bool:
        """As every injector; also True when something of another schedule waited for it."""
        due = super().observe(event)
        if self._begun:
            for branch in self._branches:
                branch.fired += branch.triggers.observe(event)
                due = due or bool(branch.fired)
        return due

    def step(self, now_ms: int) -> int | None:
        """As every injector, after the other schedules that part now."""
        for branch in list(self._branches):
            if branch.is_due(now_ms) or self._has_own(branch.common, now_ms):
                self._leave(branch, now_ms)
        due_ms = super().step(now_ms)
        for branch in self._branches:
            if branch.next_ms is not None and (due_ms is None or branch.next_ms < due_ms):
                due_ms = branch.next_ms
        return due_ms

    def heal_all(self) -> None:
        """As every injector; what has not parted until the end of the storm parts now."""
        for branch in list(self._branches):
            self._leave(branch, None)
        super().heal_all()

    def _has_own(self, common: int, now_ms: int) -> bool:
        """Whether a fault that only this schedule has comes now."""
        due = [(action, index) for at_ms, action, index in self._due if at_ms <= now_ms]
        return any(a == INJECT and index >= common for a, index in (*self._fired, *due))

    def _leave(self, branch: _Branch, now_ms: int | None) -> None:
        """Another schedule parts: in the copy, become it."""
        if branch not in self._branches:
            return  # it has parted, and this is its copy
        self._branches.remove(branch)
        if self._part(branch.number):
            self._branches.clear()
            self._become(branch)

    def _become(self, branch: _Branch) -> None:
        """Go on with the other schedule: it has the same past."""
        faults: Sequence[Fault] = branch.schedule.faults
        common = branch.common
        rng = random.Random(self._seed)
        fresh = [random.Random(rng.getrandbits(64)) for _ in faults]
        self._rngs = [*self._rngs[:common], *fresh[common:]]
        self._schedule = branch.schedule
        self._due = [e for e in self._due if e[1] != INJECT or e[2] < common]
        self._due += [(at_ms, INJECT, index) for at_ms, index in branch.times_ms]
        heapq.heapify(self._due)
        self._fired = [e for e in self._fired if e[0] != INJECT or e[1] < common]
        self._fired += [(INJECT, index) for index in branch.fired]
        self._triggers[INJECT] = self._triggers[INJECT].first(common, branch.triggers)


def shared_faults(one: Schedule, other: Schedule) -> int:
    """How many faults two schedules begin with alike."""
    number = 0
    for mine, theirs in zip(one.faults, other.faults, strict=False):
        if mine != theirs:
            break
        number += 1
    return number
