"""The form of a shrunk schedule that also fails on real processes.

Real processes start slowly, messages wait, and the harness sees an event a little later. So all
times become longer (`slow_motion`); the clients' operations are written out (`to_script`) if that
fails more reliably; and each fault and operation is tried at other events near its own, also with a
breakpoint that stops the node there until the fault has taken effect. Such variants are compared by
the number of simulated worlds in which they fail (`Evaluation`). The result is deterministic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from harness.search.deadline import Stop, never
from harness.search.shrink import evaluation as worlds
from harness.search.shrink.evaluation import Evaluation, OutOfTimeError, with_fault
from harness.search.shrink.passes import fewer_operations, possible
from harness.search.shrink.to_script import one_client_per_send, to_script
from harness.search.shrink.trigger_candidates import (
    TriggerCandidate,
    alternative_triggers,
    before,
    following,
    leader_candidates,
    trigger_candidates,
)
from harness.sim.run import SimResult, simulate
from nemesis.faults import Break, Link, Release
from nemesis.formats.schedule import Fault, Operation, Schedule
from node.core.protocol import LeaderBy, protocol
from node.formats import trace

WORLDS: Final = len(worlds.WORLDS)
"""The number of simulated worlds in which a variant is run."""
Due = TypeVar("Due", Fault, Operation)

SLOWER: Final = (6, 10, 16)
"""Factors that make the timeouts of a search as long as those of a storm, or longer."""
STOP_MS: Final = 300
"""The time for which a breakpoint stops a node: much longer than between two reads of traces."""
NEAR: Final = 5
"""The number of events that are tried before the time of a fault, and of events after it."""
WITH_ALTERNATIVES: Final = 2
"""The number of nearest events for which alternative triggers are tried too."""
MOST_SWEEPS: Final = 3
"""The largest number of times that each fault and operation is moved."""
MOST_RUNS: Final = 400
"""The limit of runs for each kind of variant, and at the end for the best one."""


class RealSchedule(NamedTuple):
    """A schedule for real processes, and in how many simulated worlds (of `WORLDS`) it fails."""

    schedule: Schedule
    failing_worlds: int


def real_schedule(
    schedule: Schedule, broken: str, *, runs: int = MOST_RUNS, stop: Stop = never
) -> RealSchedule | None:
    """Return the variant of a schedule that violates `broken` in the most worlds; None if there is
    none, or if `stop` returns True first. Fewer `runs` take less time for a less reliable one."""
    try:
        return _real_schedule(schedule, Evaluation(broken, stop=stop), runs)
    except OutOfTimeError:
        return None


def _real_schedule(schedule: Schedule, evaluation: Evaluation, runs: int) -> RealSchedule | None:
    best = schedule
    for variants in (slowed_variants(schedule), scripted_variants(schedule)):
        if variants and not evaluation.always_fails(best):
            evaluation.allow(runs)
            improved = _improved(evaluation.best(variants[0], variants[1:]), evaluation)
            best = max((best, improved), key=evaluation.rank)
    if not evaluation.failing_worlds(best):
        return None
    evaluation.use_all_worlds()
    evaluation.allow(runs)
    best = _without_needless(_improved(best, evaluation), len(schedule.faults), evaluation)
    return RealSchedule(best, evaluation.failing_worlds(best))


def _improved(best: Schedule, evaluation: Evaluation) -> Schedule:
    """Return the best of the variants that differ from `best` in a few moves."""
    for _ in range(MOST_SWEEPS):
        known = best
        for move in _moves(best):
            if evaluation.exhausted:
                return best
            if not evaluation.always_fails(best) or _timed(best, move):
                best = evaluation.best(best, list(_elsewhere(best, move, evaluation)))
        if best == known:
            break
    return best


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


def _moves(schedule: Schedule) -> list[tuple[str, int]]:
    """Return what can be moved: faults and operations, by number, or the drawn clients' pace."""
    faults = [n for n, fault in enumerate(schedule.faults) if not isinstance(fault, Break)]
    operations = range(len(schedule.workload.operations))
    moves = [*(("fault", n) for n in faults), *(("operation", n) for n in operations)]
    return moves if operations else [*moves, ("pace", 0)]


def _elsewhere(
    schedule: Schedule, move: tuple[str, int], evaluation: Evaluation
) -> Iterator[Schedule]:
    """Yield variants in which a fault or operation begins, or a fault ends, at another event."""
    run = evaluation.failing_run(schedule)
    what, index = move
    if run is None:
        return
    if what == "pace":
        yield from _at_another_pace(schedule)
        return
    candidates = list(trigger_candidates(run.trace, run.info.phases.storm_us))
    candidates = leader_candidates(candidates) if _votes(schedule) else candidates
    if what == "operation":
        yield from _operated_elsewhere(schedule, index, candidates, run)
        return
    if index >= len(schedule.faults):
        return
    fault = schedule.faults[index]
    times = {line.action: line.t_us for line in run.faults if line.fault == index}
    near = _near(candidates, times.get("inject"))
    for trigger in near:
        moved = with_fault(schedule, index, replace(fault, at_ms=None, after=trigger.after))
        yield moved
        stop = breakpoint_at(trigger)
        if stop is not None and not isinstance(fault, Release):
            yield replace(moved, faults=(*moved.faults, stop))
    for trigger in near[:WITH_ALTERNATIVES]:
        for after in alternative_triggers(candidates, trigger):
            yield with_fault(schedule, index, replace(fault, at_ms=None, after=after))
    if fault.for_ms is not None:
        yield from _ended_elsewhere(schedule, index, _near(candidates, times.get("heal")))


def _ended_elsewhere(
    schedule: Schedule, index: int, near: list[TriggerCandidate]
) -> Iterator[Schedule]:
    """Yield variants in which a fault ends at another event."""
    fault = schedule.faults[index]
    assert fault.for_ms is not None
    lasting = with_fault(schedule, index, replace(fault, for_ms=None))
    yield lasting
    if isinstance(fault, Link) and fault.limit is not None:
        # The limit ends it, so it may be in force from the beginning.
        yield with_fault(lasting, index, replace(fault, at_ms=0, after=None, for_ms=None))
    yield with_fault(schedule, index, replace(fault, for_ms=3 * fault.for_ms))
    name = fault.name or f"fault-{index}"
    for trigger in near:
        named = with_fault(lasting, index, replace(fault, name=name, for_ms=None))
        yield replace(named, faults=(*named.faults, Release(of=name, after=trigger.after)))


def _timed(schedule: Schedule, move: tuple[str, int]) -> bool:
    """Return whether the fault or operation begins at a fixed time."""
    what, index = move
    due = {"fault": schedule.faults, "operation": schedule.workload.operations}.get(what, ())
    return index < len(due) and bool(due[index].at_ms)


def _at_another_pace(schedule: Schedule) -> Iterator[Schedule]:
    """Yield variants with another rate, timeout, or seed of the clients."""
    workload = schedule.workload
    for rate in (workload.rate / 2, workload.rate * 2):
        yield replace(schedule, workload=replace(workload, rate=rate))
    for timeout_ms in (workload.timeout_ms // 2, workload.timeout_ms * 2):
        yield replace(schedule, workload=replace(workload, timeout_ms=timeout_ms))
    for seed in range(1, 4):
        yield replace(schedule, workload=replace(workload, seed=workload.seed + seed))


def _operated_elsewhere(
    schedule: Schedule, index: int, candidates: list[TriggerCandidate], run: SimResult
) -> Iterator[Schedule]:
    """Yield variants in which an operation begins at another event near its own."""
    operations = schedule.workload.operations
    if index >= len(operations):
        return
    began = (op.t_us for op in run.ops if op.step == index and op.type == "invoke")
    near = _near(candidates, next(began, None))
    afters = [trigger.after for trigger in near]
    afters += [
        after
        for trigger in near[:WITH_ALTERNATIVES]
        for after in alternative_triggers(candidates, trigger)
    ]
    for after in afters:
        moved = replace(operations[index], at_ms=None, after=after)
        changed = (*operations[:index], moved, *operations[index + 1 :])
        yield replace(schedule, workload=replace(schedule.workload, operations=changed))


def _near(candidates: list[TriggerCandidate], at_us: int | None) -> list[TriggerCandidate]:
    """Return the events next to a time: those before it, the nearest first, then those after it."""
    if at_us is None:
        return []
    return [*before(candidates, at_us, NEAR), *following(candidates, at_us, NEAR)]


def breakpoint_at(trigger: TriggerCandidate) -> Break | None:
    """Return a breakpoint that stops the node at a trigger, None if no broker can stop there."""
    after = trigger.after
    if "node" not in after.match or trigger.node[0] != "n" or after.event == trace.STARTED:
        return None
    match = {name: value for name, value in after.match.items() if name != "node"}
    return Break(
        on=trigger.node, event=after.event, match=match, nth=after.nth, at_ms=0, for_ms=STOP_MS
    )


def _without_needless(schedule: Schedule, own: int, evaluation: Evaluation) -> Schedule:
    """Remove added breakpoints and operations that do not make the failure more reliable."""
    for index in reversed(range(own, len(schedule.faults))):
        if isinstance(schedule.faults[index], Break):
            rest = (*schedule.faults[:index], *schedule.faults[index + 1 :])
            fewer = replace(schedule, faults=rest)
            schedule = fewer if _is_as_reliable(fewer, schedule, evaluation) else schedule
    if schedule.workload.clients:
        return schedule
    for _ in schedule.workload.operations:
        for fewer in fewer_operations(schedule):
            can_run = fewer.workload.operations and possible(fewer)
            if can_run and _is_as_reliable(fewer, schedule, evaluation):
                schedule = fewer
                break
    return schedule


def _is_as_reliable(fewer: Schedule, schedule: Schedule, evaluation: Evaluation) -> bool:
    """Return whether the smaller schedule fails in as many worlds."""
    worlds = evaluation.failing_worlds(schedule)
    return evaluation.failing_worlds(fewer, above=worlds - 1) >= worlds


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
