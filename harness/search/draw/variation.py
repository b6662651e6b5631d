"""Variations of schedules: a few small changes, and the faults of one schedule behind those of
another. Pure.

A state that few schedules reach is reached again by most of their variations, each time with other
faults around it. No change knows a kind of fault or a bug."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from nemesis.faults.messages import Link
from nemesis.formats.fault import renamed
from nemesis.formats.schedule import Cluster, Fault, Schedule, check
from node.core.protocol import protocol as protocol_of
from node.formats.errors import UsageError

MOST_FAULTS: Final = 20
_TRIES: Final = 8
_CHANGES: Final = (1, 1, 2, 2, 3)
_FACTORS: Final = (0.3, 0.6, 1.4, 2.2)
_DELAYS_MS: Final = (0, 1, 5, 20, 60, 150)
_LATEST_MS: Final = 3500
_TAILS_MS: Final = (300, 500, 800)
_ROLES: Final = ("leader:log-0", "follower:log-0", "controller", "voters", "clients")
_OF_CLUSTER: Final = (
    *("min_isr", "flush", "flush_interval_ms", "retention_records", "fetch_max_bytes"),
    *("unclean_election", "timings", "voters"),
)
_OF_WORKLOAD: Final = (
    *("clients", "consumers", "rate", "batch", "batch_most", "spread", "acks", "in_flight"),
    *("idempotent", "timeout_ms"),
)

Change = Callable[[random.Random, Schedule, Schedule], Schedule]


def vary(rng: random.Random, base: Schedule, other: Schedule) -> Schedule:
    """Return `base` with a few changes and another seed of its workload; `other`, of the same
    protocol, gives options and faults."""
    seeded = replace(base, workload=replace(base.workload, seed=rng.randrange(1 << 16)))
    for _ in range(_TRIES):
        varied = seeded
        for _ in range(rng.choice(_CHANGES)):
            varied = rng.choice(_ALL)(rng, varied, other)
        varied = _allowed(varied)
        try:
            check(varied)
        except UsageError:
            continue
        return varied
    return seeded


def _allowed(schedule: Schedule) -> Schedule:
    """Return the schedule without what its protocol or its producer excludes by definition: a
    request that the network doubles is two requests, unless its producer is idempotent."""
    if not schedule.workload.idempotent:
        kept = tuple(fault for fault in schedule.faults if not _doubles(fault))
        schedule = replace(schedule, faults=kept)
    if not protocol_of(schedule.cluster.protocol).clean_only:
        return schedule
    clean = replace(schedule.cluster, flush="sync", unclean_election=False)
    return replace(schedule, cluster=clean)


def _doubles(fault: Fault) -> bool:
    return isinstance(fault, Link) and fault.action == "duplicate" and "produce" in fault.kinds


def _with_fault(schedule: Schedule, at: int, **fields: Any) -> Schedule:
    faults = list(schedule.faults)
    faults[at] = replace(faults[at], **fields)
    return replace(schedule, faults=tuple(faults))


def _any(rng: random.Random, schedule: Schedule) -> int:
    return rng.randrange(len(schedule.faults)) if schedule.faults else -1


def _targeted(rng: random.Random, schedule: Schedule, other: Schedule) -> Schedule:
    """Aim one fault at a broker, at a role, or at the target of another fault."""
    aimed = [at for at, fault in enumerate(schedule.faults) if hasattr(fault, "on")]
    if not aimed:
        return schedule
    targets = [getattr(schedule.faults[at], "on", "") for at in aimed]
    on = rng.choice(rng.choice((targets, _ROLES, schedule.cluster.broker_names())))
    return _with_fault(schedule, rng.choice(aimed), on=on)


def _exchanged(rng: random.Random, schedule: Schedule, other: Schedule) -> Schedule:
    """Exchange two brokers from one fault on."""
    names = schedule.cluster.broker_names()
    at = _any(rng, schedule)
    if at < 0 or len(names) < 2:
        return schedule
    one, two = rng.sample(names, 2)
    changed = renamed(schedule.faults[at:], {one: two, two: one})
    return replace(schedule, faults=(*schedule.faults[:at], *changed))


def _moved(rng: random.Random, schedule: Schedule, other: Schedule) -> Schedule:
    """Inject one fault at another moment: sooner, later, or at another occurrence of its event."""
    at = _any(rng, schedule)
    if at < 0:
        return schedule
    fault = schedule.faults[at]
    if fault.after is None:
        ms = (fault.at_ms or 0) + rng.choice((-1, 1)) * rng.choice(_DELAYS_MS)
        return _with_fault(schedule, at, at_ms=max(0, ms))
    if rng.random() < 0.5:
        after = replace(fault.after, nth=max(1, fault.after.nth + rng.choice((-1, 1, 2))))
    else:
        after = replace(fault.after, delay_ms=rng.choice(_DELAYS_MS))
    return _with_fault(schedule, at, after=after)


def _lasting(rng: random.Random, schedule: Schedule, other: Schedule) -> Schedule:
    """Let one fault last longer, or less long."""
    lasting = [at for at, fault in enumerate(schedule.faults) if fault.for_ms]
    if not lasting:
        return schedule
    at = rng.choice(lasting)
    for_ms = round((schedule.faults[at].for_ms or 0) * rng.choice(_FACTORS))
    return _with_fault(schedule, at, for_ms=for_ms)


def _without(rng: random.Random, schedule: Schedule, other: Schedule) -> Schedule:
    """Leave one fault out."""
    at = _any(rng, schedule)
    kept = (*schedule.faults[:at], *schedule.faults[at + 1 :]) if at >= 0 else ()
    return replace(schedule, faults=kept)


def _spliced(rng: random.Random, schedule: Schedule, other: Schedule) -> Schedule:
    """Add the first faults of the other schedule, at one of the times of this one; they still wait
    for one another."""
    begins = [fault.at_ms for fault in schedule.faults if fault.at_ms is not None]
    late_ms = rng.choice((*begins, 0))
    taken = [_also(fault, late_ms) for fault in other.faults[: rng.choice((1, 2, 3, 4))]]
    whole = (*schedule.faults, *taken)[:MOST_FAULTS]
    ends_ms = max(((f.at_ms or 0) + rng.choice(_TAILS_MS) for f in whole), default=0)
    lasts_ms = min(_LATEST_MS, max(schedule.workload.duration_ms, ends_ms))
    workload = replace(schedule.workload, duration_ms=lasts_ms)
    return replace(schedule, faults=whole, workload=workload)


def _also(fault: Fault, late_ms: int) -> Fault:
    """Return a fault of another schedule, later by `late_ms`, with names of its own."""
    changed: dict[str, object] = {}
    for field in ("name", "of"):
        if name := getattr(fault, field, ""):
            changed[field] = f"also-{name}"
    if fault.at_ms is not None:
        changed["at_ms"] = fault.at_ms + late_ms
    if fault.after is not None and fault.after.since:
        changed["after"] = replace(fault.after, since=f"also-{fault.after.since}")
    return replace(fault, **changed)


def _optioned(rng: random.Random, schedule: Schedule, other: Schedule) -> Schedule:
    """Take an option of the cluster or of the workload from the other schedule."""
    name = rng.choice((*_OF_CLUSTER, *_OF_WORKLOAD))
    if name in _OF_WORKLOAD:
        work = replace(schedule.workload, **{name: getattr(other.workload, name)})
        if work.idempotent:
            work = replace(work, acks=-1)
        return replace(schedule, workload=work)
    cluster: Cluster = replace(schedule.cluster, **{name: getattr(other.cluster, name)})
    return replace(schedule, cluster=cluster)


_ALL: Final[tuple[Change, ...]] = (
    *(_targeted, _exchanged, _moved, _moved, _lasting, _without, _spliced, _spliced, _optioned),
)
"""The changes, as often as each is drawn."""
