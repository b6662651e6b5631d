"""Availability: while nothing changes, a connected majority goes on within the recovery limit."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from checker.checks.cases import Cases, Examined
from checker.checks.findings import send_witness
from checker.checks.leaders import CommittedChange, changes_of
from checker.checks.registry import Check
from checker.evidence.contents import NEVER
from checker.evidence.facts import Exits, FaultAction, FaultLines, Outcome, PartitionMembers, Sends
from checker.evidence.group import Group
from checker.evidence.needs import Need, missing
from checker.formats.anomalies import LIVENESS
from nemesis.formats.fault_log import FINAL_HEAL, STOPS_A_NODE

_PASSING: Final = (*STOPS_A_NODE, "isolate", "cut", "bridge", "ring")
"""Faults that leave nothing behind but a cluster that has to recover."""
_AT_ONCE: Final = ("restart", "resume")


class SteadyStretch(NamedTuple):
    """A time without a begin or end of faults; they hold or cut off the nodes `out`."""

    start_us: int
    end_us: int
    out: frozenset[str]


AVAILABILITY = Check(LIVENESS, (Need.HISTORY,))


@AVAILABILITY.finds("unavailable")
def unavailable(group: Group) -> Iterator[Cases | Examined]:
    """Find `unavailable`: clients sent to a partition, and it acknowledged nothing for longer than
    the recovery limit, in which no fault began or ended, and those in force stopped whole nodes or
    cut them off. Untouched were a majority of the voters and of the replicas, MinISR replicas, and
    a member of ISR or ELR, if there ever was an ISR."""
    sends, promise = group.of(Sends), group.meta.promise
    sound = promise.silence_deposes and promise.acks != 0 and not missing(group, (Need.TRACES,))
    if not len(sends) or not sound or not (changes := group.memo(changes_of)):
        return
    limit_us = group.meta.recovery_limit_ms * 1000
    acked_us = np.sort(sends.complete_us[sends.outcome == Outcome.OK])
    found: list[tuple[int, int, list[str]]] = []
    for stretch in _stretches(group):
        up = _serving(group, changes, stretch)
        if not up or not len(acked_us):
            continue
        yield Examined(1)
        inside = acked_us[(acked_us > stretch.start_us) & (acked_us < stretch.end_us)].tolist()
        for start_us, end_us in pairwise([stretch.start_us, *inside, stretch.end_us]):
            half_us = start_us + limit_us // 2
            asked = [
                ((sends.invoke_us > begin) & (sends.invoke_us <= begin + limit_us // 2)).any()
                for begin in (start_us, half_us)
            ]
            began = acked_us[0] <= start_us
            if began and end_us - start_us > limit_us and all(asked):
                found.append((start_us, end_us, up))
    rows = [np.flatnonzero((sends.invoke_us > a) & (sends.invoke_us <= b)) for a, b, _ in found]
    first_us, last_us, nodes = found[0] if found else (-1, -1, [])
    yield Cases(
        "{partition} acknowledged nothing for {lasted:.3f} s from {start:when} on, though "
        "{nodes:list} were up and connected.",
        np.concatenate(rows) if rows else (),
        lambda row: [send_witness(sends, row)],
        lambda _: {"lasted": (last_us - first_us) / 1e6, "start": first_us, "nodes": nodes},
        offset=-1,
        t_us=first_us,
    )


def _stretches(group: Group) -> Iterator[SteadyStretch]:
    """Yield the stretches of the storm that are longer than the recovery limit; none after a fault
    of another kind, or after a process ended by itself."""
    lines, exits, phases = group.of(FaultLines), group.of(Exits), group.meta.phases
    scheduled = range(len(group.meta.faults))
    if phases.storm_us <= 0 or {*lines.fault.tolist()} != {FINAL_HEAL, *scheduled}:
        return  # a line of faults.jsonl is missing
    sound_us = int(exits.t_us[~exits.expected].min(initial=phases.heal_us))
    edges, held = {phases.storm_us, sound_us}, list[tuple[int, int, str]]()
    for number in scheduled:
        own = lines.take(lines.fault == number)
        begun = own.take(own.action == FaultAction.INJECT)
        kind = group.meta.faults[number]
        if not len(begun):
            continue
        if kind not in (*_PASSING, *_AT_ONCE):
            sound_us = min(sound_us, int(begun.t_us[0]))
            continue
        healed = own.take((own.action == FaultAction.HEAL) & (own.text == kind))
        edges |= {*own.t_us.tolist(), *own.done_us.tolist()}
        if kind in _PASSING:
            held += _held(begun, healed)
    for start_us, end_us in pairwise(sorted(edges | {sound_us})):
        out = frozenset(node for a, b, node in held if a < end_us and b > start_us)
        limit_us = group.meta.recovery_limit_ms * 1000
        if end_us <= sound_us and end_us - start_us > limit_us and "" not in out:
            yield SteadyStretch(start_us, end_us, out)


def _held(begun: FaultLines, healed: FaultLines) -> Iterator[tuple[int, int, str]]:
    """Yield how long a fault holds each node; "" if it neither stops nor cuts off one."""
    ends = [healed.name(node).split(",") for node in healed.node.tolist()]
    for row, nodes in enumerate(begun.name(node) for node in begun.node.tolist()):
        for node in nodes.split(","):
            done = [int(healed.done_us[at]) for at, own in enumerate(ends) if node in own]
            yield int(begun.t_us[row]), min(done, default=NEVER), node if begun.whole[row] else ""


def _serving(group: Group, changes: list[CommittedChange], stretch: SteadyStretch) -> list[str]:
    """Return the replicas that must serve a partition throughout a stretch, if that is known."""
    voters, out = group.meta.voters, stretch.out
    begun = [change for change in changes if change.t_us <= stretch.start_us]
    inside = [change for change in changes if stretch.start_us < change.t_us <= stretch.end_us]
    left = [node for node in group.replicas if node not in out]
    is_majority = 2 * len(left) > len(group.replicas) and len(left) >= group.meta.min_isr
    if not begun or not is_majority or 2 * len({*voters} - out) <= len(voters):
        return []
    by_votes = not any(change.members.isr for change in changes)

    def may_serve(members: PartitionMembers) -> bool:
        stays = not members.removing and {*members.replicas} == {*group.replicas}
        return stays and (by_votes or bool({*members.isr, *members.elr} & {*left}))

    return left if all(may_serve(c.members) for c in (begun[-1], *inside)) else []
