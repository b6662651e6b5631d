"""Faults that hit nothing, as another had stopped their node before; and clusters that acknowledged
nothing although a majority of the nodes was up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from harness.formats.process_exits import Exit
from harness.formats.run_info import RunInfo
from reports import wording
from reports.evidence.faults import Executed
from reports.evidence.operations import AckGap


class Idle(NamedTuple):
    """The nodes up and reachable from `start_us` to `end_us`, without an acknowledgement."""

    nodes: tuple[str, ...]
    start_us: int
    end_us: int


def in_vain(faults: Sequence[Executed]) -> list[str]:
    """Return a clause for each fault that was refused, and for each that stopped a node which an
    earlier fault had stopped and not yet released."""
    found = []
    for fault in faults:
        if fault.status == "skipped" and fault.detail:
            found.append(f"{fault.what} skipped: {fault.detail}")
        for other in faults if _stops(fault) else ():
            both = set(fault.nodes) & set(other.nodes)
            if both and _stops(other) and other.start_us < fault.start_us < other.end_us:
                found.append(f"{fault.what} hit {wording.listing(both)} during a {other.what}")
    return found


def idle_majority(
    gap: AckGap, info: RunInfo, faults: Sequence[Executed], exits: Sequence[Exit]
) -> Idle | None:
    """Return the time without acknowledgements, or the part of it after the last fault, if it is
    longer than a failover and a majority of the brokers (and of the voters) was up and reachable.
    A node is not while a fault is on it and a failover long after, none while a fault is on links,
    and one that ended by itself is down from then on."""
    failover_us, end_us = info.failover_ms * 1000, gap.end_us
    held: list[tuple[int, int, tuple[str, ...]]] = []
    held += ((x.t_us, end_us, (x.node,)) for x in exits if not x.expected)
    for fault in (f for f in faults if f.status == "done"):
        until_us = fault.end_us + failover_us if fault.healed or not fault.kind.lasts else end_us
        held.append(
            (fault.start_us, until_us, fault.nodes if fault.kind.on_processes else _every(info))
        )
    ends = [until_us for _, until_us, _ in held if gap.start_us < until_us < end_us]
    for start_us in (gap.start_us, max(ends, default=end_us)):
        now = [nodes for a, b, nodes in held if a < end_us and b > start_us]
        left = [n for n in _every(info) if not any(n in nodes for nodes in now)]
        up = tuple(node for node in info.brokers if node in left)
        is_quorum = all(
            2 * sum(n in left for n in group) > len(group)
            for group in (info.brokers, info.voters)
            if group
        )
        if up and is_quorum and 0 < failover_us < end_us - start_us:
            return Idle(up, start_us, end_us)
    return None


def _stops(fault: Executed) -> bool:
    return fault.status == "done" and (fault.kind.ends_process or fault.what == "pause")


def _every(info: RunInfo) -> tuple[str, ...]:
    return (*info.brokers, *info.voters)
