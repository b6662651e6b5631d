"""The form of a shrunk schedule that also fails on real processes.

Real processes start slowly, messages wait, and the harness sees an event a little later. So all
times become longer (`slow_motion`), and the clients' operations are written out (`to_script`) if
that fails more reliably (`Evaluation`). The result is deterministic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from harness.search.deadline import Stop, never
from harness.search.shrink.passes import fewer_operations, possible
from harness.search.shrink.to_script import one_client_per_send, to_script
from harness.search.worlds.outcome import run_simulated
from harness.sim.latency_profile import BUSY_HOST, IDLE_HOST, OVERLOADED_HOST, LatencyProfile
from harness.sim.run import simulate
from nemesis.faults import Delay
from nemesis.formats.schedule import Fault, Operation, Schedule
from node.core.protocol import LeaderBy, protocol

FIRST_SEED: Final = 1000


def jittered(schedule: Schedule, delay_ms: int) -> Schedule:
    """Return the schedule with a random delay of each message of up to twice `delay_ms`."""
    jitter = Delay(on="all", to="all", delay_ms=delay_ms, jitter_ms=delay_ms, at_ms=0)
    # Last, so that the other faults keep their numbers, and their random draws.
    return replace(schedule, faults=(*schedule.faults, jitter))


class Conditions(NamedTuple):
    """The conditions of a simulated run: seed, latency profile, least delay of a message in ms."""

    seed: int
    latency: LatencyProfile
    delay_ms: int


CONDITIONS: Final = tuple(
    Conditions(FIRST_SEED + number, *kind)
    for number, kind in enumerate([(IDLE_HOST, 1), (BUSY_HOST, 8), (OVERLOADED_HOST, 4)] * 10)
)


class OutOfTimeError(Exception):
    """No further run is allowed, because the time of the command is used up."""


class Evaluation:
    """Runs variants of one schedule under `CONDITIONS`, and remembers which violate `broken`.
    Methods that run a variant raise OutOfTimeError once `stop` returns True."""

    def __init__(self, broken: str, *, stop: Stop = never) -> None:
        self._broken = broken
        self._stop = stop
        self._known: dict[tuple[str, int], bool] = {}

    def fails(self, schedule: Schedule, under: Conditions) -> bool:
        """Return whether a variant violates the property under these conditions."""
        key = (schedule.digest(), under.seed)
        if key not in self._known:
            if self._stop():
                raise OutOfTimeError
            self._known[key] = self._run(jittered(schedule, under.delay_ms), under)
        return self._known[key]

    def _run(self, schedule: Schedule, under: Conditions) -> bool:
        outcome = run_simulated(schedule, under.seed, latency=under.latency)
        if outcome.failed and self._broken not in outcome.broken:
            outcome = run_simulated(schedule, under.seed, latency=under.latency, stop_at="never")
        return self._broken in outcome.broken

    def failures(self, schedule: Schedule, *, least: int = 0) -> int:
        """Count the conditions under which a variant fails, only while there can be `least`."""
        failed = 0
        for left, under in zip(range(len(CONDITIONS) - 1, -1, -1), CONDITIONS, strict=True):
            failed += self.fails(schedule, under)
            if failed + left < least:
                break
        return failed


RUNS: Final = len(CONDITIONS)
"""The number of simulated runs of a variant, each under other conditions."""
Due = TypeVar("Due", Fault, Operation)

SLOWER: Final = (6, 10, 16)
"""Factors that make the timeouts of a search as long as those of a storm, or longer."""


class RealSchedule(NamedTuple):
    """A schedule for real processes, and how many of its `RUNS` simulated runs fail."""

    schedule: Schedule
    failures: int


def real_schedule(schedule: Schedule, broken: str, *, stop: Stop = never) -> RealSchedule | None:
    """Return the variant of a schedule that violates `broken` most often; None if there is none, or
    if `stop` returns True first."""
    evaluation = Evaluation(broken, stop=stop)
    variants = [schedule, *slowed_variants(schedule), *scripted_variants(schedule)]
    try:
        best = _best(variants, evaluation)
        if not evaluation.failures(best):
            return None
        best = _without_needless(best, evaluation)
        return RealSchedule(best, evaluation.failures(best))
    except OutOfTimeError:
        return None


def _best(variants: Sequence[Schedule], evaluation: Evaluation) -> Schedule:
    """Return the variant that fails most often; of equal ones that with the fewest fixed times."""
    best, most = variants[0], evaluation.failures(variants[0])
    for variant in variants[1:]:
        failed = evaluation.failures(variant, least=most)
        if (failed, -_fixed_times(variant)) > (most, -_fixed_times(best)):
            best, most = variant, failed
    return best


def _fixed_times(schedule: Schedule) -> int:
    """Return how many faults and operations begin at a fixed time."""
    return sum(bool(due.at_ms) for due in (*schedule.faults, *schedule.workload.operations))


def slowed_variants(schedule: Schedule) -> list[Schedule]:
    """Return the schedule in slow motion, once for each factor in `SLOWER`."""
    return [with_longer_faults(slow_motion(schedule, factor)) for factor in SLOWER]


def scripted_variants(schedule: Schedule) -> list[Schedule]:
    """Return slow variants with the run's operations written out, with and without reads."""
    run = simulate(schedule, seed=schedule.workload.seed, stop_at="visible")
    made = []
    for polls in (False, True):
        script = to_script(schedule, run, polls=polls, leaders=_votes(schedule))
        if script is not None:
            made += [script, one_client_per_send(script)]
    different = {script.digest(): script for script in made}.values()
    return [variant for script in different for variant in slowed_variants(script)]


def _votes(schedule: Schedule) -> bool:
    """Return whether replicas vote: then the next leader is not known in advance."""
    return protocol(schedule.cluster.protocol).leader_by is LeaderBy.VOTES


def _without_needless(schedule: Schedule, evaluation: Evaluation) -> Schedule:
    """Remove written-out operations that do not make the failure more reliable."""
    for _ in schedule.workload.operations:
        failed = evaluation.failures(schedule)
        for fewer in fewer_operations(schedule):
            can_run = fewer.workload.operations and possible(fewer)
            if can_run and evaluation.failures(fewer, least=failed) >= failed:
                schedule = fewer
                break
    return schedule


def slow_motion(schedule: Schedule, factor: int = SLOWER[0]) -> Schedule:
    """Return the schedule `factor` times as slow in all timeouts, times of faults and pauses: a
    search uses short timeouts, which work only if messages are never late by themselves."""
    cluster, workload = schedule.cluster, schedule.workload
    timings = type(cluster.timings)(
        **{name: ms * factor for name, ms in msgspec.structs.asdict(cluster.timings).items()}
    )
    return replace(
        schedule,
        cluster=replace(
            cluster, timings=timings, flush_interval_ms=cluster.flush_interval_ms * factor
        ),
        workload=replace(
            workload,
            rate=workload.rate / factor,
            timeout_ms=workload.timeout_ms * factor,
            duration_ms=workload.duration_ms * factor,
            operations=tuple(_slower(operation, factor) for operation in workload.operations),
        ),
        faults=tuple(_slower(fault, factor) for fault in schedule.faults),
    )


def _slower(fault: Due, factor: int) -> Due:
    """Return a fault or an operation with all its times `factor` times as long."""
    names = [n for n in ("at_ms", "for_ms", "delay_ms", "jitter_ms") if getattr(fault, n, None)]
    changes: dict[str, Any] = {name: getattr(fault, name) * factor for name in names}
    if fault.after is not None:
        changes["after"] = replace(fault.after, delay_ms=fault.after.delay_ms * factor)
    return replace(fault, **changes)


def with_longer_faults(schedule: Schedule) -> Schedule:
    """Return the schedule with faults of more than half a session timeout extended to at least two,
    and a longer storm. Shrinking leaves faults so short that a single heartbeat decides."""
    session_ms = schedule.cluster.timings.session_ms
    faults = [
        replace(fault, for_ms=max(fault.for_ms, 2 * session_ms))
        if fault.for_ms is not None and fault.for_ms * 2 > session_ms
        else fault
        for fault in schedule.faults
    ]
    duration_ms = schedule.workload.duration_ms + 3 * session_ms
    return replace(
        schedule, faults=tuple(faults), workload=replace(schedule.workload, duration_ms=duration_ms)
    )
