"""A node that is taken apart and made again goes on as if nothing had been, and nodes that count as
equal answer alike, whatever time it is: in drawn storms of the simulated world."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import pytest
from msgspec.structs import replace

from harness.explore import snapshot as snapshots
from harness.explore.snapshot import canonical, restore, snapshot
from harness.sim.disk import SimDisk
from harness.sim.node import SimNode
from harness.sim.run import SimResult, simulate
from node.core.api import Event
from node.core.broker import Broker
from node.core.turn import Turn
from tests.support.sim_schedules import storm
from tests.support.world import World

CLUSTERS: dict[str, dict[str, Any]] = {
    "kafka, three voters": {"voters": 3},
    "power cuts": {"flush": "async"},
    "kip-101": {"protocol": "kip-101"},
    "liftbridge": {"protocol": "liftbridge"},
    "quorum": {"protocol": "quorum"},
    "high-watermark": {"protocol": "high-watermark"},
}
EVERY = 8
"""One of so many turns is made by another node."""
HOURS_US = 7 * 3_600_000_000
plain_take = SimNode._take


def run(name: str) -> SimResult:
    """Return a storm of which only the first seconds are played."""
    drawn = storm(5, **CLUSTERS[name])
    schedule = replace(
        drawn,
        workload=replace(drawn.workload, duration_ms=2000),
        faults=tuple(fault for fault in drawn.faults if fault.at_ms < 2000),
    )
    return simulate(schedule, seed=5, check_invariants=False, stop_at="never")


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_storm_over_restored_nodes_is_the_same_storm(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = run(name)
    dice, restored = random.Random(1), []

    def take(sim: SimNode, events: list[Event], first: bool) -> Turn:
        node = sim.core
        if node is not None and node._begun and dice.randrange(EVERY) == 0:
            other = restore(snapshot(node), node.ctx.storage, node.ctx.jitter)
            sim.take_turns_with(other)
            restored.append(canonical(other) == canonical(node))
        return plain_take(sim, events, first)

    monkeypatch.setattr(SimNode, "_take", take)
    assert run(name).digest == plain.digest
    assert len(restored) > 100
    assert all(restored)


@pytest.mark.parametrize("name", CLUSTERS)
def test_nodes_that_count_as_equal_step_alike(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dice, compared = random.Random(1), []

    def take(sim: SimNode, events: list[Event], first: bool) -> Turn:
        node = sim.core
        if node is None or not node._begun or dice.randrange(EVERY) or sim.disk.faults:
            return plain_take(sim, events, first)
        theirs = later(sim, equal_to(node, SimDisk.of(sim.disk.state()), dice), events, first)
        own = plain_take(sim, events, first)
        compared.append(result_of(own, node) == theirs)
        return own

    monkeypatch.setattr(SimNode, "_take", take)
    result = run(name)
    assert all(exit.expected for exit in result.exits)
    assert len(compared) > 100
    assert all(compared)


def later(sim: SimNode, other: Broker, events: list[Event], first: bool) -> Any:
    """Return a turn of this node hours later, if it differs for another node."""
    assert isinstance(other.ctx.jitter, random.Random)
    node, deadline_us, drawn = sim.core, sim._deadline_us, other.ctx.jitter.getstate()
    sim.take_turns_with(other)
    sim._queue.now_us += HOURS_US
    sim._deadline_us += HOURS_US
    found = result_of(plain_take(sim, events, first), other)
    sim._queue.now_us -= HOURS_US
    sim.take_turns_with(node)
    sim._deadline_us = deadline_us
    other.ctx.jitter.setstate(drawn)
    return found


def result_of(turn: Turn, node: Broker) -> Any:
    """Return the messages and trace events of a turn, and the value of the node after it."""
    messages = [(m.to, m.message, m.body) for m in (*turn.early, *turn.later)]
    return messages, [dict(event) for event in turn.trace], canonical(node)


def equal_to(node: Broker, disk: SimDisk, dice: random.Random) -> Broker:
    """Another node with the same canonical value: hours later, with tables in another order and
    with nothing of its log in memory."""
    other = restore(snapshot(node), disk, node.ctx.jitter)
    hours_later(other, "", dice, set())
    other.ctx.now_us += HOURS_US
    for r in (other.quorum.r, *other.replicas.values()):
        r.wake_us = hours_later(r.wake_us, "wake_us", dice, set())
    for r in other.replicas.values():
        r.log._tail, r.log._tail_bytes = {}, 0
    assert canonical(other) == canonical(node)
    return restore(snapshot(other), disk, node.ctx.jitter)


def hours_later(value: Any, name: str, dice: random.Random, seen: set[int]) -> Any:
    """Return what a field of this name has hours later; a part of a node is changed itself."""
    if type(value) is int and name.endswith("_us"):
        return value if abs(value) >= snapshots._SOON_US else value + HOURS_US
    if type(value) is dict:
        pairs = [(key, hours_later(each, name, dice, seen)) for key, each in value.items()]
        if name in snapshots._UNORDERED:
            dice.shuffle(pairs)
        return dict(pairs)
    if isinstance(value, list | deque):
        return type(value)([hours_later(each, name, dice, seen) for each in value])
    plain = type(value) in snapshots._PLAIN
    fields = None if plain else snapshots.fields_of(value)
    if fields is not None and id(value) not in seen:
        seen.add(id(value))
        for each in fields:
            setattr(value, each, hours_later(getattr(value, each), each, dice, seen))
    return value


def test_a_node_that_has_other_state_does_not_count_as_equal() -> None:
    world = World(1)
    world.create_topic()
    leader = world.nodes[world.leader("log-0") or ""]
    before = canonical(leader)
    world.produce(leader.ctx.node, "log-0", 1, b"a")
    world.run_for(20)
    assert canonical(leader) != before
