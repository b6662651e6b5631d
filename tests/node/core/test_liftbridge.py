"""Liftbridge, as documented: what needs the state of nodes. The conversations are scripts
(`scripts/liftbridge.txt`)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.sim.run import simulate
from node.core import idle, protocol
from node.formats.errors import UsageError
from node.formats.messages import FetchRequest, FetchResponse, PartitionNotification
from node.formats.wire import fetch_body
from tests.support.sim_schedules import storm
from tests.support.world import World

LOG = "log-0"


TRUNCATE_ON_FETCH = replace(
    protocol.LIFTBRIDGE,
    name="liftbridge, truncate on fetch",
    truncation=protocol.Truncation.ON_FETCH,
)


def cluster(name: str = "liftbridge", *, seed: int = 0, partitions: int = 1) -> World:
    world = World(seed, protocol=name, latency_us=500, check_invariants=False)
    world.run_for(500)
    world.create_topic(partitions=partitions)
    world.run_for(500)
    return world


def fetches(world: World) -> list[tuple[str, int]]:
    """(sender, offset) of each fetch of the partition from now on, as they come."""
    found: list[tuple[str, int]] = []

    def hear(source: str, to: str, message: object, body: bytes | None) -> None:
        if isinstance(message, FetchRequest) and message.partition == LOG:
            found.append((source, message.offset))

    world.heard = hear
    return found


def test_news_that_overtakes_the_empty_answer_is_not_slept_over() -> None:
    """The record is appended after the leader answered and before the follower has the answer."""
    world = cluster(seed=3)
    leader = world.leader(LOG) or ""
    follower = next(name for name in world.broker_names if name != leader)
    r = world.nodes[follower].replicas[LOG]
    world.drop = lambda source, to, message: isinstance(message, FetchResponse)
    while not r.fetching.outstanding:
        world.run_for(1)
    said = fetches(world)
    empty = FetchResponse(partition=LOG, request_epoch=r.leader_epoch, leader=leader)
    world.deliver(leader, follower, PartitionNotification(partition=LOG), None)
    world.run_for(1)
    assert said == [], "the answer is still waited for"
    world.deliver(leader, follower, empty, fetch_body(r.leader_epoch, 0, []))
    world.run_for(1)
    assert said == [(follower, 0)]


def test_a_sleep_longer_than_the_lag_is_refused() -> None:
    with pytest.raises(UsageError, match="idle_wait_ms is 1000, but under liftbridge it must be"):
        idle.check(protocol.LIFTBRIDGE, idle_wait_ms=1000, lag_ms=1000)
    idle.check(protocol.KAFKA, idle_wait_ms=1000, lag_ms=1000)


def test_an_idle_cluster_sends_a_third_of_the_messages_of_a_long_poll() -> None:
    said = {}
    for name in ("liftbridge", "kip-279"):
        world = cluster(name, seed=4)
        heard = fetches(world)
        world.run_for(10_000)
        said[name] = len(heard)
    assert 66 <= said["liftbridge"] <= 84, "two followers, a sleep of 240 to 300 ms"
    assert said["kip-279"] > 2 * said["liftbridge"]


def test_epochs_are_offsets_of_the_metadata_log_and_the_first_leader_is_drawn() -> None:
    leaders = set()
    for seed in range(8):
        world = cluster(seed=seed)
        state = world.nodes["v1"].ctx.image.partitions[LOG]
        assert state.leader_epoch == state.partition_epoch
        batch = world.log("v1", "__cluster_metadata-0")[state.leader_epoch][1]
        assert LOG.encode() in batch
        leaders.add(state.leader)
    assert leaders == {"n1", "n2", "n3"}


def test_the_broker_that_leads_least_is_chosen() -> None:
    for seed in range(20):
        world = cluster(seed=seed, partitions=4)
        state = world.nodes["v1"].ctx.image.partitions
        load = {n: sum(s.leader == n for s in state.values()) for n in world.broker_names}
        first = state[LOG].leader
        candidates = [n for n in state[LOG].replicas if n != first]
        if len({load[n] for n in candidates}) == 2:  # a draw that tells the rule from a tie
            break
    world.kill(first)
    world.run_for(2500)
    assert world.leader(LOG) == min(candidates, key=load.__getitem__)


@pytest.mark.parametrize("seed", range(4))
def test_storms_break_nothing_with_truncate_on_fetch(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer without an epoch is all that breaks Liftbridge while no disk loses anything."""
    monkeypatch.setitem(protocol.REGISTRY, TRUNCATE_ON_FETCH.name, TRUNCATE_ON_FETCH)
    result = simulate(storm(seed, protocol=TRUNCATE_ON_FETCH.name), seed=seed)
    assert result.violations == ()
    assert any(op.type == "ok" for op in result.ops), "a storm without writes proves nothing"
