"""Three ways to search for a failing schedule: random, guided by coverage, and Hypothesis.

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
from harness.search.choice_source import HypothesisChoices, RandomChoices
from harness.search.escalate import judge_with_escalations
from harness.search.generator import MAX_FAULTS_DRAWN, draw_schedule
from harness.search.shrink_passes import possible
from nemesis.formats.schedule import Fault, Schedule

MAX_CORPUS: Final = 500
_FRESH_PERCENT: Final = 40
_HYPOTHESIS_ROUND: Final = 200


Judge = Callable[[Schedule], Attempt]
Enough = Callable[[], bool]
"""Asked before each run; True ends the search."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is searched: a protocol and the bugs turned on in it."""

    protocol: str
    bugs: tuple[str, ...] = ()


class Engine(Protocol):
    """One way to search."""

    def __call__(self, subject: Subject, seed: int, judge: Judge, enough: Enough) -> None:
        """Draw and judge until `enough()`. The judge keeps what it finds."""
        ...


def random_engine(subject: Subject, seed: int, judge: Judge, enough: Enough) -> None:
    """Each schedule is drawn independently; the n-th of a seed is always the same."""
    number = 0
    while not enough():
        rng = random.Random(f"search/{seed}/{number}")
        _judge(draw_schedule(RandomChoices(rng), subject.protocol, subject.bugs), judge, enough)
        number += 1


def _judge(schedule: Schedule, judge: Judge, enough: Enough) -> Attempt:
    """Judge a schedule and its escalations; returns the outcome of the schedule itself."""
    runs = judge_with_escalations(schedule, judge)
    _, first = next(runs)
    while not enough() and next(runs, None) is not None:
        pass
    return first


def guided_engine(subject: Subject, seed: int, judge: Judge, enough: Enough) -> None:
    """Schedules with new coverage are kept and mutated; some are drawn independently.

    The corpus is bounded; the oldest leave first.
    """
    rng = random.Random(f"guided/{seed}")
    seen: set[object] = set()
    corpus: list[Schedule] = []
    while not enough():
        if not corpus or rng.randrange(100) < _FRESH_PERCENT:
            schedule = draw_schedule(RandomChoices(rng), subject.protocol, subject.bugs)
        else:
            schedule = mutate(rng.choice(corpus), rng)
        covered = set(_judge(schedule, judge, enough).coverage)
        if not covered <= seen:
            seen |= covered
            corpus.append(schedule)
            del corpus[:-MAX_CORPUS]


def mutate(schedule: Schedule, rng: random.Random) -> Schedule:
    """The schedule with one or two small changes to its faults or its workload."""
    changed = schedule
    for _ in range(rng.choice((1, 1, 2))):
        candidate = _one_change(changed, rng)
        if possible(candidate):
            changed = candidate
    return changed


def _one_change(schedule: Schedule, rng: random.Random) -> Schedule:
    other = draw_schedule(RandomChoices(rng), schedule.cluster.protocol, schedule.cluster.bugs)
    faults = list(schedule.faults)
    change = rng.randrange(5)
    if change == 0 or not faults:
        fresh = other.faults[:1]
        faults[len(faults) // 2 : len(faults) // 2] = fresh
    elif change == 1:
        del faults[rng.randrange(len(faults))]
    elif change == 2:
        at = rng.randrange(len(faults))
        faults[at] = _retimed(faults[at], rng)
    elif change == 3:
        at = rng.randrange(len(faults))
        faults[at : at + 1] = other.faults[:1]
    else:
        return replace(schedule, workload=other.workload)
    return replace(schedule, faults=tuple(faults[:MAX_FAULTS_DRAWN]))


def _retimed(fault: Fault, rng: random.Random) -> Fault:
    """The same fault earlier, later, or at another occurrence of its event."""
    factor = rng.choice((0.5, 0.8, 1.25, 2.0))
    if fault.after is not None:
        nth = max(1, round(fault.after.nth * factor))
        return replace(fault, after=replace(fault.after, nth=nth))
    return replace(fault, at_ms=round((fault.at_ms or 0) * factor))


class _RoundEnded(Exception):
    """Ends a round of Hypothesis."""


def hypothesis_engine(subject: Subject, seed: int, judge: Judge, enough: Enough) -> None:
    """Hypothesis draws, and maximises the coverage of each run (targeted search)."""
    number = 0
    while not enough():
        _hypothesis_round(subject, f"{seed}/{number}", judge, enough)
        number += 1


def _hypothesis_round(subject: Subject, seed: str, judge: Judge, enough: Enough) -> None:
    """One run of Hypothesis over at most `_HYPOTHESIS_ROUND` schedules."""

    def draw_and_judge(data: st.DataObject) -> None:
        if enough():
            raise _RoundEnded
        schedule = draw_schedule(HypothesisChoices(data), subject.protocol, subject.bugs)
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
    "guided": guided_engine,
    "hypothesis": hypothesis_engine,
}
