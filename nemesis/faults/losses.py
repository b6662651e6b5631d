"""The losses that a schedule's faults may cause on disks, and which protocols survive them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from nemesis.faults.admin import ROTATE, Reassign, SetMinIsr
from nemesis.faults.kind import Loss, kind_of
from nemesis.faults.syscalls import Syscall
from nemesis.formats.schedule import Cluster, Schedule

_ONE: Final = (
    *("leader", "follower", "another-follower", "lagging", "controller", "any", "spare", "former"),
)


def outnumber_copies(schedule: Schedule, copies: int | None = None) -> bool:
    """Return whether power cuts may take every copy of an acknowledged write. With synced writes
    (flush "sync") they take none. Else `copies` brokers must lose their power; if it is None,
    min_isr (the lowest that is ever set), because so many brokers have the write. A role counts as
    another broker each time."""
    if schedule.cluster.flush == "sync":
        return False
    hit = _hit(schedule, {"unsynced"}, "n")
    return hit >= (_lowest_min_isr(schedule) if copies is None else copies)


def may_lose_synced(schedule: Schedule, copies: int | None = None) -> bool:
    """Return whether disks may lose so much of their synced data that an acknowledged write, or a
    whole partition, is lost.

    That takes one of: `copies` brokers whose disks lose data and notice (None: min_isr, as in
    `outnumber_copies`; under flush "async" power cuts count too); a majority less one of the voters
    with such disks; or one disk that loses data without a sign of it, for example by a power cut
    after syncs that strace confirmed and did not make."""
    if _hit(schedule, {"unnoticed"}, "nv"):
        return True
    lies = any(isinstance(fault, Syscall) and fault.action == "lie" for fault in schedule.faults)
    if lies and _hit(schedule, {"unsynced"}, "nv"):
        return True
    noticed: tuple[Loss, ...] = ("noticed",)
    brokers = _hit(schedule, noticed, "n")
    if brokers and schedule.cluster.flush == "async":
        brokers = _hit(schedule, (*noticed, "unsynced"), "n")
    if brokers >= (_lowest_min_isr(schedule) if copies is None else copies):
        return True
    return _hit(schedule, noticed, "v") > max(0, schedule.cluster.voters - 1) // 2


def _lowest_min_isr(schedule: Schedule) -> int:
    """Return on how many brokers an acknowledged write is at least. MinISR never counts more
    replicas than there are, so a move to fewer lowers it."""
    sizes = [schedule.cluster.min_isr]
    for fault in schedule.faults:
        if isinstance(fault, SetMinIsr):
            sizes.append(fault.min_isr)
        elif isinstance(fault, Reassign) and fault.replicas not in ("", ROTATE):
            sizes.append(len(fault.replicas.split(",")))
    return min(sizes)


def _hit(schedule: Schedule, losses: Collection[Loss], nodes: str) -> int:
    """Return how many nodes (brokers "n", voters "v") may lose something in one of these ways."""
    named: set[str] = set()
    others = 0
    for fault in schedule.faults:
        kind = kind_of(fault)
        on = getattr(kind, "on", "")
        if kind.may_lose() in losses and on:
            size = _size(on, schedule.cluster, nodes)
            if size is None:
                named.update(name for name in on.split(",") if name[0] in nodes)
            else:
                others += size
    return len(named) + others


def _size(role: str, cluster: Cluster, nodes: str) -> int | None:
    """Return how many of these nodes a role may stand for; None if it is a list of names."""
    role = role.partition(":")[0]
    voters = {"controller": 1, "voters": cluster.voters}
    brokers = {
        **dict.fromkeys(_ONE, 1),
        "minority": (cluster.brokers - 1) // 2,
        "majority": cluster.brokers // 2 + 1,
        "isr": cluster.replication_factor,
        "followers": cluster.replication_factor - 1,
        "all": cluster.brokers,
        "rest": cluster.brokers,
    }
    if role not in voters and role not in brokers and role != "clients":
        return None
    found = 0
    if "n" in nodes:
        found += brokers.get(role, 0)
    if "v" in nodes:
        found += voters.get(role, 0)
    return found
