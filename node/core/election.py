"""The controller's arithmetic: how a partition changes when brokers come and go.

Pure functions from a partition's record, a test whether a broker is active, and the rules, to the
partition's next record, or None if nothing changes. Every result has partition epoch +1, and leader
epoch +1 iff the leader changed, a replica was dropped or a reassignment is complete. A reassignment
first adds the new replicas, which enter the ISR like all others; the change that completes it drops
the old ones. Sources: KIP-966, KIP-455; docs/protocols.md.

Terms: an eligible leader replica (ELR) has left the ISR while that was below MinISR, and still has
every committed record. The last-known ELR are members that left the ELR because they may have lost
data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as rules_replace

from msgspec.structs import replace

from node.core.image import NO_LEADER, PartitionRecord

IsActive = Callable[[str], bool]


def without(members: Sequence[str], gone: str) -> tuple[str, ...]:
    """Return `members` in their order, without `gone`."""
    return tuple(m for m in members if m != gone)


def effective_min_isr(state: PartitionRecord) -> int:
    """Return min.insync.replicas, but at most the number of replicas."""
    return min(state.min_isr, len(state.replicas))


def _ordered(state: PartitionRecord, members: Sequence[str]) -> tuple[str, ...]:
    """Return the members in replica order, so that results never depend on how a set was built."""
    return tuple(r for r in state.replicas if r in members)


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of elections. `elr`: eligible leader replicas are kept; `unclean`: a replica
    outside ISR and ELR may lead if no other can. The rest are bugs that are on: M22
    (`any_replica`), M24 (`drops_first`) and M25 (`keeps_elr`)."""

    elr: bool = True
    unclean: bool = False
    any_replica: bool = False
    drops_first: bool = False
    keeps_elr: bool = False


def with_isr(
    state: PartitionRecord, isr: Sequence[str], rules: Rules, *, unclean_gone: str | None = None
) -> PartitionRecord:
    """Return the record with `isr` as its ISR: replicas that leave it below MinISR enter the ELR.
    `unclean_gone` is a replica that lost data: it leaves ISR and ELR for the last-known ELR. Leader
    and epochs stay as they are."""
    removed = [m for m in state.isr if m not in isr and m != unclean_gone]
    if not rules.elr or (len(isr) >= effective_min_isr(state) and not rules.keeps_elr):
        return replace(state, isr=_ordered(state, isr), elr=(), last_known_elr=())
    eligible = [m for m in (*state.elr, *removed) if m not in isr and m != unclean_gone]
    left_elr = [m for m in (*state.elr, *state.isr) if m == unclean_gone]
    return replace(
        state,
        isr=_ordered(state, isr),
        elr=_ordered(state, eligible),
        last_known_elr=_ordered(state, [*state.last_known_elr, *left_elr]),
    )


def elect(state: PartitionRecord, is_active: IsActive, rules: Rules) -> PartitionRecord:
    """Return the record with its leader kept if that may lead, else led by the first active ISR
    member, else by an active ELR member, else by none (with `rules.unclean`, any active replica).
    An ELR member leads alone, because the ISR is empty then. The leader epoch stays as it is."""
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
                return replace(with_isr(state, (candidate,), rules), leader=candidate)
    last = next((r for r in state.replicas if is_active(r)), None) if rules.unclean else None
    if last is None:
        return replace(state, leader=NO_LEADER)
    return _leads_unclean(state, last, rules)


def _leads_unclean(state: PartitionRecord, name: str, rules: Rules) -> PartitionRecord:
    """Return the record led by `name` alone, from outside ISR and ELR; the ELR becomes last-known
    ELR."""
    known = (*state.last_known_elr, *state.elr)
    before = replace(state, isr=(), elr=(), last_known_elr=_ordered(state, known))
    return replace(with_isr(before, (name,), rules), leader=name, unclean=True)


def _completed(state: PartitionRecord, is_active: IsActive, rules: Rules) -> PartitionRecord | None:
    """Return the record with its reassignment completed, None if that is not possible yet. All
    added replicas must be in the final ISR, which must have MinISR members (before KIP-966: one).
    The removed ones leave with the same record, leadership included."""
    if not state.target:
        return None
    final = [m for m in state.isr if m in state.target]
    missing = [m for m in state.adding if m in state.target and m not in final]
    enough = min(state.min_isr, len(state.target)) if rules.elr else 1
    if rules.drops_first:
        final = list(state.target)
    elif missing or len(final) < enough:
        return None
    after = replace(state, replicas=state.target, target=(), adding=(), removing=())
    return elect(with_isr(after, final, rules), is_active, rules)


def _first_active(state: PartitionRecord, is_active: IsActive, rules: Rules) -> PartitionRecord:
    """Return the record led by the first active replica, even if it lacks committed records (bug
    M22)."""
    first = next((r for r in state.replicas if is_active(r)), NO_LEADER)
    isr = state.isr if first == NO_LEADER or first in state.isr else (first,)
    return replace(with_isr(state, isr, rules), leader=first)


def successor(
    before: PartitionRecord, after: PartitionRecord, is_active: IsActive, rules: Rules
) -> PartitionRecord | None:
    """Return the record to write after `before`: `after` with its new epochs, and with its
    reassignment completed if that is possible; None if nothing changes. A dropped replica may be
    added again with an empty log. The new leader epoch makes fetches that it sent with its former
    log invalid."""
    done = _completed(after, is_active, rules)
    after = after if done is None else done
    dropped = not set(before.replicas) <= set(after.replicas)
    new_epoch = done is not None or dropped or after.leader != before.leader
    after = replace(
        after, leader_epoch=before.leader_epoch + new_epoch, partition_epoch=before.partition_epoch
    )
    if after == before:
        return None
    known = {*after.isr, *after.elr, *after.last_known_elr}
    assert not set(after.isr) & set(after.elr), after
    assert known <= set(after.replicas), after
    return replace(after, partition_epoch=before.partition_epoch + 1)


def broker_left(
    state: PartitionRecord,
    broker: str,
    is_active: IsActive,
    rules: Rules,
    *,
    lost_data: bool = False,
) -> PartitionRecord | None:
    """Return the record after `broker` was fenced, is shutting down, or (`lost_data`) came back
    without data that it had. Without ELR the last member never leaves the ISR: it alone may lead
    again (before KIP-966)."""
    isr = without(state.isr, broker)
    if not rules.elr and not isr:
        isr = state.isr
    after = with_isr(state, isr, rules, unclean_gone=broker if lost_data else None)

    def still_active(name: str) -> bool:
        return name != broker and is_active(name)

    return successor(state, elect(after, still_active, rules), still_active, rules)


def broker_came(
    state: PartitionRecord, is_active: IsActive, rules: Rules
) -> PartitionRecord | None:
    """Return the record after a broker became active: a partition without a leader may get one."""
    if state.leader != NO_LEADER and not rules.any_replica:
        return None
    return successor(state, elect(state, is_active, rules), is_active, rules)


def leader_reported(
    state: PartitionRecord, is_active: IsActive, leads: Mapping[str, int], rules: Rules
) -> PartitionRecord | None:
    """Return the record in which another member of the ISR replaces a leader that does not answer;
    None if no other is active, and the partition waits for its leader. Of the active members, the
    one that leads the fewest partitions (`leads`) is elected; of equals the first in replica order.
    The old leader stays in the ISR until it lags. Source: Liftbridge."""
    candidates = [m for m in state.replicas if m in state.isr and m != state.leader]
    able = [m for m in candidates if is_active(m)]
    if not able:
        return None
    elected = replace(state, leader=min(able, key=lambda m: leads.get(m, 0)))
    return successor(state, elected, is_active, rules)


def isr_accepted(
    state: PartitionRecord, isr: Sequence[str], is_active: IsActive, rules: Rules
) -> PartitionRecord:
    """Return the record with the ISR that its leader proposed: partition epoch +1 even if the ISR
    is the same. A leader from outside ISR and ELR is confirmed by its first proposal."""
    proposed = with_isr(state, isr, rules)
    after = replace(proposed, unclean=False)
    changed = successor(state, after, is_active, rules)
    return changed or replace(after, partition_epoch=state.partition_epoch + 1)


def isr_refused(state: PartitionRecord) -> PartitionRecord:
    """Return the record after a proposed ISR is refused: only its partition epoch is new. A delayed
    copy of the proposal could otherwise be accepted after the leader has gone back to the smaller
    ISR. The new partition epoch makes every copy stale."""
    return replace(state, partition_epoch=state.partition_epoch + 1)


def preferred(
    state: PartitionRecord, first: str, is_active: IsActive, rules: Rules
) -> PartitionRecord | None:
    """Return the record led by its ISR member `first`, which then is the preferred replica."""
    assert first in state.isr, state
    assert is_active(first), state
    replicas = (first, *without(state.replicas, first))
    return successor(state, replace(state, replicas=replicas, leader=first), is_active, rules)


def unclean(state: PartitionRecord, is_active: IsActive, rules: Rules) -> PartitionRecord | None:
    """Return the record in which an active replica leads a partition that has no leader: a member
    of the ELR if one is active, else the first in replica order, whatever its log has."""
    assert state.leader == NO_LEADER, state
    elected = elect(state, is_active, rules_replace(rules, unclean=True))
    return successor(state, elected, is_active, rules)


def recovered(
    state: PartitionRecord, best: str, is_active: IsActive, rules: Rules
) -> PartitionRecord | None:
    """Return the record led by `best`, the member of the last-known ELR with the longest log
    (KIP-966)."""
    assert best in state.last_known_elr, state
    assert not {*state.isr, *state.elr}, state
    return successor(state, _leads_unclean(state, best, rules), is_active, rules)


def min_isr_set(
    state: PartitionRecord, min_isr: int, is_active: IsActive, rules: Rules
) -> PartitionRecord | None:
    """Return the record with another min.insync.replicas. The members of its ELR were chosen by the
    old one, so they move to the last-known ELR (KIP-966). They stay if the ISR is empty: without a
    leader the high watermark does not move, and no replica would be left to elect."""
    after = replace(state, min_isr=min_isr)
    if state.isr:
        known = _ordered(state, (*state.last_known_elr, *state.elr))
        after = with_isr(replace(after, elr=(), last_known_elr=known), state.isr, rules)
    return successor(state, after, is_active, rules)


# -- reassignment ---------------------------------------------------------------------------------


def replicas_before_move(state: PartitionRecord) -> tuple[str, ...]:
    """Return the replicas from before the reassignment under way, in order."""
    return tuple(r for r in state.replicas if r not in state.adding)


def reassign(
    state: PartitionRecord, target: Sequence[str], is_active: IsActive, rules: Rules
) -> PartitionRecord | None:
    """Return the record with a reassignment to `target` begun, in place of one under way; None if
    the partition is on `target` already, or on its way there. A replica that only the earlier
    reassignment wanted is `adding` and `removing` at once: it leaves when the new one is completed
    or cancelled."""
    assert len(set(target)) == len(target) > 0, target
    if tuple(target) == (state.target or state.replicas):
        return None
    before = replicas_before_move(state)
    replicas = (*state.replicas, *(r for r in target if r not in state.replicas))
    after = replace(
        state,
        replicas=replicas,
        target=tuple(target),
        adding=tuple(r for r in replicas if r not in before),
        removing=tuple(r for r in replicas if r not in target),
    )
    return successor(state, after, is_active, rules)


def why_not_cancelled(state: PartitionRecord, rules: Rules) -> str:
    """Return why a reassignment cannot be cancelled (too few old replicas are in sync), "" if it
    can."""
    back = replace(state, replicas=replicas_before_move(state))
    in_sync = [m for m in state.isr if m in back.replicas]
    needed = effective_min_isr(back) if rules.elr else 1
    if rules.unclean or len(in_sync) >= needed:
        return ""
    return (
        f"{state.partition} cannot go back to {' '.join(back.replicas)}: "
        f"{len(in_sync)} of them in sync, {needed} needed; wait until they are"
    )


def cancel_reassignment(
    state: PartitionRecord, is_active: IsActive, rules: Rules
) -> PartitionRecord | None:
    """Return the record with its replicas from before the reassignment; None if none is under
    way."""
    if not state.target:
        return None
    assert not why_not_cancelled(state, rules), state
    replicas = replicas_before_move(state)
    back = replace(state, replicas=replicas, target=(), adding=(), removing=())
    after = with_isr(back, [m for m in state.isr if m in replicas], rules)
    return successor(state, elect(after, is_active, rules), is_active, rules)
