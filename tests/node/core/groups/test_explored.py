"""Every decision of the coordinator for two members and two partitions, up to an epoch.

Members join, report, leave, crash and lose their sessions in any order; each answer arrives or is
lost, and a copy of any report may come again later; a member whose session is over goes on as if
nothing had happened. In every state that can be reached, a partition has one owner, and no member
whose session goes on has it besides; each member that was ever given a partition tries to commit in
the epoch in which it had it: that must fail if another member was given it in a later one."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec
import pytest

from node.core.bugs import Bugs, parse
from node.core.groups.decide import Decided, deal, decide, remove
from node.core.groups.state import CoordinatorState, MemberState, StateRecord, decode_payload
from node.formats.messages import Error, GroupHeartbeat, GroupResponse, OffsetCommit

MEMBERS: Final = ("a", "b")
PARTITIONS: Final = ("p", "q")
_encoder: Final = msgspec.msgpack.Encoder(order="sorted")

View = tuple[int, int, tuple[str, ...]]
"""What a member knows: its epoch, that of the group, and what it reads."""


class World(NamedTuple):
    """The state of the coordinator as records, what each member knows (None: it is in no group),
    who was ever given which partition in which epoch, and what each member reported (None: no copy
    of that comes again)."""

    log: bytes
    views: tuple[View | None, ...]
    given: frozenset[tuple[str, int, str]]
    sent: frozenset[tuple[int, View]] | None


def state_of(world: World) -> CoordinatorState:
    made = CoordinatorState()
    made.apply(decode_payload(world.log))
    return made


def after(world: World, records: list[StateRecord]) -> World:
    made = state_of(world)
    made.apply(records)
    records = [StateRecord(key, value) for key, value in sorted(made.values.items())]
    return world._replace(log=_encoder.encode(records))


def learns(world: World, n: int, answer: GroupResponse) -> World:
    """Let member `n` get an answer."""
    views = list(world.views)
    owned = tuple(sorted(answer.assigned))
    views[n] = None if answer.error else (answer.epoch, answer.group_epoch, owned)
    told = {(MEMBERS[n], answer.epoch, partition) for partition in answer.assigned}
    return world._replace(views=tuple(views), given=world.given | told)


def reports(world: World, n: int, bugs: Bugs) -> Iterator[World]:
    """Yield what a heartbeat or join of member `n` leads to: its answer arrives, or is lost."""
    view = world.views[n] or (0, -1, ())
    decided = decided_of(world, n, view, bugs)
    changed = after(world, decided.records)
    if view[0] and world.sent is not None:
        changed = changed._replace(sent=changed.sent | {(n, view)})
    yield learns(changed, n, decided.answer)
    yield changed


def decided_of(world: World, n: int, view: View, bugs: Bugs) -> Decided:
    epoch, group_epoch, owned = view
    request = GroupHeartbeat(
        group="g",
        member=MEMBERS[n],
        epoch=epoch,
        group_epoch=group_epoch,
        owned=owned,
        subscribed=PARTITIONS,
    )
    return decide(state_of(world), bugs, request)


def steps(world: World, bugs: Bugs) -> Iterator[World]:
    for n, name in enumerate(MEMBERS):
        yield from reports(world, n, bugs)
        ended = after(world, remove(state_of(world), bugs, "g", [name]))
        yield ended  # its session is over, and it does not know
        gone = (*world.views[:n], None, *world.views[n + 1 :])
        yield ended._replace(views=gone)  # it left
        yield world._replace(views=gone)  # it crashed
    for n, view in world.sent or ():
        yield after(world, decided_of(world, n, view, bugs).records)  # a copy comes late


def wrong(world: World, bugs: Bugs) -> str:
    """Return what the promise of the coordinator does not allow, "" if all is well."""
    state = state_of(world)
    owners = [p for member in state.members("g").values() for p in member.owned]
    if len(owners) > len(set(owners)):
        return "two owners"
    for name, view in zip(MEMBERS, world.views, strict=True):
        if view is None or (mine := state.members("g").get(name)) is None:
            continue
        if view[0] == mine.epoch and {*view[2]} & ({*owners} - {*mine.owned}):
            return f"{name} has what another member owns"
    for member, epoch, partition in sorted(world.given):
        others = [e for m, e, p in world.given if p == partition and m != member]
        if epoch in others:
            return f"{partition} has two owners in epoch {epoch}"
        commit = OffsetCommit(group="g", member=member, epoch=epoch, offsets={partition: 1})
        accepted = decide(state, bugs, commit).answer.error is Error.NONE
        if accepted and max(others, default=-1) > epoch:
            return f"{member} commits {partition} in epoch {epoch} after another owner"
    return ""


def explore(bugs: Bugs, most: int, *, copies: bool = False) -> tuple[str, int]:
    """Return what is wrong in the first such world, and how many worlds were seen."""
    sent = frozenset[tuple[int, View]]() if copies else None
    begin = World(_encoder.encode([]), (None, None), frozenset(), sent)
    seen, waiting = {begin}, deque([begin])
    while waiting:
        for world in steps(waiting.popleft(), bugs):
            if world in seen or state_of(world).group("g").epoch > most:
                continue
            seen.add(world)
            waiting.append(world)
            if what := wrong(world, bugs):
                return what, len(seen)
    return "", len(seen)


@pytest.mark.parametrize(
    ("most", "copies"),
    [
        (3, True),
        pytest.param(4, True, marks=pytest.mark.nightly),
        pytest.param(5, False, marks=pytest.mark.nightly),
    ],
)
def test_the_owner_alone_commits_and_a_partition_has_one_owner(most: int, copies: bool) -> None:
    what, worlds = explore(Bugs(), most, copies=copies)
    assert what == ""
    assert worlds > 100


@pytest.mark.parametrize(
    ("bug", "shows"), [("B6", "commits"), ("B7", "commits"), ("B8", "two owners")]
)
def test_a_rule_left_out_shows(bug: str, shows: str) -> None:
    assert shows in explore(parse([bug]), 4)[0]


def test_shares_of_members_differ_by_one_at_most() -> None:
    for number in range(1, 10):
        all_of_them = tuple(f"log-{n}" for n in range(number))
        before: dict[str, tuple[str, ...]] = {}
        for names in ("a", "ab", "abc", "bc", "bcde", "e", "abcdefgh", "ah"):
            members = {name: MemberState(epoch=1, subscribed=all_of_them) for name in names}
            dealt = deal(members, before)
            assert sorted(sum(dealt.values(), ())) == sorted(all_of_them)
            sizes = {len(mine) for mine in dealt.values()}
            assert max(sizes) - min(sizes) <= 1, (number, names, dealt)
            kept = sum(len({*dealt[name]} & {*before.get(name, ())}) for name in names)
            most = [len(before.get(name, ())) for name in names]
            assert kept >= sum(min(had, number // len(names)) for had in most), "it had more"
            before = dealt
