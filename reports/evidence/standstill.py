"""Faults that hit nothing, as another had stopped their node before; and clusters that acknowledged
nothing although a majority of the nodes was up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from harness.formats.process_exits import Exit
from harness.formats.run_info import RunInfo
from reports import wording
from reports.evidence.faults import Executed
from reports.evidence.operations import AckGap


class Idle(NamedTuple):
    """The nodes that were up and reachable from `start_us` to `end_us`, without an
    acknowledgement."""

    nodes: tuple[str, ...]
    start_us: int
    end_us: int

    @property
    def length_us(self) -> int:
        """The duration."""
        return self.end_us - self.start_us


def in_vain(faults: Sequence[Executed], bypassed: Sequence[str] = ()) -> list[str]:
    """Return a clause for each fault that was refused, and for each that stopped a node which an
    earlier fault had stopped and not yet released; the first clause names a connection between
    nodes that the faults on links did not touch, if some are `bypassed`."""
    found = []
    if bypassed and any(fault.status == "done" and fault.links for fault in faults):
        more = f" (and {len(bypassed) - 1} more)" if bypassed[1:] else ""
        found.append(f"faults on links did not touch every connection: {bypassed[0]}{more}")
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
    """Return the longest part of a time without acknowledgements in which a majority of the brokers
    (and of the voters) was up and reachable, if it is longer than a failover of the system.

    A node counts as held from the begin of a fault on it until a failover after its end. No node
    counts as reachable while a fault on links lasts, nor one that ended by itself."""
    failover_us = info.failover_ms * 1000
    held = [*_held(faults, failover_us, gap.end_us)]
    held += ((x.t_us, gap.end_us, (x.node,)) for x in exits if not x.expected)
    ends = {time for start, end, _ in held for time in (start, end)}
    times = sorted({gap.start_us, gap.end_us, *(t for t in ends if gap.start_us < t < gap.end_us)})
    nobody = longest = now = Idle((), 0, 0)
    for start, end in pairwise(times):
        out = {n for a, b, nodes in held if a < end and b > start for n in nodes}
        up = tuple(node for node in info.brokers if node not in out)
        if out & {""} or not (_is_majority(up, info.brokers) and _has_quorum(info, out)):
            now = nobody
            continue
        both = tuple(node for node in now.nodes if node in up)
        goes_on = _is_majority(both, info.brokers)
        now = Idle(both, now.start_us, end) if goes_on else Idle(up, start, end)
        longest = max(longest, now, key=lambda idle: idle.length_us)
    return longest if 0 < failover_us < longest.length_us else None


def _stops(fault: Executed) -> bool:
    return fault.status == "done" and (fault.ends_process or fault.what == "pause")


def _held(
    faults: Sequence[Executed], failover_us: int, last_us: int
) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """Yield from when to when each fault held which nodes; the node "" stands for any."""
    for fault in faults:
        if fault.status == "done":
            end = fault.end_us + failover_us if fault.healed or not fault.lasts else last_us
            yield fault.start_us, end, fault.nodes if fault.on_process else ("",)


def _is_majority(nodes: Sequence[str], group: Sequence[str]) -> bool:
    return 2 * len(nodes) > len(group)


def _has_quorum(info: RunInfo, out: set[str]) -> bool:
    """Return whether a majority of the voters, if there are any, is not out."""
    left = [node for node in info.voters if node not in out]
    return not info.voters or _is_majority(left, info.voters)
