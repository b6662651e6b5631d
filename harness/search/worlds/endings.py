"""Further faults for a run in which data could have been lost, so that it is lost.

The invariant checker reports violations inside the cluster that no client sees yet: a replica that
lacks committed records may be elected; the leader commits without a replica that the controller may
elect, or acknowledges an uncommitted record; fewer than a majority of voters have the committed
records; or a replica's state of a producer differs from its log. Only a certain next fault at the
right time makes such a violation visible, and a random draw seldom has it. So the run is repeated
with that fault added: all replicas except the incomplete one die; or the replica that the leader
does not wait for receives no records until one is committed; or no replica receives the
acknowledged record and the leader dies; or the producer gets no answer and the incomplete replica
leads next.

A replica with another record than the committed one is treated in the same way: its log shows that,
but no client sees it unless the replica leads.

This module knows invariants, but no bug. Runs of a protocol that keeps the invariants are not
changed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

from msgspec.structs import replace

from harness.search.shrink.passes import possible
from harness.search.worlds.outcome import ScheduleOutcome
from harness.sim.invariant_checker import Violation
from harness.sim.producer_invariant import TOO_MUCH
from harness.sim.run import SimResult
from nemesis.faults import Bridge, Cut, Isolate, Kill, Link, Release
from nemesis.formats.schedule import After, Fault, Schedule
from node.formats import trace
from node.formats.trace import METADATA_PARTITION, TraceEvent

MAX_DEPTH: Final = 2
"""One added fault makes a replica lack a record, the next one makes it the leader."""
_LEFT_OUT: Final = "quorum-superset"
_TRIGGERS: Final = {
    trace.HW: ("node", "partition", "role"),
    trace.APPEND: ("node", "partition", "role"),
    trace.TRUNCATED: ("node", "partition"),
    trace.PARTITION: ("partition",),
    trace.ISR: ("node", "partition"),
    trace.PROPOSED: ("node", "partition"),
    trace.ROLE: ("node", "partition", "role"),
}


_Key = tuple[str, int, str]
"""A violation in a run: invariant, time, partition."""


def judge_with_endings(
    schedule: Schedule,
    judge: Callable[[Schedule], ScheduleOutcome],
    further: Callable[[ScheduleOutcome], bool] = lambda outcome: False,
) -> Iterator[tuple[Schedule, ScheduleOutcome]]:
    """Judge a schedule. If it violates an internal invariant, judge it with worse endings too
    (faults added after the violation). Yield each schedule with its result. `judge` runs a schedule
    until a violation is visible. Worse endings are also tried if `further` returns True for a
    result. In the run of an ending, the violation that it was made for gets no further ending."""
    pending: deque[tuple[Schedule, frozenset[_Key]]] = deque([(schedule, frozenset())])
    while pending:
        candidate, known = pending.popleft()
        outcome = judge(candidate)
        yield candidate, outcome
        wanted = outcome.internal_violation or further(outcome)
        if wanted and outcome.result is not None and len(known) < MAX_DEPTH:
            pending += [(worse, known | {key}) for worse, key in _endings(outcome.result, known)]


def _endings(run: SimResult, known: frozenset[_Key]) -> Iterator[tuple[Schedule, _Key]]:
    """Return endings for a run's first two violations not in `known`, with their keys."""
    hidden = [b for b in run.violations if b.invariant in _ENDINGS and _key(b) not in known]
    # An incomplete candidate is nearer to a loss than a replica that is not waited for.
    for violation in sorted(hidden, key=lambda b: (b.invariant == _LEFT_OUT, b.step))[:2]:
        for candidate in _ENDINGS[violation.invariant](run, violation):
            if possible(candidate):
                yield candidate, _key(violation)


def _key(violation: Violation) -> _Key:
    return violation.invariant, violation.t_us, violation.partition


def _leave_alone(result: SimResult, violation: Violation) -> Iterator[Schedule]:
    """Yield endings in which only the incomplete replicas are alive and fully linked."""
    schedule = result.schedule
    alone = [w.node for w in violation.witnesses if w.node]
    when = _event_at(result, violation.t_us, violation.partition)
    cluster = schedule.cluster
    is_metadata = violation.partition == METADATA_PARTITION
    names = cluster.voter_names() if is_metadata else cluster.broker_names()
    others = ",".join(name for name in names if name not in alone)
    if not alone or when is None or not others:
        return
    session_ms, began_ms = cluster.timings.session_ms, _since_storm_ms(result, violation.t_us)
    over_ms = began_ms + 4 * session_ms + 200
    named, releases = _released(result, when, violation.t_us)
    # At once, before anything is repaired; or after the answers of that turn were sent.
    for delay_ms in (0, 1):
        death = Kill(on=others, after=replace(when, delay_ms=delay_ms))
        if releases:
            yield _longer(named, (death, *releases), over_ms)
        yield _longer(schedule, (death,), over_ms)
    # What was committed may rest on a proposal that the controller has not accepted yet.
    if _proposed_at(result, violation):
        unheard = _lost("alter-partition", others, "voters", at_ms=began_ms, for_ms=session_ms)
        yield _longer(schedule, (unheard, Kill(on=others, after=when)), over_ms)


def _proposed_at(result: SimResult, violation: Violation) -> bool:
    """Return whether a leader proposed another ISR in the turn of the violation."""
    return any(
        event["event"] == trace.PROPOSED
        and (event["t_us"], event.get("partition")) == (violation.t_us, violation.partition)
        for event in result.trace
    )


def _leave_out(result: SimResult, violation: Violation) -> Iterator[Schedule]:
    """Yield endings in which an ignored replica receives no records, its leader no metadata."""
    schedule = result.schedule
    leader = next((w.node for w in violation.witnesses if w.node), "")
    left_out = ",".join(_not_waited_for(result, violation, leader))
    when = _event_at(result, violation.t_us, violation.partition)
    if not leader or not left_out or when is None:
        return
    timings = schedule.cluster.timings
    over_ms = _since_storm_ms(result, violation.t_us) + 6 * timings.session_ms + 200
    proposed = _last(
        result,
        violation.partition,
        lambda e: (
            e["event"] == trace.PROPOSED and e["node"] == leader and e["t_us"] <= violation.t_us
        ),
    )
    span_ms = 3 * timings.session_ms
    for trigger in filter(None, (proposed, when)):
        match = {"partition": violation.partition}
        more: dict[str, Any] = {"after": trigger, "for_ms": span_ms, "match": match}
        no_records = _lost("fetch-response", "rest", left_out, **more)
        no_metadata = Cut(on="voters", to=leader, two_way=False, after=trigger, for_ms=span_ms)
        yield _longer(schedule, (no_records, no_metadata), over_ms)
        yield _longer(schedule, (no_records,), over_ms)


def _lose_acknowledged(result: SimResult, violation: Violation) -> Iterator[Schedule]:
    """Yield endings in which the leader goes silent at the acknowledged append, and dies soon."""
    schedule = result.schedule
    acknowledged = violation.witnesses[0]
    leader = acknowledged.node
    appends = (
        event
        for event in reversed(result.trace)
        if event["event"] == trace.APPEND
        and (event["node"], event.get("partition")) == (leader, violation.partition)
        and event["base_offset"] == acknowledged.offset
        and event["t_us"] <= violation.t_us
    )
    event = next(appends, None)
    if event is None or event["t_us"] < result.info.phases.storm_us:
        return
    span_ms = 3 * schedule.cluster.timings.session_ms
    appended_ms = _since_storm_ms(result, event["t_us"])
    acknowledged_ms = _since_storm_ms(result, violation.t_us)
    # Answers leave with the append: the rule must be there before, or just after those before.
    starts: list[dict[str, Any]] = [{"at_ms": appended_ms}]
    if (appended := _trigger(result, event)) is not None:
        starts.append({"after": appended})
    for start in starts:
        match = {"partition": violation.partition}
        no_records = _lost("fetch-response", leader, "rest", for_ms=span_ms, match=match, **start)
        dies = Kill(on=leader, at_ms=acknowledged_ms + 1, for_ms=span_ms)
        yield _longer(schedule, (no_records, dies), acknowledged_ms + span_ms + 200)


def _lead_with_wrong_producers(result: SimResult, violation: Violation) -> Iterator[Schedule]:
    """Yield endings in which a replica with wrong producers leads a producer that repeats."""
    schedule = result.schedule
    shown = violation.witnesses[0]
    when = _event_at(result, violation.t_us, violation.partition)
    others = [name for name in schedule.cluster.broker_names() if name != shown.node]
    if when is None or not others:
        return
    session_ms = schedule.cluster.timings.session_ms
    over_ms = _since_storm_ms(result, violation.t_us) + 8 * session_ms + 200
    ways = _before_it_is_sent if shown.what == TOO_MUCH else _before_it_is_answered
    for faults in ways(result, violation, when, others):
        yield _longer(schedule, faults, over_ms)


def _before_it_is_answered(
    result: SimResult, violation: Violation, when: After, others: list[str]
) -> Iterator[tuple[Fault, ...]]:
    """Yield faults for a replica that knows too little of its producers, as after a restart: all
    other replicas die, before producers get answers for the batches in its log."""
    session_ms = result.schedule.cluster.timings.session_ms
    dies = Kill(on=",".join(others), after=when, for_ms=2 * session_ms)
    yield (dies,)
    at_ms = _since_storm_ms(result, violation.t_us)
    began_ms = max(0, at_ms - session_ms)
    for_ms = at_ms - began_ms + session_ms // 4
    unheard = _lost("produce-response", "all", "clients", at_ms=began_ms, for_ms=for_ms)
    yield (unheard, dies)


def _before_it_is_sent(
    result: SimResult, violation: Violation, when: After, others: list[str]
) -> Iterator[tuple[Fault, ...]]:
    """Yield faults for a replica that still knows truncated batches: no other one receives from
    producers, the leader dies when it has caught up, and no other one stands for election."""
    led = list(_leaderships(result, violation))
    leader, since_us = (led[-1]["node"], led[-1]["t_us"]) if led else ("", violation.t_us)
    session_ms = result.schedule.cluster.timings.session_ms
    span_ms = 6 * session_ms
    rivals, at_ms = ",".join(others), _since_storm_ms(result, since_us)
    unsent = _lost("produce", "clients", rivals, at_ms=at_ms, for_ms=span_ms)
    no_rivals = _lost("vote", rivals, "rest", after=when, for_ms=span_ms)
    for delay_ms in (60, 200):
        late = replace(when, delay_ms=when.delay_ms + delay_ms)
        dies = Kill(on=leader or rivals, after=late, for_ms=2 * session_ms)
        yield (unsent, no_rivals, dies)


def _leaderships(result: SimResult, violation: Violation) -> Iterator[TraceEvent]:
    """Yield the events with which a replica began to lead the partition, up to the violation."""
    for event in result.trace:
        if event["t_us"] > violation.t_us:
            return
        leads = event["event"] == trace.ROLE and event["role"] == "leader"
        if leads and event["partition"] == violation.partition:
            yield event


def _elect_later_term(result: SimResult, violation: Violation) -> Iterator[Schedule]:
    """Yield endings in which the leader dies before a record of its own term is on another replica.
    A voter whose log ends in a later term than the committed records wins the election."""
    schedule = result.schedule
    leader, *would_win = violation.witnesses
    when = _event_at(result, violation.t_us, violation.partition)
    if not would_win or when is None:
        return
    election_ms = 2 * schedule.cluster.timings.election_max_ms
    over_ms = _since_storm_ms(result, violation.t_us) + 4 * election_ms
    named, releases = _released(result, when, violation.t_us)
    dies = Kill(on=leader.node, after=when, for_ms=2 * election_ms)
    # The answer of the very turn has the record: the rule must be there before.
    appended = _last(
        result,
        violation.partition,
        lambda e: (
            e["event"] == trace.APPEND and e["node"] != leader.node and e["t_us"] <= violation.t_us
        ),
    )
    if appended is not None:
        more: dict[str, Any] = {"match": {"partition": violation.partition}, "after": appended}
        unheard = _lost("fetch-response", leader.node, "rest", for_ms=election_ms, **more)
        yield _longer(named, (unheard, dies, *releases), over_ms)
    yield _longer(named, (dies, *releases), over_ms)


_ENDINGS: Final = {
    _LEFT_OUT: _leave_out,
    "acknowledged-early": _lose_acknowledged,
    "commits-own-term-first": _elect_later_term,
    "producers-as-in-log": _lead_with_wrong_producers,
    "candidate-completeness": _leave_alone,
    "committed-on-majority": _leave_alone,
    "log-matching": _leave_alone,
}
"""The function that yields endings for each invariant. Clients see what follows from any other one
seldom, or by another violation."""


def _not_waited_for(result: SimResult, violation: Violation, leader: str) -> list[str]:
    """Return the replicas that the controller may elect and the leader does not wait for."""
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


def _released(result: SimResult, when: After, t_us: int) -> tuple[Schedule, tuple[Fault, ...]]:
    """Return the schedule with each cut in force at `t_us` named, and the faults that end them."""
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
        for number, fault in enumerate(result.schedule.faults)
    ]
    soon = replace(when, delay_ms=when.delay_ms + 1)
    releases = tuple(
        Release(of=fault.name, after=soon)
        for number, fault in enumerate(faults)
        if number in in_force and isinstance(fault, Cut | Isolate | Bridge)
    )
    return replace(result.schedule, faults=tuple(faults)), releases


def _lost(kind: str, on: str, to: str, **more: Any) -> Link:
    """Return a fault by which messages of a kind are lost on links."""
    return Link(on=on, to=to, action="drop", kinds=(kind,), **more)


def _longer(schedule: Schedule, more: tuple[Fault, ...], over_ms: int) -> Schedule:
    workload = schedule.workload
    return replace(
        schedule,
        faults=(*schedule.faults, *more),
        workload=replace(workload, duration_ms=max(workload.duration_ms, over_ms)),
    )


def _since_storm_ms(result: SimResult, t_us: int) -> int:
    return max(0, t_us - result.info.phases.storm_us) // 1000


def _event_at(result: SimResult, t_us: int, partition: str) -> After | None:
    """Return the event of a partition at that time, as a trigger; None if there is none."""
    return _last(result, partition, lambda e: e["t_us"] == t_us and e["event"] in _TRIGGERS)


def _last(result: SimResult, partition: str, wanted: Callable[[TraceEvent], bool]) -> After | None:
    """Return the last event of a partition for which `wanted` returns True, as a trigger."""
    found = (e for e in reversed(result.trace) if wanted(e) and e.get("partition") == partition)
    event = next(found, None)
    return None if event is None else _trigger(result, event)


def _trigger(result: SimResult, event: dict[str, Any]) -> After | None:
    """Return an event as a trigger: its name, its fields, and its number among equal ones."""
    began_us = result.info.phases.storm_us
    match = {name: event[name] for name in _TRIGGERS[event["event"]]}
    nth = 0
    for other in result.trace:
        if other["t_us"] >= began_us and other["event"] == event["event"]:
            nth += trace.matches(other, match)
        if other is event:
            break
    return After(event=event["event"], match=match, nth=nth) if nth else None
