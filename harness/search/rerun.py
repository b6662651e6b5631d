"""Schedules without one of their faults, in which the others come about in another way.

A trigger that waits for an event, and for how many of them, waits for ever once a fault before it
is left out: the schedule no longer fails, although the same upsets, at the same time or from where
the run leads now, would do. For shrinking.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from harness.search.escalate import pursued
from harness.search.shrink_passes import possible, sooner
from harness.sim.run import simulate
from nemesis.formats.schedule import Fault, Schedule
from node.formats.errors import FloodmarkError


def anew(schedule: Schedule, gone: int) -> Iterator[Schedule]:
    """Smaller schedules without fault number `gone`: the others at the times at which they struck,
    or with another end."""
    for candidate in (*_at_their_times(schedule, gone), *_ended_otherwise(schedule, gone)):
        if len(candidate.faults) < len(schedule.faults) and possible(candidate):
            yield candidate


def _at_their_times(schedule: Schedule, gone: int) -> Iterator[Schedule]:
    """Each fault that waits for an event at the time at which it struck: only the first to strike
    after the one that is gone, or all of them."""
    try:
        run = simulate(schedule, seed=schedule.workload.seed, stop_at="visible")
    except FloodmarkError:
        return
    struck = {
        line.fault: max(0, line.t_us - run.info.phases.storm_us)
        for line in reversed(run.faults)
        if line.action == "inject"
    }
    waited = [at for at in struck if schedule.faults[at].after is not None and at != gone]
    after = [at for at in waited if struck[at] >= struck.get(gone, 0)]
    for chosen in (sorted(after, key=struck.__getitem__)[:1], waited):
        if chosen:
            yield replace(
                schedule,
                faults=tuple(
                    _at(fault, struck[at]) if at in chosen else fault
                    for at, fault in enumerate(schedule.faults)
                    if at != gone
                ),
            )


def _at(fault: Fault, t_us: int) -> Fault:
    return replace(fault, after=None, at_ms=t_us // 1000)


def _ended_otherwise(schedule: Schedule, gone: int) -> Iterator[Schedule]:
    """Without the last fault too, which as a rule came of a pursuit, and with what may follow."""
    kept = tuple(f for at, f in enumerate(schedule.faults[:-1]) if at != gone)
    shorter = replace(schedule, faults=kept)
    for candidate in (shorter, *sooner(shorter)):
        if possible(candidate):
            yield from pursued(candidate)
