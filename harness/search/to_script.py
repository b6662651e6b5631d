"""A failing run as a script: what its clients did, and when its faults came, told by events. Pure.

A drawn workload goes by the clock, and a real client's clock is not the simulator's: the third
write comes before an election in one world and after it in the other. So each operation of the
run becomes one of the schedule, and it and each timed fault wait for the event that came last
before them. What is to end later than that is a matter for `harness.search.real_schedule`.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from msgspec.structs import replace

from harness.formats.history import Op
from harness.search.trigger_candidates import Moment, before, moments, of_leaders
from harness.sim.run import SimResult
from nemesis.faults import Release
from nemesis.formats.schedule import After, Fault, Operation, Poll, Schedule, Send

MOST_OPERATIONS: Final = 30
"""A run of more is not told operation by operation."""
OVER_MS: Final = 300
"""How long after the last thing that is told the storm goes on."""

Timed = TypeVar("Timed", Send, Poll)


def scripted(schedule: Schedule, run: SimResult, *, polls: bool, leaders: bool) -> Schedule | None:
    """The schedule with the operations of its `run`, with or without the reads among them.

    Of those that began before the violation, or the last fault. None where there are too many. With
    `leaders` only what leaders do, whoever they are, sets anything off.
    """
    storm_us = run.info.phases.storm_us
    told = list(moments(run.trace, storm_us))
    told = of_leaders(told) if leaders else told
    until_us = _until_us(run)
    operations = [
        made
        for op in run.ops
        if op.type == "invoke" and storm_us <= op.t_us < until_us
        for made in _operations(schedule, op, polls=polls)
        for made in [_timed(made, op.t_us, told, storm_us)]
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
    return replace(schedule, workload=workload, faults=_faults(schedule, run, told, until_us))


def own_clients(schedule: Schedule) -> Schedule:
    """The script with a client for each write: none waits for what another one is told."""
    workload = schedule.workload
    names: dict[str, str] = {}
    operations = []
    for number, operation in enumerate(workload.operations):
        who = str(number) if isinstance(operation, Send) else operation.client
        client = names.setdefault(who, f"c{len(names) + 1}")
        operations.append(replace(operation, client=client))
    return replace(schedule, workload=replace(workload, operations=tuple(operations)))


def _until_us(run: SimResult) -> int:
    """When everything that matters had begun."""
    seen = [violation.t_us for violation in run.violations if violation.visible]
    struck: list[int] = [line.t_us for line in run.faults if line.action == "inject"]
    last = run.info.phases.heal_us or run.info.phases.end_us
    return max([*(seen[:1] or [last]), *struck]) + 1


def _operations(schedule: Schedule, op: Op, *, polls: bool) -> list[Operation]:
    """What a client began, as operations of a schedule."""
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


def _timed(operation: Operation, t_us: int, told: list[Moment], storm_us: int) -> Operation:
    """An operation with its trigger: the last event before it, or the beginning."""
    after = _after(told, t_us)
    if after is None:
        return replace(operation, at_ms=(t_us - storm_us) // 1000)
    return replace(operation, after=after)


def _after(told: list[Moment], t_us: int) -> After | None:
    last = before(told, t_us, 1)
    if not last:
        return None
    return replace(last[0].after, delay_ms=(t_us - last[0].t_us) // 1000)


def _faults(
    schedule: Schedule, run: SimResult, told: list[Moment], until_us: int
) -> tuple[Fault, ...]:
    """Each fault at the event that came last before it, and ended at one where it matters."""
    began = {line.fault: line.t_us for line in run.faults if line.action == "inject"}
    ended = {line.fault: line.t_us for line in run.faults if line.action == "heal"}
    made: list[Fault] = []
    releases: list[Fault] = []
    for index, fault in enumerate(schedule.faults):
        now = fault
        if fault.at_ms and index in began:
            after = _after(told, began[index])
            now = fault if after is None else replace(fault, at_ms=None, after=after)
        end_us = ended.get(index, 0)
        # What the heal of all ends in the run must end in time here too: this storm goes on.
        if fault.for_ms is None and index in ended and end_us < until_us:
            name = fault.name or f"fault-{index}"
            now = replace(now, name=name)
            releases.append(Release(of=name, **_when(told, end_us, run.info.phases.storm_us)))
        made.append(now)
    return (*made, *releases)


def _when(told: list[Moment], t_us: int, storm_us: int) -> dict[str, Any]:
    after = _after(told, t_us)
    return {"at_ms": (t_us - storm_us) // 1000} if after is None else {"after": after}
