"""The controller's arithmetic: how a partition changes when brokers come and go.

Pure functions from a partition's record and the set of active brokers to its next record, or None
when nothing changes. Every result has partition epoch +1, and leader epoch +1 iff the leader
changed. Source: KIP-966; docs/protocols.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from node.core.image import NO_LEADER, PartitionRecord

IsActive = Callable[[str], bool]


def without(members: Sequence[str], gone: str) -> tuple[str, ...]:
    """`members` less one."""
    return tuple(m for m in members if m != gone)


def effective_min_isr(state: PartitionRecord) -> int:
    """min.insync.replicas, never above the number of replicas."""
    return min(state.min_isr, len(state.replicas))


def _ordered(state: PartitionRecord, members: Sequence[str]) -> tuple[str, ...]:
    """Members in replica order, so that results never depend on how a set was built."""
    return tuple(r for r in state.replicas if r in members)


def with_isr(
    state: PartitionRecord,
    isr: Sequence[str],
    *,
    elr: bool = True,
    keeps_elr: bool = False,
    unclean_gone: str | None = None,
) -> PartitionRecord:
    """The record with another ISR: those removed while below MinISR become eligible (ELR).

    `unclean_gone` lost data: it leaves ISR and ELR for the last-known ELR. Leader and epochs are
    not touched here.
    """
    removed = [m for m in state.isr if m not in isr and m != unclean_gone]
    if not elr or (len(isr) >= effective_min_isr(state) and not keeps_elr):
        return replace(state, isr=_ordered(state, isr), elr=(), last_known_elr=())
    eligible = [m for m in (*state.elr, *removed) if m not in isr and m != unclean_gone]
    left_elr = [m for m in (*state.elr, *state.isr) if m == unclean_gone]
    return replace(
        state,
        isr=_ordered(state, isr),
        elr=_ordered(state, eligible),
        last_known_elr=_ordered(state, [*state.last_known_elr, *left_elr]),
    )


@dataclass(frozen=True, slots=True)
class Rules:
    """What elections go by: whether there is an ELR, whether a replica outside ISR and ELR may
    lead when nobody else can (`unclean`), and the bugs M22 (`any_replica`), M25 (`keeps_elr`)."""

    elr: bool = True
    unclean: bool = False
    any_replica: bool = False
    keeps_elr: bool = False


def elect(state: PartitionRecord, is_active: IsActive, rules: Rules) -> PartitionRecord:
    """Keep a valid leader, else the first active ISR member, else an active ELR member, else none.

    An ELR member leads alone: election from the ELR requires an empty ISR. Leader epoch is not
    touched here.
    """
    if rules.any_replica:
        return _first_active(state, is_active, rules)
    if state.leader in state.isr and is_active(state.leader):
        return state
    state = replace(state, unclean=False)
    for candidate in state.replicas:
        if candidate in state.isr and is_active(candidate):
            return replace(state, leader=candidate)
    if not state.isr:
        for candidate in state.replicas:
            if candidate in state.elr and is_active(candidate):
                return replace(
                    state, leader=candidate, isr=(candidate,), elr=without(state.elr, candidate)
                )
    last = next((r for r in state.replicas if is_active(r)), None) if rules.unclean else None
    if last is None:
        return replace(state, leader=NO_LEADER)
    return replace(state, leader=last, isr=(last,), elr=(), last_known_elr=(), unclean=True)


def _first_active(
    state: PartitionRecord, is_active: IsActive, rules: Rules
) -> PartitionRecord:
    """Bug M22: the preferred replica leads whenever it is alive, whatever it missed."""
    first = next((r for r in state.replicas if is_active(r)), NO_LEADER)
    isr = state.isr if first in (*state.isr, NO_LEADER) else (first,)
    return replace(with_isr(state, isr, elr=rules.elr), leader=first)


def _next(before: PartitionRecord, after: PartitionRecord) -> PartitionRecord | None:
    """Give `after` its epochs; None if it says what `before` said."""
    after = replace(
        after,
        leader_epoch=before.leader_epoch + (after.leader != before.leader),
        partition_epoch=before.partition_epoch,
    )
    if after == before:
        return None
    assert not set(after.isr) & set(after.elr), after
    assert set(after.isr) | set(after.elr) <= set(after.replicas), after
    return replace(after, partition_epoch=before.partition_epoch + 1)


def broker_left(
    state: PartitionRecord,
    broker: str,
    is_active: IsActive,
    rules: Rules,
    *,
    lost_data: bool = False,
) -> PartitionRecord | None:
    """`broker` was fenced, is shutting down, or (`lost_data`) came back without what it had.

    Without ELR the last member never leaves the ISR: it alone may lead again (before KIP-966).
    """
    isr = without(state.isr, broker)
    if not rules.elr and not isr:
        isr = state.isr
    after = with_isr(
        state, isr, elr=rules.elr, keeps_elr=rules.keeps_elr,
        unclean_gone=broker if lost_data else None,
    )  # fmt: skip

    def still_active(name: str) -> bool:
        return name != broker and is_active(name)

    return _next(state, elect(after, still_active, rules))


def broker_came(
    state: PartitionRecord, is_active: IsActive, rules: Rules
) -> PartitionRecord | None:
    """Some broker became active: a partition without a leader may find one."""
    if state.leader != NO_LEADER and not rules.any_replica:
        return None
    return _next(state, elect(state, is_active, rules))


def leader_reported(
    state: PartitionRecord, is_active: IsActive, leads: Mapping[str, int]
) -> PartitionRecord | None:
    """The followers of `state.leader` say that it failed: another member of the ISR leads.

    Of the active ones the one that leads the fewest partitions (`leads`), the first in replica
    order of these. The old leader stays in the ISR until it lags. None if there is nobody else:
    the partition waits for its leader. Liftbridge.
    """
    candidates = [m for m in state.replicas if m in state.isr and m != state.leader]
    able = [m for m in candidates if is_active(m)]
    if not able:
        return None
    return _next(state, replace(state, leader=min(able, key=lambda m: leads.get(m, 0))))


def isr_accepted(
    state: PartitionRecord, isr: Sequence[str], rules: Rules
) -> PartitionRecord:
    """The leader's proposal was accepted: partition epoch +1 even when it repeats the ISR."""
    after = with_isr(state, isr, elr=rules.elr, keeps_elr=rules.keeps_elr)
    return replace(after, partition_epoch=state.partition_epoch + 1)


def isr_refused(state: PartitionRecord) -> PartitionRecord:
    """The leader's proposal was refused for good: the same state under a new partition epoch.

    A refusal must be final, or a delayed copy of the same request could be accepted after the
    leader has gone back to the smaller ISR. The burnt partition epoch makes every copy stale.
    """
    return replace(state, partition_epoch=state.partition_epoch + 1)
