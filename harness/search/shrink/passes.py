"""The proposals of the shrinker: simpler schedules near a given one, the simplest first. Pure.

Each function yields whole schedules that differ in one respect. The shrinker finds out whether one
still fails, and whether it is valid at all (a fault may name a broker that was removed)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from nemesis.faults import kind_of
from nemesis.formats.fault import renamed
from nemesis.formats.schedule import After, Cluster, Fault, Operation, Schedule, Workload, check
from node.formats.errors import UsageError

_PLAIN_CLUSTER: Final = Cluster()
SHORTEST_MS: Final = 20
"""The shortest length to which a fault is shrunk: shorter ones fail in one world only."""
GRAIN_MS: Final = 500
"""The unit to which times are rounded for real processes, which repeat nothing finer."""
FIRST_MS: Final = 1000
"""The earliest first fault for real processes: some record must be acknowledged before."""

Due = TypeVar("Due", Fault, Operation)
Pass = Callable[[Schedule], Iterator[Schedule]]
"""A function that proposes schedules that are smaller in one respect, the simplest first."""


def possible(schedule: Schedule) -> bool:
    """Return whether a schedule is valid: no fault names a removed broker or fault."""
    try:
        check(schedule)
    except UsageError:
        return False
    return True


def without_each_fault(schedule: Schedule) -> list[Schedule]:
    """Return schedules with one fault less, each also without the releases of that fault."""
    faults = schedule.faults
    return [keeping(schedule, [f for f in faults if f is not gone]) for gone in faults]


def keeping(schedule: Schedule, kept: Sequence[Fault]) -> Schedule:
    """Return the schedule with these of its faults, without the releases of the others. Triggers
    that count from a fault that is gone count from where its own counted."""
    names = {fault.name for fault in kept}
    gone = {
        fault.name: fault.after.since if fault.after else ""
        for fault in schedule.faults
        if fault.name not in names
    }
    workload = schedule.workload
    return replace(
        schedule,
        faults=tuple(_counting(f, gone) for f in kept if f.undoes not in gone or not f.undoes),
        workload=replace(
            workload, operations=tuple(_counting(one, gone) for one in workload.operations)
        ),
    )


def _counting(due: Due, gone: Mapping[str, str]) -> Due:
    """Return a fault or operation that counts from no fault in `gone`."""
    after = due.after
    if after is None or not after.since or after.since not in gone:
        return due
    since = after.since
    while since and since in gone:
        since = gone[since]
    return replace(due, after=replace(after, since=since))


def fewer_operations(schedule: Schedule) -> Iterator[Schedule]:
    """Yield schedules with one operation less, the last first; clients are renumbered."""
    operations = schedule.workload.operations
    for at in reversed(range(len(operations))):
        rest = (*operations[:at], *operations[at + 1 :])
        yield replace(schedule, workload=_numbered(replace(schedule.workload, operations=rest)))


def _numbered(workload: Workload) -> Workload:
    """Return the clients of the operations numbered without gaps after the drawn ones."""
    first = workload.clients + workload.consumers + 1
    names = {old: f"c{first + at}" for at, old in enumerate(workload.scripted_clients())}
    return replace(
        workload,
        operations=tuple(
            replace(operation, client=names[operation.client]) for operation in workload.operations
        ),
    )


def smaller_workloads(schedule: Schedule) -> Iterator[Schedule]:
    """Yield schedules with fewer clients, fewer and smaller batches, a shorter storm."""
    workload = schedule.workload
    plain: dict[str, tuple[int, ...]] = {
        "consumers": _below(workload.consumers, 0),
        "clients": _below(workload.clients, 1),
        "in_flight": _below(workload.in_flight, 1),
        "batch": _below(workload.batch, 1),
        "duration_ms": _below(workload.duration_ms, 100),
        "payload_bytes": _below(workload.payload_bytes, 16),
    }
    for name, values in plain.items():
        for value in values:
            yield replace(schedule, workload=_numbered(_changed(workload, name, value)))
    slower = [rate for rate in (2.0, 5.0, 10.0) if rate < workload.rate]
    for rate in slower:
        yield replace(schedule, workload=_changed(workload, "rate", rate))


def smaller_clusters(schedule: Schedule) -> Iterator[Schedule]:
    """Yield schedules with fewer brokers, voters, partitions, replicas or changed settings."""
    cluster = schedule.cluster
    for brokers in range(1, cluster.brokers):
        yield _with_copies(schedule, min(cluster.replication_factor, brokers), brokers=brokers)
    for factor in range(1, cluster.replication_factor):
        yield _with_copies(schedule, factor)
    for voters in (1, 3):
        if voters < cluster.voters:
            yield replace(schedule, cluster=replace(cluster, voters=voters))
    for partitions in _below(cluster.partitions, 1):
        yield replace(schedule, cluster=replace(cluster, partitions=partitions))
    for name in ("flush", "unclean_election", "retention_records", "fetch_max_bytes"):
        plain = getattr(_PLAIN_CLUSTER, name)
        if getattr(cluster, name) != plain:
            yield replace(schedule, cluster=_changed(cluster, name, plain))


def _with_copies(schedule: Schedule, factor: int, **more: int) -> Schedule:
    """Return the schedule with so many replicas, of which no more must be in sync."""
    cluster, min_isr = schedule.cluster, min(schedule.cluster.min_isr, factor)
    return replace(
        schedule, cluster=replace(cluster, replication_factor=factor, min_isr=min_isr, **more)
    )


_BROKER = re.compile(r"\bn([1-9]\d*)\b")
_PARTITION = re.compile(r"\blog-(\d+)\b")


def lower_names(schedule: Schedule) -> Iterator[Schedule]:
    """Yield schedules whose faults name brokers numbered from n1 without gaps, or the first
    partition. Only then can brokers and partitions be removed that no fault needs."""
    text = msgspec.json.encode(schedule.faults).decode()
    used = sorted({int(number) for number in _BROKER.findall(text)})
    partitions = sorted({int(number) for number in _PARTITION.findall(text)})
    brokers = {f"n{old}": f"n{new}" for new, old in enumerate(used, start=1)}
    logs = {f"log-{old}": f"log-{new}" for new, old in enumerate(partitions)}
    for names in (brokers, logs):
        if any(old != new for old, new in names.items()):
            yield replace(schedule, faults=renamed(schedule.faults, names))


def plainer_faults(schedule: Schedule) -> Iterator[Schedule]:
    """Yield schedules with one fault earlier, shorter, on fewer links or kinds, or steadier."""
    for index, fault in enumerate(schedule.faults):
        for plainer in _plainer(fault):
            yield _with_fault(schedule, index, plainer)


def _plainer(fault: Fault) -> Iterator[Fault]:
    kind = kind_of(fault)
    yield from kind.as_plainer_kind()
    yield from on_fewer(fault)
    if fault.at_ms is not None:
        for at_ms in _below(fault.at_ms, 0):
            yield _changed(fault, "at_ms", at_ms)
    if fault.after is not None:
        for after in _plainer_triggers(fault.after):
            yield _changed(fault, "after", after)
    if fault.for_ms is not None:
        for for_ms in _below(fault.for_ms, SHORTEST_MS):
            yield _changed(fault, "for_ms", for_ms)
    yield from kind.plainer()


def on_fewer(fault: Fault) -> Iterator[Fault]:
    """Yield a fault that names several nodes in a list with one of them less."""
    for name in ("on", "to"):
        nodes = str(getattr(fault, name, "")).split(",")
        for at in range(len(nodes)) if len(nodes) > 1 else ():
            yield _changed(fault, name, ",".join(nodes[:at] + nodes[at + 1 :]))


def _plainer_triggers(after: After) -> Iterator[After]:
    """Yield sooner triggers with the same fields: one that any event sets off is only a time."""
    if after.since:
        yield replace(after, since="")
    for nth in _below(after.nth, 1):
        yield replace(after, nth=nth)
    for delay_ms in _below(after.delay_ms, 0):
        yield replace(after, delay_ms=delay_ms)


def _below(value: int, least: int) -> tuple[int, ...]:
    """Return values to try below `value`: the least, then ones that halve what is left."""
    found = []
    step = value - least
    while step > 0:
        found.append(value - step)
        step //= 2
    return tuple(dict.fromkeys(found))


def _changed(struct: Any, name: str, value: object) -> Any:
    return replace(struct, **{name: value})


# Where a run costs much: few proposals, each a large step.


def plainer_kinds(schedule: Schedule) -> Iterator[Schedule]:
    """Yield schedules with one fault of a plainer kind, or with one field at its plainest."""
    for index, fault in enumerate(schedule.faults):
        kind = kind_of(fault)
        for plainer in (*kind.as_plainer_kind(), *on_fewer(fault), *kind.plainer()):
            yield _with_fault(schedule, index, plainer)


def rounder_times(schedule: Schedule) -> Iterator[Schedule]:
    """Yield schedules with rounded times, an early first fault, and as long as faults need."""
    faults = [fault for fault in schedule.faults if fault.at_ms is not None]
    if not faults:
        return
    early = min(fault.at_ms or 0 for fault in faults) - FIRST_MS
    for sooner in (max(0, early), 0):
        moved = tuple(_rounded(fault, sooner) for fault in schedule.faults)
        yield _fitting(replace(schedule, faults=moved))


def shorter_faults(schedule: Schedule) -> Iterator[Schedule]:
    """Yield schedules with one fault half as long."""
    for index, fault in enumerate(schedule.faults):
        half = (fault.for_ms or 0) // 2 // GRAIN_MS * GRAIN_MS
        if half:
            yield _fitting(_with_fault(schedule, index, replace(fault, for_ms=half)))


def fewer_clients(schedule: Schedule) -> Iterator[Schedule]:
    """Yield schedules with one partition, without consumers, or with one or three producers."""
    cluster, workload = schedule.cluster, schedule.workload
    if cluster.partitions > 1:
        yield replace(schedule, cluster=replace(cluster, partitions=1))
    if workload.consumers:
        yield replace(schedule, workload=replace(workload, consumers=0))
    for clients in (1, 3):
        if clients < workload.clients:
            yield replace(schedule, workload=replace(workload, clients=clients))


def _with_fault(schedule: Schedule, index: int, fault: Fault) -> Schedule:
    faults = (*schedule.faults[:index], fault, *schedule.faults[index + 1 :])
    return replace(schedule, faults=faults)


def _rounded(fault: Fault, sooner_ms: int) -> Fault:
    if fault.at_ms is None:
        return fault
    at_ms = (fault.at_ms - sooner_ms) // GRAIN_MS * GRAIN_MS
    for_ms = None if fault.for_ms is None else max(100, fault.for_ms // GRAIN_MS * GRAIN_MS)
    return replace(fault, at_ms=max(0, at_ms), for_ms=for_ms)


def _fitting(schedule: Schedule) -> Schedule:
    """Shorten the storm so that it ends as long after its last fault as before."""
    last = max(((f.at_ms or 0) + (f.for_ms or 0) for f in schedule.faults), default=0)
    tail = max(GRAIN_MS, _tail(schedule))
    duration = min(schedule.workload.duration_ms, last + tail)
    return replace(schedule, workload=replace(schedule.workload, duration_ms=duration))


def _tail(schedule: Schedule) -> int:
    """Return a quarter of a failover, as storms are drawn: a session is half of one."""
    return schedule.cluster.timings.session_ms // 2


SIMULATED_PASSES: Final[tuple[Pass, ...]] = (
    lower_names,
    fewer_operations,
    smaller_workloads,
    smaller_clusters,
    plainer_faults,
)
"""The passes after the removal of faults, in this order, for simulated runs, which cost little."""
REAL_PASSES: Final[tuple[Pass, ...]] = (plainer_kinds, rounder_times, shorter_faults, fewer_clients)
"""The passes for runs of real processes, which cost much: few proposals, each a large step."""
