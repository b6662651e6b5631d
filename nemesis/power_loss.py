"""What the power cuts of a schedule can cost. Pure."""

from __future__ import annotations

from typing import Final

from nemesis.formats.schedule import Cluster, PowerCut, Schedule, SetMinIsr

_ONE: Final = ("leader", "follower", "lagging", "controller", "any")


def outnumber_copies(schedule: Schedule, copies: int | None = None) -> bool:
    """Whether power cuts may take every synced and unsynced copy of an acknowledged write.

    Under flush=sync none is unsynced. Else `copies` brokers must lose their power; unless told
    otherwise min_isr, the lowest that is ever set, for so many have it. A role counts as another
    broker each time.
    """
    cluster = schedule.cluster
    if cluster.flush == "sync":
        return False
    min_isr = min(
        [cluster.min_isr, *(f.min_isr for f in schedule.faults if isinstance(f, SetMinIsr))]
    )
    named: set[str] = set()
    others = 0
    for fault in schedule.faults:
        if isinstance(fault, PowerCut):
            size = _size(fault.on, cluster)
            if size is None:
                named.update(name for name in fault.on.split(",") if name[0] == "n")
            else:
                others += size
    return len(named) + others >= (min_isr if copies is None else copies)


def _size(target: str, cluster: Cluster) -> int | None:
    """How many brokers a role may stand for; None for names."""
    role = target.partition(":")[0]
    if role in _ONE:
        return 1
    match role:
        case "minority":
            return (cluster.brokers - 1) // 2
        case "majority":
            return cluster.brokers // 2 + 1
        case "isr":
            return cluster.replication_factor
        case "all" | "rest":
            return cluster.brokers
        case "voters" | "clients":
            return 0
    return None
