"""Ways to search for a failing schedule: `random`, and `drawn` and `plain` to compare it with.

Each is given a judge, which runs one schedule and returns the outcome, and continues until the
budget is used up. All draw clusters and workloads with the same generator.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from msgspec.structs import replace

from harness.search.attempt import Attempt
from harness.search.choice_source import RandomChoices
from harness.search.escalate import judge_with_escalations
from harness.search.generator import draw_schedule
from nemesis.draw import draw as draw_storm
from nemesis.faults import KINDS, aliases, storm_kinds
from nemesis.faults.disks import DISK_GROUP
from nemesis.formats.schedule import Schedule
from node.formats.errors import UsageError

_STORM_MS: Final = 2_000
_STORM_KINDS: Final = (*aliases()["all"], "power-cut", "stop", "elect-preferred", "reassign")


ScheduleJudge = Callable[[Schedule], Attempt]
"""Runs a schedule, and returns the outcome."""
Enough = Callable[[], bool]
"""Asked before each run; True ends the search."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is searched: a protocol and the bugs turned on in it. Schedules may also have the kinds
    of faults of disks in `faults`, and all have the late `dimensions` of the generator."""

    protocol: str
    bugs: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    dimensions: tuple[str, ...] = ()

    def draw(self, choose: RandomChoices) -> Schedule:
        """A schedule for it."""
        return draw_schedule(choose, self.protocol, self.bugs, self.faults, self.dimensions)


def disk_faults(text: str) -> tuple[str, ...]:
    """`bit-flip,fsync-error` or `disk` as names of kinds. Raises UsageError for what is neither a
    fault of disks nor their group."""
    names = [name.strip() for name in text.split(",")]
    known = [name for name, kind in KINDS.items() if kind.on_disks]
    if wrong := [name for name in names if name not in (*known, DISK_GROUP)]:
        raise UsageError(
            f"a search cannot add fault '{wrong[0]}' (it can: {', '.join(known)}, {DISK_GROUP})"
        )
    group = aliases()[DISK_GROUP] if DISK_GROUP in names else ()
    return tuple(name for name in known if name in names or name in group)


class Engine(Protocol):
    """One way to search."""

    def __call__(self, subject: Subject, seed: int, judge: ScheduleJudge, enough: Enough) -> None:
        """Draw and judge until `enough()`. The judge keeps what it finds."""
        ...


def random_engine(subject: Subject, seed: int, judge: ScheduleJudge, enough: Enough) -> None:
    """Each schedule is drawn independently; the n-th of a seed is always the same."""
    number = 0
    while not enough():
        runs = judge_with_escalations(fresh_schedule(subject, seed, number), judge)
        next(runs)
        while not enough() and next(runs, None) is not None:
            pass
        number += 1


def drawn_engine(subject: Subject, seed: int, judge: ScheduleJudge, enough: Enough) -> None:
    """The schedules of the random engine, and no run is repeated with another end."""
    number = 0
    while not enough():
        judge(fresh_schedule(subject, seed, number))
        number += 1


def fresh_schedule(subject: Subject, seed: int, number: int) -> Schedule:
    """The n-th schedule of a seed, drawn independently."""
    return subject.draw(RandomChoices(random.Random(f"search/{seed}/{number}")))


def plain_engine(subject: Subject, seed: int, judge: ScheduleJudge, enough: Enough) -> None:
    """What the others are measured against: clusters and workloads as the random engine draws them,
    with the faults of a storm, as `floodmark run` draws them. No scenario begins at an event, and a
    run that broke something inside the cluster is not repeated with another end."""
    number = 0
    while not enough():
        rng = random.Random(f"plain/{seed}/{number}")
        schedule = storm_instead(subject.draw(RandomChoices(rng)), rng.getrandbits(32))
        judge(schedule)
        number += 1


def storm_instead(schedule: Schedule, seed: int) -> Schedule:
    """The schedule with the faults of a storm, which is as long as schedules are at most."""
    workload = replace(schedule.workload, duration_ms=_STORM_MS)
    kinds = [
        name
        for name in _STORM_KINDS
        if storm_kinds()[name].fewest_brokers <= schedule.cluster.brokers
    ]
    faults = draw_storm(schedule.cluster, workload, kinds, seed)
    return replace(schedule, workload=workload, faults=faults)


ENGINES: Final[dict[str, Engine]] = {
    "random": random_engine,
    "drawn": drawn_engine,
    "plain": plain_engine,
}
