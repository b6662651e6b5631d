"""The script of a failing run: operations and faults written out, each triggered by an event. Pure.

A drawn workload follows the clock, and a real client's clock is not the simulator's: the third
write comes before an election in one world and after it in the other. So each operation of the run
becomes one of the schedule, and it and each timed fault wait for the last event before them.
"Kill n1 after 812 ms" means nothing in another world, but "when n2 has truncated its log" does.
`harness.search.shrink.real_schedule` chooses the ends of faults."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from msgspec.structs import replace

from harness.formats.history import Op
from harness.sim.run import SimResult
from nemesis.faults import Release
from nemesis.formats.schedule import After, Fault, Operation, Poll, Schedule, Send
from node.formats import trace

_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    trace.ROLE: ("node", "partition", "role", "leader_epoch"),
    trace.TRUNCATED: ("node", "partition"),
    trace.STARTED: ("node", "incarnation"),
    trace.REGISTERED: ("node", "incarnation"),
    trace.ISR: ("node", "partition"),
    trace.PROPOSED: ("node", "partition"),
    trace.APPEND: ("node", "partition", "role"),
    trace.HW: ("node", "partition", "role"),
    trace.ACK: ("node", "partition"),
    trace.PARTITION: ("partition", "leader", "leader_epoch"),
    trace.DIVERGING: ("node", "partition"),
    trace.VOTE: ("node", "partition", "candidate"),
}
"""Events that a trigger can wait for, and the fields that identify one of them."""


_IDENTITY: Final = ("node", "incarnation", "leader")


class TriggerCandidate(NamedTuple):
    """An event of a run that can trigger a fault: the trigger without a delay, the time of the
    event, and the event itself."""

    after: After
    t_us: int
    event: Mapping[str, Any] = {}


def trigger_candidates(
    events: Iterable[Mapping[str, Any]], storm_us: int
) -> Iterator[TriggerCandidate]:
    """Yield the storm's events as triggers, in order; equal ones are numbered by process."""
    counts: dict[tuple[tuple[str, Any], ...], int] = {}
    for event in sorted(events, key=lambda e: (e["t_us"], e["node"])):
        name = event["event"]
        if event["t_us"] < storm_us or name not in _FIELDS:
            continue
        if event.get("partition") == trace.METADATA_PARTITION or _follows_nobody(event):
            continue
        match = {field: event[field] for field in _FIELDS[name] if field in event}
        incarnation = event.get("incarnation", 1)
        if "node" in match and incarnation > 1:
            match["incarnation"] = incarnation
        key = (("event", name), *match.items())
        counts[key] = counts.get(key, 0) + 1
        after = After(event=name, match=match, nth=counts[key])
        yield TriggerCandidate(after, event["t_us"], event)


def _follows_nobody(event: Mapping[str, Any]) -> bool:
    """Return whether a replica has no leader: each timeout repeats such events."""
    return event["event"] == trace.ROLE and event["role"] != "leader" and not event["leader"]


def leader_candidates(candidates: Iterable[TriggerCandidate]) -> list[TriggerCandidate]:
    """Return the events of leaders, as triggers on any node: if replicas vote, leaders differ."""
    known = list(candidates)
    return [
        _on_any_node(trigger, known)
        for trigger in known
        if trigger.event.get("role", "leader") == "leader" and trigger.after.event != trace.VOTE
    ]


def _on_any_node(trigger: TriggerCandidate, known: Sequence[TriggerCandidate]) -> TriggerCandidate:
    after = trigger.after
    match = {name: value for name, value in after.match.items() if name not in _IDENTITY}
    past = (each for each in known if each.t_us <= trigger.t_us)
    nth = sum(e.after.event == after.event and trace.matches(e.event, match) for e in past)
    return trigger._replace(after=replace(after, match=match, nth=max(1, nth)))


MOST_OPERATIONS: Final = 30
"""The largest number of operations in a script."""
OVER_MS: Final = 300
"""The time for which the storm continues after the last scripted operation or fault."""

Timed = TypeVar("Timed", Send, Poll)


def to_script(schedule: Schedule, run: SimResult, *, polls: bool, leaders: bool) -> Schedule | None:
    """Return the schedule with the operations of its `run` written out, with reads if `polls`. Only
    operations before the violation, or before the last fault, are written out. Return None if there
    are too many. With `leaders`, triggers are events of any leader, and of no other replica."""
    storm_us = run.info.phases.storm_us
    candidates = list(trigger_candidates(run.trace, storm_us))
    candidates = leader_candidates(candidates) if leaders else candidates
    until_us = _until_us(run)
    operations = [
        made
        for op in run.ops
        if op.type == "invoke" and storm_us <= op.t_us < until_us
        for made in _operations(schedule, op, polls=polls)
        for made in [_timed(made, op.t_us, candidates, storm_us)]
    ]
    if not any(isinstance(o, Send) for o in operations) or len(operations) > MOST_OPERATIONS:
        return None
    names = {old: f"c{at}" for at, old in enumerate(dict.fromkeys(o.client for o in operations), 1)}
    over_ms = (until_us - storm_us) // 1000 + OVER_MS
    workload = replace(
        schedule.workload,
        clients=0,
        consumers=0,
        operations=tuple(replace(o, client=names[o.client]) for o in operations),
        duration_ms=max(schedule.workload.duration_ms, over_ms),
    )
    return replace(schedule, workload=workload, faults=_faults(schedule, run, candidates, until_us))


def one_client_per_send(schedule: Schedule) -> Schedule:
    """Return the script with a client for each write, so that none waits for another."""
    workload = schedule.workload
    names: dict[str, str] = {}
    operations = []
    for number, operation in enumerate(workload.operations):
        who = str(number) if isinstance(operation, Send) else operation.client
        client = names.setdefault(who, f"c{len(names) + 1}")
        operations.append(replace(operation, client=client))
    return replace(schedule, workload=replace(workload, operations=tuple(operations)))


def _until_us(run: SimResult) -> int:
    """Return the end of the interval whose operations matter."""
    seen = [violation.t_us for violation in run.violations if violation.visible]
    injected_us: list[int] = [line.t_us for line in run.faults if line.action == "inject"]
    last = run.info.phases.heal_us or run.info.phases.end_us
    return max([*(seen[:1] or [last]), *injected_us]) + 1


def _operations(schedule: Schedule, op: Op, *, polls: bool) -> list[Operation]:
    """Return the invocations of a client as operations of a schedule."""
    size = schedule.workload.payload_bytes
    sends: list[Operation] = [
        Send(
            client=op.client,
            partition=send.partition,
            count=send.count,
            payload_bytes=size,
            acks=schedule.workload.acks,
            must="any",
        )
        for send in op.sends
    ]
    reads = op.reads if polls else ()
    return [*sends, *(Poll(client=op.client, partition=r.partition, must="any") for r in reads)]


def _timed(
    operation: Operation, t_us: int, candidates: list[TriggerCandidate], storm_us: int
) -> Operation:
    """Return an operation with its trigger: the last event before it, or the beginning."""
    return replace(operation, **_when(candidates, t_us, storm_us))


def _after(candidates: list[TriggerCandidate], t_us: int) -> After | None:
    last = next((each for each in reversed(candidates) if each.t_us <= t_us), None)
    return None if last is None else replace(last.after, delay_ms=(t_us - last.t_us) // 1000)


def _faults(
    schedule: Schedule, run: SimResult, candidates: list[TriggerCandidate], until_us: int
) -> tuple[Fault, ...]:
    """Return the faults, triggered by the last event before them, ended by one if it matters."""
    began = {line.fault: line.t_us for line in run.faults if line.action == "inject"}
    ended = {line.fault: line.t_us for line in run.faults if line.action == "heal"}
    made: list[Fault] = []
    releases: list[Fault] = []
    for index, fault in enumerate(schedule.faults):
        now = fault
        if fault.at_ms and index in began:
            after = _after(candidates, began[index])
            now = fault if after is None else replace(fault, at_ms=None, after=after)
        end_us = ended.get(index, 0)
        # A fault that the final heal ends in the run must end here too: this storm is longer.
        if fault.for_ms is None and index in ended and end_us < until_us:
            name = fault.name or f"fault-{index}"
            now = replace(now, name=name)
            releases.append(Release(of=name, **_when(candidates, end_us, run.info.phases.storm_us)))
        made.append(now)
    return (*made, *releases)


def _when(candidates: list[TriggerCandidate], t_us: int, storm_us: int) -> dict[str, Any]:
    after = _after(candidates, t_us)
    return {"at_ms": (t_us - storm_us) // 1000} if after is None else {"after": after}
