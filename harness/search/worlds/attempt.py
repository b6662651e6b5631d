"""One run of a schedule, and its result as a search needs it. Runs in the simulated world are made
here, runs of real processes in `harness.search.worlds.real`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from checker.formats.anomalies import AGREEMENT, EXERCISE
from checker.formats.story import Story, StoryStep
from checker.formats.verdict import Anomaly, Verdict
from checker.story import evidence, story
from harness.search.draw.fault_coverage import fault_coverage
from harness.search.worlds import cause
from harness.sim.invariant_checker import Violation
from harness.sim.latency_profile import IDEAL, LatencyProfile
from harness.sim.network import AffectedMessage
from harness.sim.run import SimResult, StopAt, simulate
from nemesis.formats.schedule import Schedule
from node.formats.errors import FloodmarkError
from node.formats.event_text import parse

UNKNOWN_CAUSE: Final = "?"
"""The cause in a bucket's name if none is known."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The result of one run of a schedule.

    `failed`: clients, traces or logs show a violation. `internal_violation` names the first
    violated invariant that is not visible to them, "" if there is none; data could have been lost
    then. `broken` maps each violated property to the class of its first anomaly, if that is known.
    `bucket` is the class of the failure: its property and its cause, without node, offset or time,
    so that the same bug always has the same one. `fault_coverage` has the `kind/role/phase` of each
    fault. `problem` says why the run could not be made or judged, "" otherwise.

    For real processes only: `lost_disks` are the nodes that lost unsynced writes, `on_links` says
    that a fault on links took effect. `folder` is the run folder if the run failed or could not be
    judged, else "". `shared`: the cluster had had other storms before."""

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


def attempt(
    schedule: Schedule,
    seed: int | None = None,
    *,
    stop_at: StopAt = "visible",
    exempt: Callable[[AffectedMessage], bool] | None = None,
    latency: LatencyProfile = IDEAL,
    about: str = "",
) -> Attempt:
    """Run a schedule in the simulated world until clients, traces or logs show a violation, or to
    its end. If several properties break, `bucket`, `property` and `sentence` are about `about` if
    it is among them, else about the first. The result follows from the schedule and `seed`, by
    default that of its workload. `exempt` and `latency` are as in `simulate`."""
    world = schedule.workload.seed if seed is None else seed
    try:
        result = simulate(schedule, seed=world, stop_at=stop_at, exempt=exempt, latency=latency)
    except FloodmarkError as error:
        return Attempt(problem=str(error))
    return outcome_of(result, about)


def attempted(schedule: Schedule) -> tuple[Attempt, SimResult | None]:
    """Run a schedule as `attempt` does. Return result and run (None if it cannot be made)."""
    try:
        result = simulate(schedule, seed=schedule.workload.seed, stop_at="visible")
    except FloodmarkError as error:
        return Attempt(problem=str(error)), None
    return outcome_of(result), result


def outcome_of(result: SimResult, about: str = "") -> Attempt:
    """Return the result of a simulated run as a search needs it; `about` as in `attempt`."""
    visible = any(violation.visible for violation in result.violations)
    failed = visible or result.checked.verdict is Verdict.INVALID
    # A run with few operations, or with faults without a target, is not unknown here.
    unknown = any(
        p.verdict is Verdict.UNKNOWN and p.property != EXERCISE for p in result.checked.properties
    )
    broken = visibly_broken(result)
    about = about if about in broken else ""
    return Attempt(
        failed=failed,
        internal_violation=next((b.invariant for b in result.violations if not b.visible), ""),
        bucket=bucket(result, about) if failed else "",
        property=(about or property_of(result)) if failed else "",
        broken=dict.fromkeys(broken, ""),
        sentence=_sentence(result, about),
        fault_coverage=tuple(fault_coverage(result.trace, result.faults).elements()),
        virtual_us=result.virtual_us,
        events=result.events,
        # A run that ended at a violation leaves reads open, so its checks may be unknown.
        problem=result.sentence if unknown and not failed else "",
    )


def visibly_broken(result: SimResult) -> tuple[str, ...]:
    """Return the properties that the checker or an invariant visible from outside finds broken."""
    checked = [p.property for p in result.checked.properties if p.verdict is Verdict.INVALID]
    seen = [b.property for b in result.violations if b.visible]
    return tuple(dict.fromkeys([*checked, *seen]))


def property_of(result: SimResult) -> str:
    """Return the property that broke first: of a visible violation, else of the checker's."""
    violation = _violation(result)
    return violation.property if violation is not None else next(iter(result.broken), "")


def _violation(result: SimResult, about: str = "") -> Violation | None:
    """Return the first visible violation, with `about` of that property; None if none is."""
    seen = (b for b in result.violations if b.visible and about in ("", b.property))
    return next(seen, None)


def _anomaly(result: SimResult, about: str = "") -> Anomaly | None:
    """Return the first anomaly that makes a property (with `about`: that one) invalid."""
    return next(
        (
            found
            for found in result.checked.anomalies
            if found.verdict is Verdict.INVALID and about in ("", found.property)
        ),
        None,
    )


def _sentence(result: SimResult, about: str) -> str:
    """Return a sentence on the first failure; with `about`, on the first one of that property."""
    if about and (violation := _violation(result, about)) is not None:
        return f"invalid: {violation.sentence}."
    if about and (found := _anomaly(result, about)) is not None and found.message:
        return f"invalid: {found.message}"
    return result.sentence


def bucket(result: SimResult, about: str = "") -> str:
    """Return the class of a failure, `property: cause`. The property is `about`, by default the
    first broken one. The cause is the first wrong step in the history of the lost or wrong record.
    If there is no such step, it is the name of the invariant or anomaly, and for logs that differ
    also the rule of the last truncation (`harness.search.worlds.cause`)."""
    broken = about or property_of(result)
    partition, offset, name = place(result, about)
    how = ""
    if partition and offset >= 0:
        how = cause.of_record(history_of_record(result, about), result.trace, partition)
    if not how and broken == AGREEMENT and partition:
        violation = _violation(result, about)
        node = (
            "" if violation is None else next((w.node for w in violation.witnesses if w.node), "")
        )
        until_us = None if violation is None else violation.t_us
        how = f"{name} {cause.of_divergence(result.trace, partition, node, until_us)}"
    return f"{broken}: {how or name or UNKNOWN_CAUSE}"


def history_of_record(result: SimResult, about: str = "") -> list[StoryStep]:
    """Return the history of the lost or wrong record, empty if the failure is about none."""
    partition, offset = concerned(result, about)
    if offset < 0:
        return []
    here = [a for a in result.checked.anomalies if (a.partition, a.offset) == (partition, offset)]
    read_us = next((t_us for a in here if (t_us := story.read_of(a)) is not None), None)
    events = [parse(e) for e in result.trace if e.get("partition", partition) == partition]
    life = story.life_of(events, offset, read_us, result.info.promise.acks)
    return [] if life is None else [story.step_of(moment) for moment in life.moments]


def story_of(result: SimResult, about: str = "") -> Story:
    """Return the story of the first violation, or of the violation of the property `about`."""
    violation = _violation(result, about)
    # The checker names the record; of invariants the offset is often that of a log end.
    found = story.subject(result.checked) if not about else _anomaly(result, about)
    if found is None:
        partition, offset = concerned(result, about)
        found = Anomaly(
            property=about or property_of(result),
            name=violation.invariant if violation is not None else "",
            partition=partition,
            offset=offset,
            t_us=violation.t_us if violation is not None else -1,
            witnesses=violation.witnesses if violation is not None else (),
        )
    known = evidence.of(
        found.partition,
        result.info,
        events=result.trace,
        faults=result.faults,
        exits=result.exits,
        ops=result.ops,
        logs=result.logs,
    )
    return story.build(known, found)


def concerned(result: SimResult, about: str = "") -> tuple[str, int]:
    """Return partition and offset of the first lost or wrong record, or difference between two
    logs; offset -1 if the failure is about no record. With `about`, only that property counts."""
    partition, offset, _ = place(result, about)
    if partition and offset < 0:
        offset = _first_difference(result, partition)
    return partition, offset if partition else -1


def _first_difference(result: SimResult, partition: str) -> int:
    """Return the first offset at which two replicas have different batches; -1 if none."""
    seen: dict[int, str] = {}
    apart: list[int] = []
    for lines in result.logs.values():
        for line in lines:
            if line.partition != partition or not line.count:
                continue
            if seen.setdefault(line.offset, line.hash) != line.hash:
                apart.append(line.offset)
    return min(apart, default=-1)


def place(result: SimResult, about: str = "") -> tuple[str, int, str]:
    """Return partition, offset and name of the first violation, or of that of the property `about`;
    offset -1 if it has none."""
    violation = _violation(result, about)
    if violation is not None:
        offsets = [w.offset for w in violation.witnesses if w.offset >= 0]
        return violation.partition, min(offsets, default=-1), violation.invariant
    found = _anomaly(result, about)
    return ("", -1, "") if found is None else (found.partition, found.offset, found.name)
