"""The form of a shrunk schedule that real processes can carry out, and fail under as it does.

Real processes take long to start, messages wait, and the harness sees an event a little after it
happened. So everything goes slower (`slow_motion`), and each fault is tried at other moments near
its own, also with the node that reaches such a moment standing still there until the fault has
struck. What counts is how often a form fails in the simulator's rough weather. Deterministic.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from harness.search.attempt import attempt
from harness.search.moments import Moment, before, following, moments
from harness.search.steady import FIRST_WORLD, jittered, with_fault
from harness.sim.run import SimResult, simulate
from harness.sim.weather import ROUGH
from nemesis.schedule import Break, Fault, Release, Schedule
from node import trace

SLOWER: Final = (6, 10, 16)
"""By such factors the timeouts of a search become those of a storm, or longer."""
STAND_MS: Final = 300
"""How long a node stands still for a fault to strike: the harness looks at traces every few
milliseconds, on a busy machine less often."""
LATENCY_MS: Final = 8
"""Messages are up to twice as late in rough weather."""
WORLDS: Final = 12
"""Rough worlds in which a form is tried."""
NEAR: Final = 5
"""Moments tried before the time of a fault, and as many after it."""


MOST_SWEEPS: Final = 3
FIRST_LOOK: Final = 3
"""Every form is tried in so many worlds; only the most promising are tried in all."""
PROMISING: Final = 4
MOST_RUNS: Final = 600
"""After so many runs no further form is tried."""


class RealForm(NamedTuple):
    """A schedule for real processes, and in how many of `WORLDS` rough worlds it fails."""

    schedule: Schedule
    surely: int


def real_form(schedule: Schedule, broken: str) -> RealForm | None:
    """The form that breaks the property `broken` most surely; None if none that is tried does."""
    trial = _Trial(broken)
    best = max(
        (patient(slow_motion(schedule, factor)) for factor in SLOWER), key=trial.surely
    )
    for _ in range(MOST_SWEEPS):
        known = best
        for index, fault in enumerate(best.faults):
            if trial.rank(best) == (WORLDS, 0) or trial.runs >= MOST_RUNS:
                break
            if not isinstance(fault, Break | Release):
                best = trial.best(best, list(_elsewhere(best, index, trial)))
        if best == known:
            break
    best = _without_needless(best, len(schedule.faults), trial)
    surely = trial.surely(best)
    return RealForm(best, surely) if surely else None


class _Trial:
    """Tries forms in rough worlds; what was tried is known."""

    def __init__(self, broken: str) -> None:
        self._broken = broken
        self._known: dict[tuple[str, int], bool] = {}

    @property
    def runs(self) -> int:
        """How many forms were run so far, each world apart."""
        return len(self._known)

    def fails(self, schedule: Schedule, world: int) -> bool:
        """Whether a form breaks the property in a rough world."""
        key = (schedule.digest(), world)
        if key not in self._known:
            self._known[key] = self._try(jittered(schedule, LATENCY_MS), world)
        return self._known[key]

    def _try(self, schedule: Schedule, world: int) -> bool:
        outcome = attempt(schedule, world, weather=ROUGH)
        if outcome.failed and self._broken not in outcome.broken:
            outcome = attempt(schedule, world, weather=ROUGH, stop_at="never")
        return self._broken in outcome.broken

    def surely(self, schedule: Schedule, worlds: int = WORLDS) -> int:
        """In how many worlds a form fails."""
        return sum(self.fails(schedule, FIRST_WORLD + n) for n in range(worlds))

    def rank(self, schedule: Schedule) -> tuple[int, int]:
        """What makes one form better than another: how surely it fails, then how few of its
        faults come at a time, which real clients and processes do not keep."""
        timed = sum(bool(fault.at_ms) for fault in schedule.faults)
        return self.surely(schedule), -timed

    def best(self, now: Schedule, others: list[Schedule]) -> Schedule:
        """The surest of several forms; the present one unless another is surer."""
        promise = {form.digest(): self.surely(form, FIRST_LOOK) for form in others}
        # Stable: of forms that promise as much, the one at the nearest moment comes first.
        others.sort(key=lambda form: -promise[form.digest()])
        best = now
        for form in others[:PROMISING]:
            if promise[form.digest()]:
                best = max(best, form, key=self.rank)
        return best

    def failing_run(self, schedule: Schedule) -> SimResult | None:
        """A run in which a form fails, None if it never does."""
        for world in range(FIRST_WORLD, FIRST_WORLD + WORLDS):
            if self.fails(schedule, world):
                trying = jittered(schedule, LATENCY_MS)
                return simulate(trying, seed=world, stop_at="visible", weather=ROUGH)
        return None


def _elsewhere(schedule: Schedule, index: int, trial: _Trial) -> Iterator[Schedule]:
    """Forms in which a fault comes at another moment near its own, or ends at one near its end."""
    run = trial.failing_run(schedule)
    if run is None:
        return
    fault = schedule.faults[index]
    told = list(moments(run.trace, run.info.phases.storm_us))
    times = {line["action"]: line["t_us"] for line in run.faults if line["fault"] == index}
    for moment in _near(told, times.get("inject")):
        moved = with_fault(schedule, index, replace(fault, at_ms=None, after=moment.after))
        yield moved
        stand = standing_at(moment)
        if stand is not None:
            yield replace(moved, faults=(*moved.faults, stand))
    if fault.for_ms is None:
        return
    name = fault.name or f"fault-{index}"
    for moment in _near(told, times.get("heal")):
        lasting = with_fault(schedule, index, replace(fault, name=name, for_ms=None))
        end = Release(of=name, after=moment.after)
        yield replace(lasting, faults=(*lasting.faults, end))


def _near(told: list[Moment], at_us: int | None) -> list[Moment]:
    """The moments next to a time, on both sides."""
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


def _without_needless(schedule: Schedule, own: int, trial: _Trial) -> Schedule:
    """Without the breakpoints of ours that do not make the failure surer."""
    for index in reversed(range(own, len(schedule.faults))):
        if isinstance(schedule.faults[index], Break):
            rest = (*schedule.faults[:index], *schedule.faults[index + 1 :])
            fewer = replace(schedule, faults=rest)
            if trial.surely(fewer) >= trial.surely(schedule):
                schedule = fewer
    return schedule


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
            workload, rate=workload.rate / factor, timeout_ms=workload.timeout_ms * factor,
            duration_ms=workload.duration_ms * factor,
        ),
        faults=tuple(_slower(fault, factor) for fault in schedule.faults),
    )  # fmt: skip


def _slower(fault: Fault, factor: int) -> Fault:
    """A fault with all its times `factor` times as long."""
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
        if fault.for_ms is not None and fault.for_ms * 2 > session_ms else fault
        for fault in schedule.faults
    ]  # fmt: skip
    duration_ms = schedule.workload.duration_ms + 3 * session_ms
    return replace(
        schedule, faults=tuple(faults),
        workload=replace(schedule.workload, duration_ms=duration_ms),
    )  # fmt: skip
