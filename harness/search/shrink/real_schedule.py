"""The form of a shrunk schedule that also fails on real processes: the schedule in slow motion.

Real processes start slowly, messages wait, and the harness sees an event a little later. So all
times become longer, by the factor with which the schedule fails most often in simulated worlds that
have such delays. The result is deterministic."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from harness.search.worlds.outcome import run_simulated
from harness.search.worlds.subject import Stop, never
from harness.sim.node import BUSY_HOST, IDLE_HOST, OVERLOADED_HOST, LatencyProfile
from nemesis.faults import Delay
from nemesis.formats.schedule import Fault, Operation, Schedule

FIRST_SEED: Final = 1000
SLOWER: Final = (6, 10, 16)
"""Factors that make the timeouts of a search as long as those of a storm, or longer."""
Due = TypeVar("Due", Fault, Operation)


class Conditions(NamedTuple):
    """The conditions of a simulated run: seed, latency profile, least delay of a message in ms."""

    seed: int
    latency: LatencyProfile
    delay_ms: int


CONDITIONS: Final = tuple(
    Conditions(FIRST_SEED + number, *kind)
    for number, kind in enumerate([(IDLE_HOST, 1), (BUSY_HOST, 8), (OVERLOADED_HOST, 4)] * 10)
)
RUNS: Final = len(CONDITIONS)
"""The number of simulated runs of a form, each under other conditions."""


class RealSchedule(NamedTuple):
    """A schedule for real processes, and how many of its `RUNS` simulated runs fail."""

    schedule: Schedule
    failures: int


def real_schedule(schedule: Schedule, broken: str, *, stop: Stop = never) -> RealSchedule | None:
    """Return the form of a schedule that violates `broken` most often; None if there is none, or if
    `stop` returns True first."""
    best = RealSchedule(schedule, 0)
    for form in (schedule, *(slow_motion(schedule, factor) for factor in SLOWER)):
        failed = 0
        for left, under in zip(range(RUNS - 1, -1, -1), CONDITIONS, strict=True):
            if stop():
                return None
            failed += fails(form, broken, under)
            if failed + left <= best.failures:
                break
        if failed > best.failures:
            best = RealSchedule(form, failed)
    return best if best.failures else None


def fails(schedule: Schedule, broken: str, under: Conditions) -> bool:
    """Return whether a schedule violates the property under these conditions."""
    jitter = Delay(on="all", to="all", delay_ms=under.delay_ms, jitter_ms=under.delay_ms, at_ms=0)
    # Last, so that the other faults keep their numbers, and their random draws.
    schedule = replace(schedule, faults=(*schedule.faults, jitter))
    outcome = run_simulated(schedule, under.seed, latency=under.latency)
    if outcome.failed and broken not in outcome.broken:
        outcome = run_simulated(schedule, under.seed, latency=under.latency, stop_at="never")
    return broken in outcome.broken


def slow_motion(schedule: Schedule, factor: int = SLOWER[0]) -> Schedule:
    """Return the schedule `factor` times as slow in all timeouts, times of faults and pauses: a
    search uses short timeouts, which work only if messages are never late by themselves. Faults of
    more than half a session then last for at least two: shrinking leaves faults so short that a
    single heartbeat decides."""
    cluster, workload = schedule.cluster, schedule.workload
    timings = type(cluster.timings)(
        **{name: ms * factor for name, ms in msgspec.structs.asdict(cluster.timings).items()}
    )
    faults = (_slower(fault, factor) for fault in schedule.faults)
    return replace(
        schedule,
        cluster=replace(
            cluster, timings=timings, flush_interval_ms=cluster.flush_interval_ms * factor
        ),
        workload=replace(
            workload,
            rate=workload.rate / factor,
            timeout_ms=workload.timeout_ms * factor,
            duration_ms=workload.duration_ms * factor + 3 * timings.session_ms,
            operations=tuple(_slower(operation, factor) for operation in workload.operations),
        ),
        faults=tuple(_longer(fault, timings.session_ms) for fault in faults),
    )


def _slower(due: Due, factor: int) -> Due:
    """Return a fault or an operation with all its times `factor` times as long."""
    names = [n for n in ("at_ms", "for_ms", "delay_ms", "jitter_ms") if getattr(due, n, None)]
    changes: dict[str, Any] = {name: getattr(due, name) * factor for name in names}
    if due.after is not None:
        changes["after"] = replace(due.after, delay_ms=due.after.delay_ms * factor)
    return replace(due, **changes)


def _longer(fault: Fault, session_ms: int) -> Fault:
    if fault.for_ms is None or fault.for_ms * 2 <= session_ms:
        return fault
    return replace(fault, for_ms=max(fault.for_ms, 2 * session_ms))
