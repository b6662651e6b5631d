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
        for candidate in _ENDINGS[violation.invariant](_Moment(run, violation)):
            if possible(candidate):
                yield candidate, _key(violation)


def _key(violation: Violation) -> _Key:
    return violation.invariant, violation.t_us, violation.partition


class _Moment:
    """The moment of a violation in a run: `at_ms` after the begin of the storm, at the event
    `when`. `witnesses` are the nodes that show the violation."""

    def __init__(self, result: SimResult, violation: Violation) -> None:
        self.result, self.schedule = result, result.schedule
        self.violation, self.partition, self.t_us = violation, violation.partition, violation.t_us
        self.witnesses = [w.node for w in violation.witnesses if w.node]
        self.session_ms = self.schedule.cluster.timings.session_ms
        self.at_ms = self.since_storm_ms(self.t_us)
        self.when = self.last(lambda e: e["t_us"] == self.t_us and e["event"] in _TRIGGERS)

    def since_storm_ms(self, t_us: int) -> int:
        return max(0, t_us - self.result.info.phases.storm_us) // 1000

    def last(self, wanted: Callable[[TraceEvent], bool]) -> After | None:
        """Return the last event of the partition for which `wanted` returns True, as a trigger."""
        events = (e for e in reversed(self.result.trace) if wanted(e))
        event = next((e for e in events if e.get("partition") == self.partition), None)
        return None if event is None else self.trigger(event)

    def last_before(self, name: str, wanted: Callable[[TraceEvent], bool]) -> After | None:
        """Return the last event of that name up to the violation, as `last` does."""
        return self.last(lambda e: e["event"] == name and e["t_us"] <= self.t_us and wanted(e))

    def trigger(self, event: dict[str, Any]) -> After | None:
        """Return an event as a trigger: its name, its fields, and its number among equal ones."""
        match = {name: event[name] for name in _TRIGGERS[event["event"]]}
        nth = 0
        for other in self.result.trace:
            in_storm = other["t_us"] >= self.result.info.phases.storm_us
            if in_storm and other["event"] == event["event"]:
                nth += trace.matches(other, match)
            if other is event:
                break
        return After(event=event["event"], match=match, nth=nth) if nth else None

    def ending(self, *more: Fault, after_ms: int, of: Schedule | None = None) -> Schedule:
        """Return the schedule (or `of`, the same with named cuts) with more faults; it goes on for
        `after_ms` after the violation."""
        schedule = of or self.schedule
        duration_ms = max(schedule.workload.duration_ms, self.at_ms + after_ms)
        return replace(
            schedule,
            faults=(*schedule.faults, *more),
            workload=replace(schedule.workload, duration_ms=duration_ms),
        )

    def released(self, when: After) -> tuple[Schedule, tuple[Fault, ...]]:
        """Return the schedule with each cut in force named, and the faults that end them."""
        in_force: set[int] = set()
        for line in self.result.faults:
            if line.t_us <= self.t_us and line.action == "inject":
                in_force.add(line.fault)
            elif line.t_us <= self.t_us and line.action == "heal":
                in_force.discard(line.fault)
        faults, releases = list[Fault](), list[Fault]()
        soon = replace(when, delay_ms=when.delay_ms + 1)
        for number, fault in enumerate(self.schedule.faults):
            if number in in_force and isinstance(fault, Cut | Isolate | Bridge):
                fault = replace(fault, name=fault.name or f"cut-{number}")
                releases.append(Release(of=fault.name, after=soon))
            faults.append(fault)
        return replace(self.schedule, faults=tuple(faults)), tuple(releases)


def _leave_alone(m: _Moment) -> Iterator[Schedule]:
    """Yield endings in which only the incomplete replicas are alive and fully linked."""
    cluster, alone, when = m.schedule.cluster, m.witnesses, m.when
    is_metadata = m.partition == METADATA_PARTITION
    names = cluster.voter_names() if is_metadata else cluster.broker_names()
    others = ",".join(name for name in names if name not in alone)
    if not alone or when is None or not others:
        return
    after_ms = 4 * m.session_ms + 200
    named, releases = m.released(when)
    # At once, before anything is repaired; or after the answers of that turn were sent.
    for delay_ms in (0, 1):
        death = Kill(on=others, after=replace(when, delay_ms=delay_ms))
        if releases:
            yield m.ending(death, *releases, after_ms=after_ms, of=named)
        yield m.ending(death, after_ms=after_ms)
    # What was committed may rest on a proposal that the controller has not accepted yet.
    proposed = (e for e in m.result.trace if e["event"] == trace.PROPOSED)
    if any((e["t_us"], e.get("partition")) == (m.t_us, m.partition) for e in proposed):
        span = {"at_ms": m.at_ms, "for_ms": m.session_ms}
        unheard = _lost("alter-partition", others, "voters", **span)
        yield m.ending(unheard, Kill(on=others, after=when), after_ms=after_ms)


def _leave_out(m: _Moment) -> Iterator[Schedule]:
    """Yield endings in which an ignored replica receives no records, its leader no metadata."""
    leader = next(iter(m.witnesses), "")
    left_out = ",".join(_not_waited_for(m, leader))
    if not leader or not left_out or m.when is None:
        return
    proposed = m.last_before(trace.PROPOSED, lambda e: e["node"] == leader)
    after_ms = 6 * m.session_ms + 200
    for trigger in filter(None, (proposed, m.when)):
        span: dict[str, Any] = {"after": trigger, "for_ms": 3 * m.session_ms}
        match = {"partition": m.partition}
        no_records = _lost("fetch-response", "rest", left_out, match=match, **span)
        no_metadata = Cut(on="voters", to=leader, two_way=False, **span)
        yield m.ending(no_records, no_metadata, after_ms=after_ms)
        yield m.ending(no_records, after_ms=after_ms)


def _lose_acknowledged(m: _Moment) -> Iterator[Schedule]:
    """Yield endings in which the leader goes silent at the acknowledged append, and dies soon."""
    acknowledged = m.violation.witnesses[0]
    leader = acknowledged.node
    appends = (
        event
        for event in reversed(m.result.trace)
        if event["event"] == trace.APPEND
        and (event["node"], event.get("partition")) == (leader, m.partition)
        and event["base_offset"] == acknowledged.offset
        and event["t_us"] <= m.t_us
    )
    event = next(appends, None)
    if event is None or event["t_us"] < m.result.info.phases.storm_us:
        return
    span_ms = 3 * m.session_ms
    # Answers leave with the append: the rule must be there before, or just after those before.
    starts: list[dict[str, Any]] = [{"at_ms": m.since_storm_ms(event["t_us"])}]
    if (appended := m.trigger(event)) is not None:
        starts.append({"after": appended})
    for start in starts:
        match = {"partition": m.partition}
        no_records = _lost("fetch-response", leader, "rest", for_ms=span_ms, match=match, **start)
        dies = Kill(on=leader, at_ms=m.at_ms + 1, for_ms=span_ms)
        yield m.ending(no_records, dies, after_ms=span_ms + 200)


def _lead_with_wrong_producers(m: _Moment) -> Iterator[Schedule]:
    """Yield endings in which a replica with wrong producers leads a producer that repeats."""
    shown = m.violation.witnesses[0]
    others = [name for name in m.schedule.cluster.broker_names() if name != shown.node]
    if m.when is None or not others:
        return
    ways = _before_it_is_sent if shown.what == TOO_MUCH else _before_it_is_answered
    for faults in ways(m, m.when, ",".join(others)):
        yield m.ending(*faults, after_ms=8 * m.session_ms + 200)


def _before_it_is_answered(m: _Moment, when: After, others: str) -> Iterator[tuple[Fault, ...]]:
    """Yield faults for a replica that knows too little of its producers, as after a restart: all
    other replicas die, before producers get answers for the batches in its log."""
    dies = Kill(on=others, after=when, for_ms=2 * m.session_ms)
    yield (dies,)
    began_ms = max(0, m.at_ms - m.session_ms)
    for_ms = m.at_ms - began_ms + m.session_ms // 4
    unheard = _lost("produce-response", "all", "clients", at_ms=began_ms, for_ms=for_ms)
    yield (unheard, dies)


def _before_it_is_sent(m: _Moment, when: After, rivals: str) -> Iterator[tuple[Fault, ...]]:
    """Yield faults for a replica that still knows truncated batches: no other one receives from
    producers, the leader dies when it has caught up, and no other one stands for election."""
    led = list(_leaderships(m))
    leader, since_us = (led[-1]["node"], led[-1]["t_us"]) if led else ("", m.t_us)
    span_ms, at_ms = 6 * m.session_ms, m.since_storm_ms(since_us)
    unsent = _lost("produce", "clients", rivals, at_ms=at_ms, for_ms=span_ms)
    no_rivals = _lost("vote", rivals, "rest", after=when, for_ms=span_ms)
    for delay_ms in (60, 200):
        late = replace(when, delay_ms=when.delay_ms + delay_ms)
        dies = Kill(on=leader or rivals, after=late, for_ms=2 * m.session_ms)
        yield (unsent, no_rivals, dies)


def _leaderships(m: _Moment) -> Iterator[TraceEvent]:
    """Yield the events with which a replica began to lead the partition, up to the violation."""
    for event in m.result.trace:
        if event["t_us"] > m.t_us:
            return
        leads = event["event"] == trace.ROLE and event["role"] == "leader"
        if leads and event["partition"] == m.partition:
            yield event


_ENDINGS: Final = {
    _LEFT_OUT: _leave_out,
    "acknowledged-early": _lose_acknowledged,
    "producers-as-in-log": _lead_with_wrong_producers,
    "candidate-completeness": _leave_alone,
    "committed-on-majority": _leave_alone,
    "log-matching": _leave_alone,
}
"""The function that yields endings for each invariant. Clients see what follows from any other one
seldom, or by another violation."""


def _not_waited_for(m: _Moment, leader: str) -> list[str]:
    """Return the replicas that the controller may elect and the leader does not wait for."""
    elected: list[str] = []
    waited: list[str] = []
    for event in m.result.trace:
        if event["t_us"] > m.t_us or event.get("partition") != m.partition:
            continue
        if event["event"] == trace.PARTITION:
            elected = [*event["isr"], *event["elr"]]
        elif event["event"] == trace.ISR and event["node"] == leader:
            waited = list(event["maximal_isr"])
    return [name for name in elected if name not in waited and name != leader]


def _lost(kind: str, on: str, to: str, **more: Any) -> Link:
    """Return a fault by which messages of a kind are lost on links."""
    return Link(on=on, to=to, action="drop", kinds=(kind,), **more)
