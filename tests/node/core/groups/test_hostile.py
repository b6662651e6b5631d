"""The coordinator under requests of anybody: its state is that of its log, and a partition has one
owner, whatever members, epochs and partitions a request names."""

from __future__ import annotations

import random

import pytest

from node.core.groups.state import MEMBER, CoordinatorState
from node.formats.messages import (
    GroupHeartbeat,
    GroupRequest,
    GroupResponse,
    OffsetCommit,
    OffsetFetch,
)
from node.formats.wire_bounds import MAX_EPOCH, MAX_OFFSET
from tests.support.stage_groups import GroupsStage

NAMES = ("a", "b", "", "é" * 10, "\x00")
PARTITIONS = ("log-0", "log-1", "", "__groups-0")
EPOCHS = (-1, 0, 0, 1, 2, 3, 4, MAX_EPOCH)


def request(rng: random.Random, stage: GroupsStage) -> GroupRequest:
    """Draw a request, more often than not in the present epoch of its member."""
    group, member, epoch = rng.choice("gh"), rng.choice(NAMES), rng.choice(EPOCHS)
    state = stage.coordinator.state
    if state is not None and rng.random() < 0.6:
        known = state.members(group).get(member)
        epoch = epoch if known is None else known.epoch
    some = tuple(rng.choice(PARTITIONS) for _ in range(rng.randrange(5)))
    said = {"corr": rng.randrange(50), "group": group, "member": member, "epoch": epoch}
    match rng.randrange(4):
        case 0:
            return OffsetCommit(**said, offsets={p: rng.choice((0, 5, MAX_OFFSET)) for p in some})
        case 1:
            return OffsetFetch(**said, partitions=some)
        case _:
            others = tuple(rng.choice(PARTITIONS) for _ in range(rng.randrange(5)))
            return GroupHeartbeat(**said, owned=some, subscribed=others)


def moves_on(rng: random.Random, stage: GroupsStage, epoch: int) -> int:
    """Let the ISR, the time or the leadership change; return the leader epoch."""
    leads = stage.r.role == "leader"
    match rng.randrange(12):
        case 0 | 1 | 2 if leads:
            stage.reaches("all")
        case 3:
            stage.wait(rng.choice((100, 800, 1600)))
        case 4 if leads:
            stage.isr(rng.choice(("n1", "n1,n2")))
        case 5:
            epoch += 1
            (stage.follow if leads else stage.lead)(epoch)
    return epoch


@pytest.mark.parametrize("seed", range(8))
def test_any_request_leaves_the_state_of_the_log_and_one_owner(seed: int) -> None:
    rng, answered = random.Random(seed), 0
    stage, epoch = GroupsStage(partitions=2), 1
    stage.lead(epoch)
    stage.reaches("all")
    for _ in range(250):
        stage.takes("c1", request(rng, stage))
        epoch = moves_on(rng, stage, epoch)
        answered += sum(isinstance(message, GroupResponse) for _, message, _ in stage.sent())
        live = stage.coordinator.state
        if live is None:
            continue
        made = CoordinatorState()
        made.replay(stage.r.log, 0, stage.r.leo)
        assert made.values == live.values
        members = {key: value for key, value in live.values.items() if key[0] == MEMBER}
        owned = [(key[1], p) for key, value in members.items() for p in value.owned]
        assert len(owned) == len(set(owned))
        assert {key[1:] for key in members} >= set(stage.coordinator.heard_us)
    assert answered > 100
