"""Waits by name: none ends by itself while the clock stands (what follows: `scripts/waits.txt`)."""

from __future__ import annotations

from typing import Any

import pytest

from harness.explore.timers import expire, timers
from node.core.api import Tick
from tests.support.world import World


def settled(**options: Any) -> World:
    """Return a cluster in which some records are committed everywhere."""
    world = World(3, **options)
    world.create_topic(rf=3)
    world.produce(world.leader("log-0") or "", "log-0", 1, b"a")
    world.run_for(700)
    return world


def test_every_wait_has_a_name_of_its_own_and_none_ends_while_the_clock_stands() -> None:
    world = settled(voters=3)
    for node in world.nodes.values():
        names = timers(node)
        assert len(set(names)) == len(names) > 0
        effects = node.step(node.ctx.now_us, Tick())
        assert not effects.messages
        assert not effects.trace


def test_a_wait_that_is_not_under_way_cannot_end() -> None:
    world = settled()
    with pytest.raises(KeyError):
        expire(world.nodes["n1"], "session/n1")


def test_the_controller_fences_a_broker_whose_session_is_over() -> None:
    world = settled()
    voter = world.nodes["v1"]
    expire(voter, "session/n2")
    voter.step(voter.ctx.now_us, Tick())
    assert voter.controller is not None
    assert voter.controller.image.brokers["n2"].fenced


def test_voters_without_patience_elect_another_leader_while_the_clock_stands() -> None:
    world = settled(voters=3)
    old = next(v for v in world.voter_names if world.nodes[v].controller is not None)
    world.kill(old)
    for voter in world.voter_names:
        if voter != old:
            expire(world.nodes[voter], "patience/__cluster_metadata-0")
    candidate = next(v for v in world.voter_names if v != old)
    expire(world.nodes[candidate], "election/__cluster_metadata-0")
    world.sims[candidate]._turn([], first=True)
    world.run_for(50)
    assert world.nodes[candidate].quorum.r.role == "leader"


def test_the_high_watermark_is_written_down_when_its_time_comes() -> None:
    world = World(3)
    world.create_topic(rf=3)
    leader = world.nodes[world.leader("log-0") or ""]
    world.run_for(1000)
    assert "checkpoint" not in timers(leader)
    world.produce(leader.ctx.node, "log-0", 1, b"a")
    world.run_for(150)
    expire(leader, "checkpoint")
    leader.step(leader.ctx.now_us, Tick())
    assert leader.replicas["log-0"].hw_saved == leader.replicas["log-0"].hw == 1
