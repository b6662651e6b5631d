"""The form of a shrunk schedule that real processes can carry out, and fail under as it does.

Real processes take long to start, messages wait, and the harness sees an event a little after it
happened. So everything goes slower (`slow_motion`); what the clients did is told operation by
operation (`harness.search.to_script`) where that is surer; and each fault and operation is tried at
other moments near its own, also with the node that reaches such a moment standing still there until
the fault has struck. What counts is how often a form fails in worlds ever less ideal
(`harness.search.evaluation`). Deterministic.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from harness.search import evaluation as trials
from harness.search.evaluation import Trial
from harness.search.shrink_passes import fewer_operations, possible
from harness.search.stabilise import with_fault
from harness.search.to_script import own_clients, scripted
from harness.search.trigger_candidates import (
    Moment,
    before,
    following,
    moments,
    of_leaders,
    otherwise_told,
)
from harness.sim.run import SimResult, simulate
from nemesis.faults import Break, Link, Release
from nemesis.formats.schedule import Fault, Operation, Schedule
from node.core.protocol import LeaderBy, protocol
from node.formats import trace

WORLDS: Final = len(trials.WORLDS)
"""In so many simulated worlds a form is tried."""
Due = TypeVar("Due", Fault, Operation)

SLOWER: Final = (6, 10, 16)
"""By such factors the timeouts of a search become those of a storm, or longer."""
STAND_MS: Final = 300
"""How long a node stands still for a fault to strike: the harness looks at traces every few
milliseconds, on a busy machine less often."""
NEAR: Final = 5
"""Moments tried before the time of a fault, and as many after it."""
TOLD_AGAIN: Final = 2
"""So many of the nearest moments are told in other ways too."""
MOST_SWEEPS: Final = 3
"""Each fault and operation is moved so often at most."""
MOST_RUNS: Final = 400
"""After so many runs no further form of one kind is tried; nor, at the end, of the best."""


class RealForm(NamedTuple):
    """A schedule for real processes, and in how many of `WORLDS` simulated worlds it fails."""

    schedule: Schedule
    surely: int


def real_form(schedule: Schedule, broken: str, *, runs: int = MOST_RUNS) -> RealForm | None:
    """The form that breaks the property `broken` most surely; None if none that is tried does.

    With fewer `runs` it is found sooner and fails less surely.
    """
    trial = Trial(broken)
    best = schedule
    for kind in (drawn_forms(schedule), scripted_forms(schedule)):
        if kind and not trial.sure(best):
            trial.allow(runs)
            of_kind = _improved(trial.best(kind[0], kind[1:]), trial)
            best = max((best, of_kind), key=trial.rank)
    if not trial.surely(best):
        return None
    trial.go_on_in_all_worlds()
    trial.allow(runs)
    best = _without_needless(_improved(best, trial), len(schedule.faults), trial)
    return RealForm(best, trial.surely(best))


def _improved(best: Schedule, trial: Trial) -> Schedule:
    """The surest of the forms that differ from one in a few moves."""
    for _ in range(MOST_SWEEPS):
        known = best
        for move in _moves(best):
            if trial.exhausted:
                return best
            if not trial.sure(best) or _timed(best, move):
                best = trial.best(best, list(_elsewhere(best, move, trial)))
        if best == known:
            break
    return best


def drawn_forms(schedule: Schedule) -> list[Schedule]:
    """The schedule in slow motion."""
    return [patient(slow_motion(schedule, factor)) for factor in SLOWER]


def scripted_forms(schedule: Schedule) -> list[Schedule]:
    """The script of its run in slow motion, with and without reads."""
    run = simulate(schedule, seed=schedule.workload.seed, stop_at="visible")
    made = []
    for polls in (False, True):
        script = scripted(schedule, run, polls=polls, leaders=_votes(schedule))
        if script is not None:
            made += [script, own_clients(script)]
    different = {script.digest(): script for script in made}.values()
    return [form for script in different for form in drawn_forms(script)]


def _votes(schedule: Schedule) -> bool:
    """Whether replicas vote for who leads: then nobody knows beforehand."""
    return protocol(schedule.cluster.protocol).leader_by is LeaderBy.VOTES


def _moves(schedule: Schedule) -> list[tuple[str, int]]:
    """What can be moved: faults and their ends, and operations, by number, or else the pace of
    the clients that were drawn."""
    faults = [n for n, fault in enumerate(schedule.faults) if not isinstance(fault, Break)]
    operations = range(len(schedule.workload.operations))
    moves = [*(("fault", n) for n in faults), *(("operation", n) for n in operations)]
    return moves if operations else [*moves, ("pace", 0)]


def _elsewhere(schedule: Schedule, move: tuple[str, int], trial: Trial) -> Iterator[Schedule]:
    """Forms in which a fault or operation comes at another moment near its own, or a fault ends at
    one near its end, or later, or never."""
    run = trial.failing_run(schedule)
    what, index = move
    if run is None:
        return
    if what == "pace":
        yield from _at_another_pace(schedule)
        return
    told = list(moments(run.trace, run.info.phases.storm_us))
    told = of_leaders(told) if _votes(schedule) else told
    if what == "operation":
        yield from _operated_elsewhere(schedule, index, told, run)
        return
    if index >= len(schedule.faults):
        return
    fault = schedule.faults[index]
    times = {line.action: line.t_us for line in run.faults if line.fault == index}
    near = _near(told, times.get("inject"))
    for moment in near:
        moved = with_fault(schedule, index, replace(fault, at_ms=None, after=moment.after))
        yield moved
        stand = standing_at(moment)
        if stand is not None and not isinstance(fault, Release):
            yield replace(moved, faults=(*moved.faults, stand))
    for moment in near[:TOLD_AGAIN]:
        for after in otherwise_told(told, moment):
            yield with_fault(schedule, index, replace(fault, at_ms=None, after=after))
    if fault.for_ms is not None:
        yield from _ended_elsewhere(schedule, index, _near(told, times.get("heal")))


def _ended_elsewhere(schedule: Schedule, index: int, near: list[Moment]) -> Iterator[Schedule]:
    """Forms in which a fault ends otherwise."""
    fault = schedule.faults[index]
    assert fault.for_ms is not None
    lasting = with_fault(schedule, index, replace(fault, for_ms=None))
    yield lasting
    if isinstance(fault, Link) and fault.limit is not None:
        # Its limit ends it: it may wait for its messages from the beginning.
        yield with_fault(lasting, index, replace(fault, at_ms=0, after=None, for_ms=None))
    yield with_fault(schedule, index, replace(fault, for_ms=3 * fault.for_ms))
    name = fault.name or f"fault-{index}"
    for moment in near:
        named = with_fault(lasting, index, replace(fault, name=name, for_ms=None))
        yield replace(named, faults=(*named.faults, Release(of=name, after=moment.after)))


def _timed(schedule: Schedule, move: tuple[str, int]) -> bool:
    """Whether it is a fault or an operation, and comes at a time."""
    what, index = move
    due = {"fault": schedule.faults, "operation": schedule.workload.operations}.get(what, ())
    return index < len(due) and bool(due[index].at_ms)


def _at_another_pace(schedule: Schedule) -> Iterator[Schedule]:
    """Forms in which the clients write more or less often, or give up sooner or later."""
    workload = schedule.workload
    for rate in (workload.rate / 2, workload.rate * 2):
        yield replace(schedule, workload=replace(workload, rate=rate))
    for timeout_ms in (workload.timeout_ms // 2, workload.timeout_ms * 2):
        yield replace(schedule, workload=replace(workload, timeout_ms=timeout_ms))
    for seed in range(1, 4):
        yield replace(schedule, workload=replace(workload, seed=workload.seed + seed))


def _operated_elsewhere(
    schedule: Schedule, index: int, told: list[Moment], run: SimResult
) -> Iterator[Schedule]:
    """Forms in which an operation begins at another moment near its own."""
    operations = schedule.workload.operations
    if index >= len(operations):
        return
    began = (op.t_us for op in run.ops if op.step == index and op.type == "invoke")
    near = _near(told, next(began, None))
    afters = [moment.after for moment in near]
    afters += [after for moment in near[:TOLD_AGAIN] for after in otherwise_told(told, moment)]
    for after in afters:
        moved = replace(operations[index], at_ms=None, after=after)
        changed = (*operations[:index], moved, *operations[index + 1 :])
        yield replace(schedule, workload=replace(schedule.workload, operations=changed))


def _near(told: list[Moment], at_us: int | None) -> list[Moment]:
    """The moments next to a time, on both sides, the nearest of those before it first."""
    if at_us is None:
        return []
    return [*before(told, at_us, NEAR), *following(told, at_us, NEAR)]


def standing_at(moment: Moment) -> Break | None:
    """A breakpoint there: the node that does it sends nothing until others had their time."""
    after = moment.after
    if "node" not in after.match or moment.node[0] != "n" or after.event == trace.STARTED:
        return None
    match = {name: value for name, value in after.match.items() if name != "node"}
    return Break(
        on=moment.node, event=after.event, match=match, nth=after.nth, at_ms=0, for_ms=STAND_MS
    )


def _without_needless(schedule: Schedule, own: int, trial: Trial) -> Schedule:
    """Without the breakpoints of ours, and the operations, that do not make the failure surer."""
    for index in reversed(range(own, len(schedule.faults))):
        if isinstance(schedule.faults[index], Break):
            rest = (*schedule.faults[:index], *schedule.faults[index + 1 :])
            schedule = _surer(schedule, replace(schedule, faults=rest), trial)
    if schedule.workload.clients:
        return schedule
    for _ in schedule.workload.operations:
        fewer = list(fewer_operations(schedule))
        schedule = next(
            (f for f in fewer if _goes(f) and _surer(schedule, f, trial) is f), schedule
        )
    return schedule


def _surer(schedule: Schedule, fewer: Schedule, trial: Trial) -> Schedule:
    """The smaller one if it fails as surely."""
    surely = trial.surely(schedule)
    return fewer if trial.surely(fewer, above=surely - 1) >= surely else schedule


def _goes(schedule: Schedule) -> bool:
    """Whether it may be run: a script without operations is none."""
    return bool(schedule.workload.operations) and possible(schedule)


def slow_motion(schedule: Schedule, factor: int = SLOWER[0]) -> Schedule:
    """The same schedule `factor` times as slow: every timeout, time and pause between batches.

    A search lets timeouts be short, where no message is ever late by itself. Real processes need
    longer ones.
    """
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
    """A fault or an operation with all its times `factor` times as long."""
    names = [n for n in ("at_ms", "for_ms", "delay_ms", "jitter_ms") if getattr(fault, n, None)]
    changes: dict[str, Any] = {name: getattr(fault, name) * factor for name in names}
    if fault.after is not None:
        changes["after"] = replace(fault.after, delay_ms=fault.after.delay_ms * factor)
    return replace(fault, **changes)


def patient(schedule: Schedule) -> Schedule:
    """Whatever lasts about as long as a session lasts for two: shrinking leaves it at the edge,
    where a heartbeat more or less decides. The storm lasts as much longer."""
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
