"""The outcome of one run of a schedule as a search needs it. Runs in the simulated world are made
here, runs of real processes in `harness.search.worlds.real`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from checker.formats.anomalies import EXERCISE
from checker.formats.verdict import Verdict
from harness.search.draw.fault_coverage import fault_coverage
from harness.search.worlds.failure import failure_of, visibly_broken
from harness.sim.latency_profile import IDEAL, LatencyProfile
from harness.sim.network import AffectedMessage
from harness.sim.run import SimResult, StopAt, simulate
from nemesis.formats.schedule import Schedule
from node.formats.errors import FloodmarkError


@dataclass(frozen=True, slots=True)
class ScheduleOutcome:
    """The outcome of one run of a schedule.

    `failed`: clients, traces or logs show a violation. `internal_violation` names the first
    violated invariant that is not visible to them, "" if there is none; data could have been lost
    then. `broken` maps each violated property to the class of its first anomaly, if that is known.
    `bucket` is the class of the failure: its property and its cause, without node, offset or time,
    so that the same bug always has the same one. `fault_coverage` has the `kind/role/phase` of each
    fault. `problem` says why the run could not be made or judged, "" otherwise.

    For real processes only: `lost_disks` are the nodes that lost unsynced writes, `on_links` says
    that a fault on links took effect. `folder` is the run folder if the run failed or could not be
    judged, else "". `shared`: the cluster had had other storms before. `result` is the simulated
    run, None for real processes and for a run that could not be made."""

    failed: bool = False
    internal_violation: str = ""
    bucket: str = ""
    property: str = ""
    broken: dict[str, str] = field(default_factory=dict)
    sentence: str = ""
    fault_coverage: tuple[str, ...] = ()
    virtual_us: int = 0
    events: int = 0
    problem: str = ""
    verdict: str = ""
    seconds: float = 0.0
    lost_disks: tuple[str, ...] = ()
    on_links: bool = False
    folder: str = ""
    shared: bool = False
    result: SimResult | None = field(default=None, compare=False, repr=False)


def run_simulated(
    schedule: Schedule,
    seed: int | None = None,
    *,
    stop_at: StopAt = "visible",
    exempt: Callable[[AffectedMessage], bool] | None = None,
    latency: LatencyProfile = IDEAL,
    about: str = "",
) -> ScheduleOutcome:
    """Run a schedule in the simulated world until clients, traces or logs show a violation, or to
    its end. If several properties break, `bucket`, `property` and `sentence` are about `about` if
    it is among them, else about the first. The outcome follows from the schedule and `seed`, by
    default that of its workload. `exempt` and `latency` are as in `simulate`."""
    world = schedule.workload.seed if seed is None else seed
    try:
        result = simulate(schedule, seed=world, stop_at=stop_at, exempt=exempt, latency=latency)
    except FloodmarkError as error:
        return ScheduleOutcome(problem=str(error))
    return outcome_of(result, about)


def outcome_of(result: SimResult, about: str = "") -> ScheduleOutcome:
    """Return the outcome of a simulated run; `about` as in `run_simulated`."""
    broken = visibly_broken(result)
    failure = failure_of(result, about if about in broken else "")
    # A run with few operations, or with faults without a target, is not unknown here.
    unknown = any(
        p.verdict is Verdict.UNKNOWN and p.property != EXERCISE for p in result.checked.properties
    )
    return ScheduleOutcome(
        failed=failure is not None,
        internal_violation=next((b.invariant for b in result.violations if not b.visible), ""),
        bucket="" if failure is None else failure.bucket,
        property="" if failure is None else failure.property,
        broken=dict.fromkeys(broken, ""),
        sentence=result.sentence if failure is None else failure.sentence,
        fault_coverage=tuple(fault_coverage(result.trace, result.faults).elements()),
        virtual_us=result.virtual_us,
        events=result.events,
        # A run that ended at a violation leaves reads open, so its checks may be unknown.
        problem=result.sentence if unknown and failure is None else "",
        result=result,
    )
