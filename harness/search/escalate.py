"""What follows when data could be lost and was not: the run again, with the worst that can happen.

The watcher sees invariants inside the cluster break before anybody is harmed: somebody may be
elected who lacks what is committed, or the leader does not wait for one whom the controller may
elect. Whether harm comes of it is then a matter of the next fault, and to draw just that one at
just that moment is a rare stroke of luck. So such a run is repeated with it: whoever lacks
nothing dies, or the one left out gets nothing more until something is committed without it.

A replica that holds another record than was committed is the same case: the logs show it, yet no
client was harmed as long as it does not lead. Whoever asks for more than that pursues it too.

This knows invariants, and no bug: a protocol that keeps them is never pursued.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol, TypeVar

from msgspec.structs import replace

from harness.search.shrink_passes import possible
from harness.sim.invariant_checker import Violation
from harness.sim.run import SimResult, simulate
from nemesis.faults import Bridge, Cut, Isolate, Kill, Link, Release
from nemesis.formats.schedule import After, Fault, Schedule
from node.formats import trace
from node.formats.errors import FloodmarkError

MAX_DEPTH: Final = 2
"""First what lets somebody lack something, then what lets that one lead."""
_LEFT_OUT: Final = "quorum-superset"
_DIFFERS: Final = "log-matching"
_MOMENTS: Final = {
    trace.HW: ("node", "partition", "role"),
    trace.APPEND: ("node", "partition", "role"),
    trace.TRUNCATED: ("node", "partition"),
    trace.PARTITION: ("partition",),
    trace.ISR: ("node", "partition"),
    trace.PROPOSED: ("node", "partition"),
    trace.ROLE: ("node", "partition", "role"),
}


class EscalationOutcome(Protocol):
    """What a judge says of a run."""

    @property
    def failed(self) -> bool:
        """Whether a property broke."""
        ...

    @property
    def precursor(self) -> str:
        """The first invariant inside the cluster that broke, "" if none."""
        ...


Out = TypeVar("Out", bound=EscalationOutcome)


def judged(
    schedule: Schedule,
    judge: Callable[[Schedule], Out],
    further: Callable[[Out], bool] = lambda outcome: False,
) -> Iterator[tuple[Schedule, Out]]:
    """Judge a schedule, and what may follow from an inner invariant that it breaks; from any
    outcome too that is to be taken `further`."""
    waiting = deque([(schedule, 0)])
    while waiting:
        candidate, depth = waiting.popleft()
        outcome = judge(candidate)
        yield candidate, outcome
        if (outcome.precursor or further(outcome)) and depth < MAX_DEPTH:
            waiting += [(follow, depth + 1) for follow in pursued(candidate)]


def pursued(schedule: Schedule) -> Iterator[Schedule]:
    """Schedules that go on from where an invariant broke and no client was harmed, most likely
    first."""
    try:
        result = simulate(schedule, seed=schedule.workload.seed, stop_at="visible")
    except FloodmarkError:
        return
    hidden = [b for b in result.violations if not b.visible or b.invariant == _DIFFERS]
    # Who may be elected and lacks something is nearer to harm than who is not waited for.
    for violation in sorted(hidden, key=lambda b: (b.invariant == _LEFT_OUT, b.step))[:2]:
        plans = _leave_out if violation.invariant == _LEFT_OUT else _leave_alone
        for candidate in plans(schedule, result, violation):
            if possible(candidate):
                yield candidate


def _leave_alone(schedule: Schedule, result: SimResult, violation: Violation) -> Iterator[Schedule]:
    """Only who lacks something lives on, and is within reach."""
    alone = next((w.node for w in violation.witnesses if w.node), "")
    moment = _moment(result, violation.t_us, violation.partition)
    others = ",".join(n for n in schedule.cluster.broker_names() if n != alone)
    if not alone or moment is None or not others:
        return
    over_ms = (
        _since_storm_ms(result, violation.t_us) + 4 * schedule.cluster.timings.session_ms + 200
    )
    named, releases = _released(schedule, result, moment, violation.t_us)
    # At once, before anything is mended; or when what was promised then has been said.
    for delay_ms in (0, 1):
        death = Kill(on=others, after=replace(moment, delay_ms=delay_ms))
        if releases:
            yield _longer(named, (death, *releases), over_ms)
        yield _longer(schedule, (death,), over_ms)


def _leave_out(schedule: Schedule, result: SimResult, violation: Violation) -> Iterator[Schedule]:
    """Who is not waited for gets nothing more, and the leader hears of nothing."""
    leader = next((w.node for w in violation.witnesses if w.node), "")
    left_out = ",".join(_not_waited_for(result, violation, leader))
    moment = _moment(result, violation.t_us, violation.partition)
    if not leader or not left_out or moment is None:
        return
    timings = schedule.cluster.timings
    over_ms = _since_storm_ms(result, violation.t_us) + 6 * timings.session_ms + 200
    asked = _last(result, violation, trace.PROPOSED, node=leader)
    span_ms = 3 * timings.session_ms
    for when in filter(None, (asked, moment)):
        no_records = Link(
            on="rest",
            to=left_out,
            action="drop",
            kinds=("fetch-response",),
            after=when,
            for_ms=span_ms,
            match={"partition": violation.partition},
        )
        no_news = Cut(on="voters", to=leader, two_way=False, after=when, for_ms=span_ms)
        yield _longer(schedule, (no_records, no_news), over_ms)
        yield _longer(schedule, (no_records,), over_ms)


def _not_waited_for(result: SimResult, violation: Violation, leader: str) -> list[str]:
    """Whom the controller might elect and the leader does not wait for."""
    elected: list[str] = []
    waited: list[str] = []
    for event in result.trace:
        if event["t_us"] > violation.t_us or event.get("partition") != violation.partition:
            continue
        if event["event"] == trace.PARTITION:
            elected = [*event["isr"], *event["elr"]]
        elif event["event"] == trace.ISR and event["node"] == leader:
            waited = list(event["maximal_isr"])
    return [name for name in elected if name not in waited and name != leader]


def _released(
    schedule: Schedule, result: SimResult, moment: After, t_us: int
) -> tuple[Schedule, tuple[Fault, ...]]:
    """The schedule with a name for each cut in force then, and what ends them a moment later."""
    in_force: set[int] = set()
    for line in result.faults:
        if line.t_us <= t_us and line.action == "inject":
            in_force.add(line.fault)
        elif line.t_us <= t_us and line.action == "heal":
            in_force.discard(line.fault)
    faults = [
        replace(fault, name=fault.name or f"cut-{number}")
        if number in in_force and isinstance(fault, Cut | Isolate | Bridge)
        else fault
        for number, fault in enumerate(schedule.faults)
    ]
    soon = replace(moment, delay_ms=moment.delay_ms + 1)
    releases = tuple(
        Release(of=fault.name, after=soon)
        for number, fault in enumerate(faults)
        if number in in_force and isinstance(fault, Cut | Isolate | Bridge)
    )
    return replace(schedule, faults=tuple(faults)), releases


def _longer(schedule: Schedule, more: tuple[Fault, ...], over_ms: int) -> Schedule:
    workload = schedule.workload
    return replace(
        schedule,
        faults=(*schedule.faults, *more),
        workload=replace(workload, duration_ms=max(workload.duration_ms, over_ms)),
    )


def _since_storm_ms(result: SimResult, t_us: int) -> int:
    return max(0, t_us - result.info.phases.storm_us) // 1000


def _moment(result: SimResult, t_us: int, partition: str) -> After | None:
    """The event at which it happened, as a trigger."""
    for event in reversed(result.trace):
        if (
            event["t_us"] == t_us
            and event["event"] in _MOMENTS
            and event.get("partition") == partition
        ):
            return _trigger(result, event)
    return None


def _last(result: SimResult, violation: Violation, name: str, node: str) -> After | None:
    """The last such event of a node before it, as a trigger."""
    for event in reversed(result.trace):
        if (
            event["t_us"] <= violation.t_us
            and event["event"] == name
            and event["node"] == node
            and event.get("partition") == violation.partition
        ):
            return _trigger(result, event)
    return None


def _trigger(result: SimResult, event: dict[str, Any]) -> After | None:
    """That very event, by its name, its fields, and how many like it came before in the storm."""
    began_us = result.info.phases.storm_us
    match = {name: event[name] for name in _MOMENTS[event["event"]]}
    nth = 0
    for other in result.trace:
        if other["t_us"] >= began_us and other["event"] == event["event"]:
            nth += trace.matches(other, match)
        if other is event:
            break
    return After(event=event["event"], match=match, nth=nth) if nth else None
