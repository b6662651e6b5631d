"""How a partition moves to other replicas: begun, replaced by another move, cancelled.

Pure functions like those of `election.py`, where a move is completed. A move first adds the new
replicas, which have to enter the ISR like everybody; the old ones leave when it is complete.
Source: KIP-455, KIP-966; docs/protocols.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from node.core.election import IsActive, Rules, effective_min_isr, elect, successor, with_isr
from node.core.image import PartitionRecord


def original(state: PartitionRecord) -> tuple[str, ...]:
    """The replicas as they were before the move that is under way, in order."""
    return tuple(r for r in state.replicas if r not in state.adding)


def begin(
    state: PartitionRecord, target: Sequence[str], is_active: IsActive, rules: Rules
) -> PartitionRecord | None:
    """Move to `target`, instead of wherever a move under way leads to.

    A replica that only that move wanted is `adding` and `removing` at once: it goes whether the
    new one is completed or cancelled. None if the partition is there, or on its way there, already.
    """
    assert len(set(target)) == len(target) > 0, target
    if tuple(target) == (state.target or state.replicas):
        return None
    before = original(state)
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
    """Why the old replicas cannot go on alone, "" if they can: too few of them are in sync."""
    back = replace(state, replicas=original(state))
    in_sync = [m for m in state.isr if m in back.replicas]
    needed = effective_min_isr(back) if rules.elr else 1
    if rules.unclean or len(in_sync) >= needed:
        return ""
    return (
        f"{state.partition} cannot go back to {' '.join(back.replicas)}: "
        f"{len(in_sync)} of them in sync, {needed} needed"
    )


def cancel(state: PartitionRecord, is_active: IsActive, rules: Rules) -> PartitionRecord | None:
    """Back to the replicas before the move; None if there is no move."""
    if not state.target:
        return None
    assert not why_not_cancelled(state, rules), state
    replicas = original(state)
    back = replace(state, replicas=replicas, target=(), adding=(), removing=())
    after = with_isr(back, [m for m in state.isr if m in replicas], rules)
    return successor(state, elect(after, is_active, rules), is_active, rules)
