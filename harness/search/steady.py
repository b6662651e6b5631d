"""Makes a shrunk schedule last: times become events, so that it fails in another world too.

A search finds "kill n1 after 812 ms"; on real processes that moment never comes again. Each timed
fault is tried at the moments the simulated run knows around it ("when n2 takes the lead"), and
that form is kept which still fails most often when every message takes a little longer or
shorter. Deterministic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from nemesis.schedule import After, Break, Delay, Fault, Schedule
from node import trace

FailsAlike = Callable[[Schedule, int], bool]
"""Whether a schedule fails in the way that is being kept, in the world of a seed."""

JITTERS: Final = 20
LATENCY_MS: Final = 2
MOST_MOMENTS: Final = 6
SLOWER: Final = 6
"""By this factor the timeouts of a search become those of a storm."""
STAND_MS: Final = 150
"""How long a node stands still for a fault to strike somebody else: the harness looks at traces
every few milliseconds."""

_MOMENTS: Final[dict[str, tuple[str, ...]]] = {
    trace.ROLE: ("node", "partition", "role", "leader_epoch"),
    trace.TRUNCATED: ("node", "partition"),
    trace.STARTED: ("node", "incarnation"),
    trace.REGISTERED: ("node", "incarnation"),
    trace.ISR: ("node", "partition"),
    trace.PROPOSED: ("node", "partition"),
    trace.APPEND: ("node", "partition", "role"),
    trace.HW: ("node", "partition", "role"),
    trace.ACK: ("node", "partition"),
}
"""Events that tell a moment, and the fields by which it is told."""


def jittered(schedule: Schedule) -> Schedule:
    """The schedule on a network of its own mood: every message is up to twice `LATENCY_MS` late."""
    mood = Delay(on="all", to="all", delay_ms=LATENCY_MS, jitter_ms=LATENCY_MS, at_ms=0)
    return replace(schedule, faults=(mood, *schedule.faults))


def steadiness(schedule: Schedule, fails_alike: FailsAlike, times: int = JITTERS) -> int:
    """In how many of `times` moods of the network the schedule fails as it should."""
    return sum(fails_alike(jittered(schedule), 1000 + n) for n in range(times))


def slow_motion(schedule: Schedule, factor: int = SLOWER) -> Schedule:
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


def steady(
    schedule: Schedule, events: list[dict[str, Any]], storm_us: int, fails_alike: FailsAlike
) -> Schedule:
    """The form of the schedule that fails most surely; `events` and `storm_us` are of its run."""
    best, best_score = schedule, steadiness(schedule, fails_alike, JITTERS // 2)
    for index, fault in enumerate(schedule.faults):
        if fault.at_ms is None:
            continue
        for after in _moments(events, storm_us, fault.at_ms):
            candidate = _with(best, index, replace(fault, at_ms=None, after=after))
            if not fails_alike(candidate, candidate.workload.seed):
                continue
            score = steadiness(candidate, fails_alike, JITTERS // 2)
            if score > best_score:
                best, best_score = candidate, score
    return best


def for_real(schedule: Schedule, fails_alike: FailsAlike) -> Schedule | None:
    """The schedule as real processes can carry it out; None if no form of it fails any more.

    Slow enough for processes that start and messages that wait, and with breakpoints: a fault that
    strikes when a node does something finds that node standing still just then, before its next
    message leaves. In the simulated world there is nothing between the two moments.
    """
    slow = slow_motion(schedule)
    patient = _patient(slow)
    for candidate in (_standing(patient), _standing(slow), patient, slow):
        if fails_alike(candidate, candidate.workload.seed):
            return candidate
    return None


def _patient(schedule: Schedule) -> Schedule:
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


def _standing(schedule: Schedule) -> Schedule:
    """With a breakpoint at every event of a node that triggers a fault on somebody else."""
    breaks: dict[str, Break] = {}
    for fault in schedule.faults:
        after = fault.after
        if after is None or "node" not in after.match or after.event == trace.STARTED:
            continue
        node = str(after.match["node"])
        if getattr(fault, "on", node) == node or node[0] != "n":
            continue
        match = {name: value for name, value in after.match.items() if name != "node"}
        key = f"{node}/{after.event}/{sorted(match.items(), key=str)}"
        breaks[key] = Break(
            on=node, event=after.event, match=match, nth=after.nth, at_ms=0,
            for_ms=STAND_MS + after.delay_ms,
        )  # fmt: skip
    return replace(schedule, faults=(*breaks.values(), *schedule.faults))


def _with(schedule: Schedule, index: int, fault: Fault) -> Schedule:
    return replace(
        schedule, faults=(*schedule.faults[:index], fault, *schedule.faults[index + 1 :])
    )


def _moments(events: list[dict[str, Any]], storm_us: int, at_ms: int) -> Iterator[After]:
    """The last few distinct moments before a time, as triggers with what is left as a delay."""
    at_us = storm_us + at_ms * 1000
    counts: dict[tuple[tuple[str, Any], ...], int] = {}
    last: dict[tuple[tuple[str, Any], ...], tuple[int, int]] = {}
    for event in events:
        if not storm_us <= event["t_us"] <= at_us or event["event"] not in _MOMENTS:
            continue
        if event.get("partition") == trace.METADATA_PARTITION:
            continue
        fields = _MOMENTS[event["event"]]
        key = (("event", event["event"]), *((f, event[f]) for f in fields if f in event))
        counts[key] = counts.get(key, 0) + 1
        last[key] = (event["t_us"], counts[key])
    latest = sorted(last.items(), key=lambda item: -item[1][0])[:MOST_MOMENTS]
    for key, (t_us, nth) in latest:
        match = dict(key[1:])
        yield After(
            event=str(key[0][1]), match=match, nth=nth, delay_ms=(at_us - t_us) // 1000
        )
