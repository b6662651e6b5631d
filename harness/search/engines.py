"""Ways to search for a failing schedule: random, guided by rare states, PCT, and Hypothesis.

Each is given a judge, which runs one schedule and returns the outcome, and continues until the
budget is used up. All draw with the same generator; they differ in what they learn from a run.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import hypothesis
from hypothesis import strategies as st
from msgspec.structs import replace

from harness.search.attempt import Attempt
from harness.search.choice_source import ChoiceSource, HypothesisChoices, RandomChoices
from harness.search.delivery import choose_delivery
from harness.search.escalate import judge_with_escalations
from harness.search.generator import draw_schedule
from harness.search.guidance import Corpus, strike
from harness.search.shrink_passes import possible
from nemesis.draw import draw as draw_storm
from nemesis.faults import KINDS, aliases, storm_kinds
from nemesis.faults.disks import DISK_GROUP
from nemesis.formats.schedule import Schedule
from node.formats.errors import UsageError

_FRESH_PERCENT: Final = 75
_LATE_PERCENT: Final = 75
_HYPOTHESIS_ROUND: Final = 200
_STORM_MS: Final = 2_000
_STORM_KINDS: Final = (*aliases()["all"], "power-cut", "stop", "elect-preferred", "reassign")


class ScheduleJudge(Protocol):
    """Runs a schedule. `independent`: it was drawn without regard to any other one."""

    def __call__(self, schedule: Schedule, *, independent: bool = False) -> Attempt:
        """The outcome."""
        ...


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

    def draw(self, choose: ChoiceSource) -> Schedule:
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
        _judge(fresh_schedule(subject, seed, number), judge, enough, independent=True)
        number += 1


def drawn_engine(subject: Subject, seed: int, judge: ScheduleJudge, enough: Enough) -> None:
    """The schedules of the random engine, and no run is repeated with another end."""
    number = 0
    while not enough():
        judge(fresh_schedule(subject, seed, number), independent=True)
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
        judge(schedule, independent=True)
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


def pct_engine(subject: Subject, seed: int, judge: ScheduleJudge, enough: Enough) -> None:
    """Each schedule is drawn independently, most with late links (`harness.search.delivery`)."""
    number = 0
    while not enough():
        rng = random.Random(f"pct/{seed}/{number}")
        choose = RandomChoices(rng)
        schedule = subject.draw(choose)
        if choose.chance(_LATE_PERCENT):
            schedule = choose_delivery(choose, schedule)
        _judge(schedule, judge, enough, independent=True)
        number += 1


def _judge(
    schedule: Schedule, judge: ScheduleJudge, enough: Enough, *, independent: bool = False
) -> Attempt:
    """Judge a schedule and its escalations; returns the outcome of the schedule itself."""
    runs = judge_with_escalations(
        schedule, lambda each: judge(each, independent=independent and each is schedule)
    )
    _, first = next(runs)
    while not enough() and next(runs, None) is not None:
        pass
    return first


def guided_engine(subject: Subject, seed: int, judge: ScheduleJudge, enough: Enough) -> None:
    """Three of four schedules are those of the random engine; the others go on from a rare moment
    of an earlier run (`harness.search.guidance`)."""
    corpus, number, rng = Corpus(), 0, random.Random(f"guided/{seed}")
    choose = RandomChoices(rng)
    while not enough():
        is_fresh = not len(corpus) or choose.chance(_FRESH_PERCENT)
        if is_fresh:
            schedule, number = fresh_schedule(subject, seed, number), number + 1
        else:
            schedule = strike(*corpus.choose(rng), choose)
        if possible(schedule):
            outcome = _judge(schedule, judge, enough, independent=is_fresh)
            corpus.add(schedule, outcome.moments)


class _RoundEnded(Exception):
    """Ends a round of Hypothesis."""


def hypothesis_engine(subject: Subject, seed: int, judge: ScheduleJudge, enough: Enough) -> None:
    """Hypothesis draws, and maximises the coverage of each run (targeted search)."""
    number = 0
    while not enough():
        _hypothesis_round(subject, f"{seed}/{number}", judge, enough)
        number += 1


def _hypothesis_round(subject: Subject, seed: str, judge: ScheduleJudge, enough: Enough) -> None:
    """One run of Hypothesis over at most `_HYPOTHESIS_ROUND` schedules."""

    def draw_and_judge(data: st.DataObject) -> None:
        if enough():
            raise _RoundEnded
        schedule = subject.draw(HypothesisChoices(data))
        outcome = _judge(schedule, judge, enough)
        hypothesis.target(float(len(outcome.coverage)))
        if outcome.failed:
            raise _RoundEnded

    settings = hypothesis.settings(
        max_examples=_HYPOTHESIS_ROUND,
        database=None,
        deadline=None,
        phases=(hypothesis.Phase.generate, hypothesis.Phase.target),
        suppress_health_check=list(hypothesis.HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
        verbosity=hypothesis.Verbosity.quiet,
    )
    seeded = hypothesis.seed(seed)(settings(hypothesis.given(st.data())(draw_and_judge)))
    try:
        seeded()
    except _RoundEnded:
        return
    except hypothesis.errors.Flaky:
        return  # the budget ended between two runs of one example


ENGINES: Final[dict[str, Engine]] = {
    "random": random_engine,
    "drawn": drawn_engine,
    "plain": plain_engine,
    "guided": guided_engine,
    "pct": pct_engine,
    "hypothesis": hypothesis_engine,
}

ENGINE_VERSIONS: Final = {"guided": 3, "pct": 1}
"""Of engines that draw otherwise than they once did; the others draw as the generator does."""
