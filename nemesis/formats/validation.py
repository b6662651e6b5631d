"""What no run could carry out: the reasons to refuse a schedule, in words (a leaf)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from nemesis.formats.cluster_spec import After, Cluster, Operation, Send, Workload
from nemesis.formats.faults import (
    Break,
    ElectPreferred,
    ElectUnclean,
    Fault,
    Link,
    Loss,
    PowerCut,
    Reassign,
    Release,
    SetMinIsr,
    Upgrade,
    check_target,
)
from node.formats import trace

MAX_FAULTS: Final = 10_000
MAX_OPERATORS: Final = 100
COMMON_FIELDS: Final = ("event", "node", "incarnation", "partition", "t_us")
"""Fields that trace events carry beside those of `node.formats.trace.FIELDS`."""


def problems(cluster: Cluster, workload: Workload, faults: Sequence[Fault]) -> Iterator[str]:
    """What is wrong, one sentence each. Protocol and bug names are the broker's to know and
    are checked where a run is made."""
    yield from _check_shape(cluster, workload)
    if len(faults) > MAX_FAULTS:
        yield f"{len(faults)} faults, at most {MAX_FAULTS} are allowed"
    for index, operation in enumerate(workload.operations):
        where = f"operation {index} ({operation.__struct_config__.tag})"
        yield from (f"{where}: {wrong}" for wrong in _check_operation(operation, cluster, workload))
    names = [fault.name for fault in faults if fault.name]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"two faults are called '{name}'"
    for index, fault in enumerate(faults):
        where = f"fault {index} ({fault.__struct_config__.tag})"
        yield from (f"{where}: {wrong}" for wrong in _check_fault(fault, cluster, workload))
        if isinstance(fault, Release) and fault.of not in names:
            yield f"{where}: no fault is called '{fault.of}'"


def _check_operation(operation: Operation, cluster: Cluster, workload: Workload) -> list[str]:
    """What is wrong with one client operation."""
    wrong = _check_when(operation)
    first = workload.clients + workload.consumers + 1
    names = [f"c{number}" for number in range(first, first + MAX_OPERATORS)]
    if operation.client not in names:
        wrong.append(f"client '{operation.client}' must be one of its own: {names[0]} or after it")
    elif operation.client not in names[: len(workload.operators())]:
        wrong.append(f"clients are numbered without gaps from {names[0]} on")
    if not isinstance(operation, workload.operators()[operation.client]):
        wrong.append(f"client '{operation.client}' either sends or polls")
    if operation.partition not in cluster.partition_names():
        wrong.append(f"no partition '{operation.partition}'")
    if isinstance(operation, Send) and not (
        1 <= operation.count <= 10_000 and 16 <= operation.payload_bytes <= 100_000
    ):
        wrong.append("count must be 1..10000 and payload_bytes 16..100000")
    return wrong


def _check_fault(fault: Fault, cluster: Cluster, workload: Workload) -> list[str]:
    """What is wrong with one fault."""
    clients = workload.clients + workload.consumers + len(workload.operators())
    wrong = _check_when(fault)
    for field in ("on", "to"):
        target = getattr(fault, field, None)
        if target is not None and (bad := check_target(target, cluster, clients)):
            wrong.append(f"{field}: {bad}")
    for kind in getattr(fault, "kinds", ()):
        if kind not in trace.MESSAGE_KINDS:
            known = ", ".join(trace.MESSAGE_KINDS)
            wrong.append(f"no message of kind '{kind}' (known: {known})")
    if isinstance(fault, Loss | Link) and not 0 < fault.percent <= 100:
        wrong.append("percent must be 1..100")
    if isinstance(fault, Link):
        wrong += _check_link(fault)
    if isinstance(fault, Break):
        wrong += _check_event(fault)
    if isinstance(fault, PowerCut) and not 0 <= (fault.keep_percent or 0) <= 100:
        wrong.append("keep_percent must be 0..100")
    if isinstance(fault, ElectPreferred | ElectUnclean | Reassign | SetMinIsr | Upgrade):
        wrong += _check_change(fault, cluster)
    return wrong


def _check_change(
    fault: ElectPreferred | ElectUnclean | Reassign | SetMinIsr | Upgrade, cluster: Cluster
) -> list[str]:
    """Commands and upgrades that no cluster of this shape could follow, in words."""
    wrong = []
    if fault.for_ms is not None:
        wrong.append("nothing undoes it, so it takes no for_ms")
    partition = getattr(fault, "partition", None)
    if partition is not None and partition not in cluster.partition_names():
        wrong.append(f"no partition '{partition}'")
    if isinstance(fault, Reassign) and fault.replicas not in ("", "rotate"):
        names = fault.replicas.split(",")
        unknown = [name for name in names if name not in cluster.broker_names()]
        wrong += [f"replicas: no broker '{name}' in this cluster" for name in unknown]
        if len(set(names)) < len(names):
            wrong.append("replicas: each is named once")
    first = getattr(fault, "first", "")
    if first and first not in cluster.broker_names():
        wrong.append(f"first: no broker '{first}' in this cluster")
    if isinstance(fault, SetMinIsr) and not 1 <= fault.min_isr <= cluster.replication_factor:
        wrong.append("min_isr must be 1..replication_factor")
    return wrong


def _check_when(what: Fault | Operation) -> list[str]:
    """What is wrong with the times of a fault or an operation."""
    wrong = []
    if (what.at_ms is None) == (what.after is None):
        wrong.append("needs exactly one of at_ms and after")
    if what.after is not None:
        wrong += [f"after: {bad}" for bad in _check_after(what.after)]
    for times in ("at_ms", "for_ms", "delay_ms", "jitter_ms"):
        value = getattr(what, times, None)
        if value is not None and value < 0:
            wrong.append(f"{times} is negative")
    return wrong


def _check_after(after: After) -> list[str]:
    """Triggers that could never come, in words."""
    wrong = _check_event(after)
    if after.delay_ms < 0:
        wrong.append("delay_ms is negative")
    return wrong


def _check_event(wanted: After | Break) -> list[str]:
    """Trace events that could never be matched, in words."""
    if wanted.event not in trace.FIELDS:
        return [f"unknown trace event '{wanted.event}' (known: {', '.join(trace.FIELDS)})"]
    wrong = []
    known = {*COMMON_FIELDS, *trace.FIELDS[wanted.event]}
    if unknown := sorted(wanted.match.keys() - known):
        wrong.append(f"'{wanted.event}' has no field '{unknown[0]}' (it has {sorted(known)})")
    wrong += _check_bounds(wanted.match)
    if wanted.nth < 1:
        wrong.append("nth must be at least 1")
    return wrong


def _check_link(link: Link) -> list[str]:
    """Link rules that could never act, in words."""
    kinds = link.kinds or trace.MESSAGE_KINDS
    known = {field for kind in kinds for field in trace.MESSAGE_FIELDS.get(kind, ())}
    known |= {"kind", "body_bytes"}
    wrong = []
    if unknown := sorted(link.match.keys() - known):
        of = f" of kind {', '.join(link.kinds)}" if link.kinds else ""
        wrong.append(f"match: no message{of} has a field '{unknown[0]}' (known: {sorted(known)})")
    wrong += _check_bounds(link.match)
    if link.limit is not None and link.limit < 1:
        wrong.append("limit must be at least 1")
    if link.action in ("drop", "hold") and (link.delay_ms or link.jitter_ms):
        wrong.append(f"a {link.action} takes no delay_ms or jitter_ms")
    return wrong


def _check_bounds(match: dict[str, Any]) -> list[str]:
    """Conditions of a match that are none, in words."""
    return [
        f"match: {field}: a bound is written at_least or at_most, a condition given"
        for field, value in match.items()
        if isinstance(value, dict) and not (trace.is_bound(value) or trace.is_given(value))
    ]


def _check_shape(cluster: Cluster, workload: Workload) -> list[str]:
    """Impossible sizes of the cluster or the workload, in words."""
    wrong = []
    if not 1 <= cluster.brokers <= 99:
        wrong.append("brokers must be 1..99")
    if cluster.voters not in (1, 3, 5):
        wrong.append("voters must be 1, 3 or 5")
    if not 1 <= cluster.partitions <= 10_000:
        wrong.append("partitions must be 1..10000")
    if not 1 <= cluster.replication_factor <= cluster.brokers:
        wrong.append(
            f"replication_factor {cluster.replication_factor} needs as many brokers, "
            f"there are {cluster.brokers}"
        )
    if not 1 <= cluster.min_isr <= max(1, cluster.replication_factor):
        wrong.append(f"min_isr {cluster.min_isr} must be 1..replication_factor")
    if cluster.flush_interval_ms < 1:
        wrong.append("flush_interval_ms must be positive")
    timings = cluster.timings
    if min(msgspec.structs.astuple(timings)) < 1:
        wrong.append("every timing must be positive")
    if timings.election_min_ms > timings.election_max_ms:
        wrong.append("election_min_ms is above election_max_ms")
    if timings.heartbeat_ms * 2 > timings.session_ms:
        wrong.append("session_ms must be at least two heartbeats")
    if not 0 <= workload.clients <= 1000 or not 0 <= workload.consumers <= 1000:
        wrong.append("clients and consumers must be 0..1000")
    if not 1 <= workload.batch <= 10_000 or not 16 <= workload.payload_bytes <= 100_000:
        wrong.append("batch must be 1..10000 and payload_bytes 16..100000")
    if workload.rate < 0 or workload.in_flight < 1 or workload.timeout_ms < 1:
        wrong.append("rate must be >= 0, in_flight and timeout_ms positive")
    if workload.duration_ms < 1:
        wrong.append("duration_ms must be positive")
    return wrong
