"""Makes a shrunk schedule last: times become events where that makes its failure surer.

Each timed fault is tried at the moments the simulated run knows before it ("when n2 takes the
lead"), and that form is kept which fails most often when every message takes a little longer or
shorter. Deterministic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from harness.search.trigger_candidates import before, moments
from nemesis.faults import Delay
from nemesis.formats.schedule import Fault, Schedule

FailsAlike = Callable[[Schedule, int], bool]
"""Whether a schedule fails in the way that is being kept, in the world of a seed."""

JITTERS: Final = 20
LATENCY_MS: Final = 2
MOST_MOMENTS: Final = 6
FIRST_WORLD: Final = 1000


def jittered(schedule: Schedule, latency_ms: int = LATENCY_MS) -> Schedule:
    """The schedule on a network of its own mood: every message is up to twice `latency_ms` late."""
    mood = Delay(on="all", to="all", delay_ms=latency_ms, jitter_ms=latency_ms, at_ms=0)
    # Last, so that the faults keep their numbers, and their draws.
    return replace(schedule, faults=(*schedule.faults, mood))


def steadiness(
    schedule: Schedule, fails_alike: FailsAlike, times: int = JITTERS, *, above: int = -1
) -> int:
    """In how many of `times` moods of the network the schedule fails as it should.

    It is given up, at what it has, when it can no longer come above `above`.
    """
    trying, failed = jittered(schedule), 0
    for number in range(times):
        if failed + times - number <= above:
            break
        failed += fails_alike(trying, FIRST_WORLD + number)
    return failed


def steady(
    schedule: Schedule, events: list[dict[str, Any]], storm_us: int, fails_alike: FailsAlike
) -> Schedule:
    """The form of the schedule that fails most surely; `events` and `storm_us` are of its run."""
    told = list(moments(events, storm_us))
    best, best_score = schedule, steadiness(schedule, fails_alike, JITTERS // 2)
    for index, fault in enumerate(schedule.faults):
        if fault.at_ms is None:
            continue
        at_us = storm_us + fault.at_ms * 1000
        for moment in before(told, at_us, MOST_MOMENTS):
            after = replace(moment.after, delay_ms=(at_us - moment.t_us) // 1000)
            candidate = with_fault(best, index, replace(fault, at_ms=None, after=after))
            if not fails_alike(candidate, candidate.workload.seed):
                continue
            score = steadiness(candidate, fails_alike, JITTERS // 2, above=best_score)
            if score > best_score:
                best, best_score = candidate, score
    return best


def with_fault(schedule: Schedule, index: int, fault: Fault) -> Schedule:
    """The schedule with another fault at a place."""
    faults = (*schedule.faults[:index], fault, *schedule.faults[index + 1 :])
    return replace(schedule, faults=faults)
