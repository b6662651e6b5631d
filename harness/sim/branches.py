"""Runs that begin as another run, continued from the last moment that they have in common.

A search that tries several continuations of one schedule, and an explanation that leaves out one
thing after another, need many runs with the same past. Here that past is run once. At the moment
where another run parts from it, the simulated world is copied (`harness.sim.copies`), and the copy
goes on as that other run. Each has a schedule file like any other, and the digest of a run of that
file from the start.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TypeVar

from harness.sim.copies import WorldCopies
from harness.sim.network import AffectedMessage
from harness.sim.run import SimResult, SimRun, StopAt, no_collections
from harness.systems.floodmark.brokers import promise_of
from nemesis.branching import BranchingInjector
from nemesis.formats.schedule import Schedule
from nemesis.injector import Injector

T = TypeVar("T")


class _NothingLeft(Exception):
    """All others have parted: the run that they parted from need not end."""


class _BranchingRun(SimRun):
    """A run of one schedule, of which others part. `rest` goes on to its own end."""

    def __init__(
        self,
        schedule: Schedule,
        others: Sequence[Schedule],
        seed: int,
        stop_at: StopAt,
        stop: Callable[[], bool],
    ) -> None:
        super().__init__(schedule, seed, stop_at=stop_at)
        self._enough = stop
        self.copies = WorldCopies()
        self._others = tuple(others)
        self._left = len(self._others)
        self.cluster.look_for((schedule, *others))

    def injector(self) -> Injector:
        return BranchingInjector(
            self.schedule,
            self.cluster.world,
            self.cluster.view,
            self.seed,
            self.faults.append,
            clients=self.cluster.factory.working,
            others=self._others,
            part=self._part,
        )

    def _part(self, number: int) -> bool:
        if self._enough():
            raise _NothingLeft
        if self.copies.copy(number):
            self.schedule = self._others[number]
            self.cluster.become(self.schedule)
            self.info.schedule_digest = self.schedule.digest()
            return True
        self._left -= 1
        if not self._left:
            raise _NothingLeft
        return False


def may_branch(schedule: Schedule, other: Schedule) -> bool:
    """Whether a run of `other` can be continued from one of `schedule`: the same cluster, workload
    and promise, and no operations of a script, which are counted from the start."""
    return (
        not schedule.workload.operations
        and other.workload == schedule.workload
        and other.cluster == schedule.cluster
        and other.drawn == schedule.drawn
        and promise_of(other) == promise_of(schedule)
    )


def branches(
    schedule: Schedule,
    others: Sequence[Schedule],
    make: Callable[[SimResult], T],
    *,
    seed: int,
    stop_at: StopAt,
    stop: Callable[[], bool] = lambda: False,
) -> dict[int, T]:
    """What `make` makes of the run of each of `others`, by number; `schedule` is run as far as they
    need it. A number is missing where a schedule cannot be continued from that run, or its copy
    failed: run that one from the start. After `stop` no more are made. Raises FloodmarkError when
    the cluster does not start."""
    possible = [number for number, other in enumerate(others) if may_branch(schedule, other)]
    if not possible:
        return {}
    with no_collections():
        run = _BranchingRun(schedule, [others[number] for number in possible], seed, stop_at, stop)
        with run.copies.nothing_escapes():
            with contextlib.suppress(_NothingLeft):
                run.execute()
            if run.copies.is_copy:
                run.copies.deliver(make(run.result(None)))
    return {possible[number]: made for number, made in run.copies.delivered.items()}


def without_messages(
    schedule: Schedule,
    numbers: Sequence[int],
    make: Callable[[SimResult], T],
    *,
    seed: int,
    stop_at: StopAt,
    stop: Callable[[], bool] = lambda: False,
) -> dict[int, T]:
    """What `make` makes of the run in which the n-th message that link rules would drop or hold
    passes, for each n of `numbers` (from 0). A number is missing where its copy failed, or where
    there is no such message. After `stop` no more are made."""
    copies, met, wanted = WorldCopies(), 0, set(numbers)

    def passes(message: AffectedMessage) -> bool:
        nonlocal met
        number, met = met, met + 1
        if copies.is_copy or number not in wanted:
            return False
        if stop():
            raise _NothingLeft
        wanted.discard(number)
        if copies.copy(number):
            return True
        if not wanted:
            raise _NothingLeft
        return False

    with no_collections(), copies.nothing_escapes():
        run = SimRun(schedule, seed, stop_at=stop_at)
        run.cluster.network.exempt(passes)
        with contextlib.suppress(_NothingLeft):
            run.execute()
        if copies.is_copy:
            copies.deliver(make(run.result(None)))
    return copies.delivered
