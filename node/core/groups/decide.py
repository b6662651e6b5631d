"""The decisions of a coordinator: from a state and a request to records and an answer.

The functions read a state and never write it. Epochs and their order follow KIP-848: a change of
members raises the epoch of the group and deals a new target; a member moves to that epoch when it
has given up all that the target takes from it; a partition goes to its new owner only when no other
member owns it. A commit is accepted from the owner alone, at an epoch between the one in which the
partition was given to it and its present one (KIP-1251)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from node.core.bugs import Bugs
from node.core.groups.state import (
    GROUP,
    MEMBER,
    POSITION,
    CommittedPosition,
    CoordinatorState,
    GroupTarget,
    MemberState,
    StateRecord,
)
from node.formats.messages import (
    Error,
    GroupHeartbeat,
    GroupRequest,
    GroupResponse,
    OffsetCommit,
    OffsetFetch,
)
from node.formats.wire_bounds import MAX_GROUP_PARTITIONS

JOINS: Final = 0
LEAVES: Final = -1
"""Epochs of heartbeats that ask for something else than to go on (KIP-848)."""
MAX_VALUES: Final = 20_000
"""Values that a coordinator keeps: no member joins when there are more."""
FORGOTTEN: Final = -1
"""The epoch of an owner whose entry the bug `forget_partition_owner` has lost."""


class Decided(NamedTuple):
    """The outcome of one request: records to append as one batch, and the answer to send when they
    are committed."""

    records: list[StateRecord]
    answer: GroupResponse


def decide(state: CoordinatorState, bugs: Bugs, request: GroupRequest) -> Decided:
    """Decide a request of a member."""
    if isinstance(request, OffsetCommit):
        return _commit(state, bugs, request)
    if isinstance(request, OffsetFetch):
        return _fetch(state, request)
    if request.epoch == LEAVES:
        gone = remove(state, bugs, request.group, [request.member])
        return Decided(gone, GroupResponse(corr=request.corr, epoch=LEAVES))
    return _heartbeat(state, bugs, request)


def remove(
    state: CoordinatorState, bugs: Bugs, group: str, names: Collection[str]
) -> list[StateRecord]:
    """Return the records that remove members which left, or whose sessions are over."""
    members = state.members(group)
    gone = [name for name in names if name in members]
    if not gone:
        return []
    left = {name: member for name, member in members.items() if name not in gone}
    records = [StateRecord((MEMBER, group, name), None) for name in gone]
    if bugs.expire_live_positions:
        lost = [partition for name in gone for partition in members[name].owned]
        records += [StateRecord((POSITION, group, partition), None) for partition in lost]
    return [*records, *_dealt(state, bugs, group, left)[0]]


def _dealt(
    state: CoordinatorState, bugs: Bugs, group: str, members: Mapping[str, MemberState]
) -> tuple[list[StateRecord], GroupTarget]:
    """Return the records of a new target for these members, and the target."""
    old = state.group(group)
    new = GroupTarget(epoch=old.epoch + 1, target=deal(members, old.target))
    records = [StateRecord((GROUP, group), new)]
    for name, member in members.items() if bugs.forget_partition_owner else ():
        back = {*member.owned} & {*new.target[name]} - {*old.target.get(name, ())}
        if back:
            owned = member.owned | dict.fromkeys(sorted(back), FORGOTTEN)
            records.append(StateRecord((MEMBER, group, name), replace(member, owned=owned)))
    return records, new


def deal(
    members: Mapping[str, MemberState], before: Mapping[str, tuple[str, ...]]
) -> dict[str, tuple[str, ...]]:
    """Return which partitions each member shall own: as many each as possible, and of those that it
    had `before` as many as its share allows."""
    wants = {name: frozenset(member.subscribed) for name, member in sorted(members.items())}
    partitions = sorted(frozenset().union(*wants.values()))
    least, more = divmod(len(partitions), max(1, len(members)))
    dealt: dict[str, list[str]] = {}
    for name, wanted in wants.items():
        kept = [p for p in before.get(name, ()) if p in wanted][: least + (more > 0)]
        more -= len(kept) > least
        dealt[name] = kept
    taken = {partition for mine in dealt.values() for partition in mine}
    for partition in (p for p in partitions if p not in taken):
        ready = [name for name, wanted in wants.items() if partition in wanted]
        dealt[min(ready, key=lambda name: (len(dealt[name]), name))].append(partition)
    return {name: tuple(mine) for name, mine in dealt.items()}


def _heartbeat(state: CoordinatorState, bugs: Bugs, request: GroupHeartbeat) -> Decided:
    """Let a member join, or go on with what it says to own."""
    group, name = request.group, request.member
    target, members = state.group(group), state.members(group)
    known, records = members.get(name), list[StateRecord]()
    says: Collection[str] = request.owned
    if request.epoch == JOINS:
        wanted = {p for each in members.values() for p in each.subscribed} | {*request.subscribed}
        if len(state.values) >= MAX_VALUES or len(wanted) > MAX_GROUP_PARTITIONS:
            return _refused(request, Error.OVERLOADED)
        # It says that it owns nothing, whatever it owned before.
        joined = MemberState(epoch=target.epoch, subscribed=request.subscribed)
        members = dict(sorted({**members, name: joined}.items()))
        records, target = _dealt(state, bugs, group, members)
    elif known is None:
        return _refused(request, Error.UNKNOWN_MEMBER)
    elif request.epoch not in (known.epoch, known.previous):
        return _refused(request, Error.FENCED_MEMBER_EPOCH)
    elif request.group_epoch != target.epoch:
        says = known.owned  # It may be a late copy: only who knows the target gives something up.
    member = _reconciled(name, members, target, says)
    if member != known:
        records.append(StateRecord((MEMBER, group, name), member))
    mine = target.target.get(name, ())
    assigned = tuple(partition for partition in member.owned if partition in mine)
    answer = GroupResponse(
        corr=request.corr, epoch=member.epoch, group_epoch=target.epoch, assigned=assigned
    )
    return Decided(records, answer)


def _reconciled(
    name: str, members: Mapping[str, MemberState], group: GroupTarget, says: Collection[str]
) -> MemberState:
    """Return a member after it said what it owns: without what it gave up, and if that is all that
    it must give up, in the group's epoch and with what no other member owns."""
    member, target = members[name], group.target.get(name, ())
    owned = {p: since for p, since in member.owned.items() if p in target or p in says}
    if any(partition not in target for partition in owned):
        return replace(member, owned=owned)
    others = {
        partition
        for other, each in members.items()
        if other != name
        for partition, since in each.owned.items()
        if since != FORGOTTEN
    }
    free = [p for p in target if p not in owned and p not in others]
    moves = member.epoch != group.epoch
    return replace(
        member,
        epoch=group.epoch,
        previous=member.epoch if moves else member.previous,
        owned=owned | dict.fromkeys(free, group.epoch),
    )


def _commit(state: CoordinatorState, bugs: Bugs, request: OffsetCommit) -> Decided:
    member = state.members(request.group).get(request.member)
    if bugs.no_commit_fence:
        error = Error.NONE
    elif member is None:
        error = Error.UNKNOWN_MEMBER
    elif bugs.interval_without_lower_bound:
        error = Error.NONE if request.epoch <= member.epoch else Error.FENCED_MEMBER_EPOCH
    else:
        error = _fence(member, request.offsets, request.epoch)
    if error is not Error.NONE:
        return _refused(request, error)
    records = [
        StateRecord(
            (POSITION, request.group, partition),
            CommittedPosition(offset=offset, epoch=request.epoch),
        )
        for partition, offset in request.offsets.items()
    ]
    return Decided(records, GroupResponse(corr=request.corr, epoch=request.epoch))


def _fetch(state: CoordinatorState, request: OffsetFetch) -> Decided:
    """State positions to the owner only: it must see all that earlier owners committed."""
    member = state.members(request.group).get(request.member)
    error = Error.UNKNOWN_MEMBER
    if member is not None:
        error = _fence(member, request.partitions, request.epoch)
    if error is not Error.NONE:
        return _refused(request, error)
    offsets = {p: state.position(request.group, p) for p in request.partitions}
    return Decided([], GroupResponse(corr=request.corr, epoch=request.epoch, offsets=offsets))


def _fence(member: MemberState, partitions: Collection[str], epoch: int) -> Error:
    """Return why a member may not act on partitions at an epoch, NONE if it may."""
    within = epoch <= member.epoch and all(
        member.owned.get(partition, epoch + 1) <= epoch for partition in partitions
    )
    return Error.NONE if within else Error.FENCED_MEMBER_EPOCH


def _refused(request: GroupRequest, error: Error) -> Decided:
    return Decided([], GroupResponse(corr=request.corr, error=error))
