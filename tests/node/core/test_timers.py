"""Waits by name: each ends when it is told to, and none ends by itself while the clock stands."""

from __future__ import annotations

from typing import Any

import pytest

from node.core.api import Tick
from node.core.broker import Broker
from node.core.messages import AlterPartition, FetchRequest, FetchResponse, Heartbeat, VoteRequest
from node.core.snapshot import restore, snapshot
from node.core.timers import expire, timers
from tests.support.world import World


def settled(**options: Any) -> World:
    """A cluster in which some records are committed everywhere."""
    world = World(3, **options)
    world.create_topic(rf=3)
    world.produce(world.leader("log-0") or "", "log-0", 1, b"a")
    world.run_for(700)
    return world


def after(node: Broker, name: str) -> tuple[list[Any], list[str]]:
    """What a copy of a node does when that wait is over: messages and names of events."""
    copy = restore(snapshot(node), node.ctx.storage, node.ctx.jitter)
    expire(copy, name)
    effects = copy.step(node.ctx.now_us, Tick())
    return [m.message for m in effects.messages], [str(e["event"]) for e in effects.trace]


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


def test_the_leader_answers_a_fetch_whose_wait_is_over() -> None:
    world = settled()
    leader = world.leader("log-0") or ""
    other = next(n for n in world.broker_names if n != leader)
    messages, _ = after(world.nodes[leader], f"wait/log-0/{other}")
    assert [type(m) for m in messages] == [FetchResponse]


def test_the_leader_proposes_to_leave_out_whoever_lags() -> None:
    world = settled()
    leader = world.leader("log-0") or ""
    other = next(n for n in world.broker_names if n != leader)
    world.isolate(other)
    world.produce(leader, "log-0", 2, b"b")
    world.run_for(30)
    messages, _ = after(world.nodes[leader], f"lag/log-0/{other}")
    assert [dict(m.isr).get(other) for m in messages if isinstance(m, AlterPartition)] == [None]


def test_a_follower_gives_up_a_fetch_and_sends_another() -> None:
    world = settled()
    follower = next(n for n in world.broker_names if n != world.leader("log-0"))
    messages, _ = after(world.nodes[follower], "fetch/log-0")
    assert [type(m) for m in messages] == [FetchRequest]


def test_the_controller_fences_a_broker_whose_session_is_over() -> None:
    world = settled()
    voter = world.nodes["v1"]
    expire(voter, "session/n2")
    voter.step(voter.ctx.now_us, Tick())
    assert voter.controller is not None
    assert voter.controller.image.brokers["n2"].fenced


def test_a_broker_sends_its_heartbeat() -> None:
    messages, _ = after(settled().nodes["n1"], "heartbeat")
    assert [type(m) for m in messages] == [Heartbeat]


def test_a_voter_that_hears_no_leader_asks_for_votes() -> None:
    world = settled(voters=3)
    voter = next(v for v in world.voter_names if world.nodes[v].controller is None)
    name = "election/__cluster_metadata-0"
    messages, _ = after(world.nodes[voter], name)
    assert {m.pre for m in messages if isinstance(m, VoteRequest)} == {True}


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


def test_a_leader_whom_no_majority_fetches_from_resigns() -> None:
    world = settled(voters=3)
    leader = next(v for v in world.voter_names if world.nodes[v].controller is not None)
    _, events = after(world.nodes[leader], "majority/__cluster_metadata-0")
    assert "role" in events


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
