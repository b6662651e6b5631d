"""Simpler schedules next to one that fails on real processes, where each run costs much. Pure.

Few proposals, each a large step. Fewer faults are tried before these (`harness.search.shrink`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from harness.search.shrink import Pass
from nemesis.faults import kind_of
from nemesis.formats.schedule import Fault, Schedule

GRAIN_MS: Final = 500
"""Times are rounded to this: nothing finer is repeated on real processes."""
FIRST_MS: Final = 1000
"""Something must have been acknowledged before the first fault."""


def plainer_kinds(schedule: Schedule) -> Iterator[Schedule]:
    """Each fault as one of a plainer kind, or with a plainer field."""
    for index, fault in enumerate(schedule.faults):
        kind = kind_of(fault)
        for plainer in (*kind.as_plainer_kind(), *kind.plainer()):
            yield _with(schedule, index, plainer)


def rounder_times(schedule: Schedule) -> Iterator[Schedule]:
    """All times rounded down, the first fault as soon as may be, the storm no longer than they
    need."""
    faults = [fault for fault in schedule.faults if fault.at_ms is not None]
    if not faults:
        return
    early = min(fault.at_ms or 0 for fault in faults) - FIRST_MS
    for sooner in (max(0, early), 0):
        moved = tuple(_rounded(fault, sooner) for fault in schedule.faults)
        yield _fitting(replace(schedule, faults=moved))


def shorter_faults(schedule: Schedule) -> Iterator[Schedule]:
    """One fault half as long each time."""
    for index, fault in enumerate(schedule.faults):
        half = (fault.for_ms or 0) // 2 // GRAIN_MS * GRAIN_MS
        if half:
            yield _fitting(_with(schedule, index, replace(fault, for_ms=half)))


def fewer_clients(schedule: Schedule) -> Iterator[Schedule]:
    """One partition, no consumers, one producer or few."""
    cluster, workload = schedule.cluster, schedule.workload
    if cluster.partitions > 1:
        yield replace(schedule, cluster=replace(cluster, partitions=1))
    if workload.consumers:
        yield replace(schedule, workload=replace(workload, consumers=0))
    for clients in (1, 3):
        if clients < workload.clients:
            yield replace(schedule, workload=replace(workload, clients=clients))


REAL_PASSES: Final[tuple[Pass, ...]] = (plainer_kinds, rounder_times, shorter_faults, fewer_clients)


def _with(schedule: Schedule, index: int, fault: Fault) -> Schedule:
    faults = (*schedule.faults[:index], fault, *schedule.faults[index + 1 :])
    return replace(schedule, faults=faults)


def _rounded(fault: Fault, sooner_ms: int) -> Fault:
    if fault.at_ms is None:
        return fault
    at_ms = (fault.at_ms - sooner_ms) // GRAIN_MS * GRAIN_MS
    for_ms = None if fault.for_ms is None else max(100, fault.for_ms // GRAIN_MS * GRAIN_MS)
    return replace(fault, at_ms=max(0, at_ms), for_ms=for_ms)


def _fitting(schedule: Schedule) -> Schedule:
    """With a storm that ends as long after its last fault as before, and is no longer."""
    last = max(((f.at_ms or 0) + (f.for_ms or 0) for f in schedule.faults), default=0)
    tail = max(GRAIN_MS, _tail(schedule))
    duration = min(schedule.workload.duration_ms, last + tail)
    return replace(schedule, workload=replace(schedule.workload, duration_ms=duration))


def _tail(schedule: Schedule) -> int:
    """A quarter of a failover, as storms are drawn: a session is half of one."""
    return schedule.cluster.timings.session_ms // 2
