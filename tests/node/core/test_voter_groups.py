"""Groups of voters under virtual time: elections, isolation, and the loss of any one of them."""

from __future__ import annotations

import pytest

from tests.support.world import World

VOTERS = ("v1", "v2", "v3")


def group(seed: int = 0, voters: int = 3, brokers: int = 0) -> World:
    world = World(seed, brokers=brokers, voters=voters)
    world.run_for(3000)
    return world


def leaders(world: World) -> list[str]:
    return [n for n, node in world.nodes.items() if node.quorum.r.role == "leader"]


def terms(world: World) -> set[int]:
    return {node.quorum.r.leader_epoch for node in world.nodes.values()}


@pytest.mark.parametrize("voters", [1, 2, 3, 4, 5])
def test_a_group_elects_one_leader_and_keeps_it(voters: int) -> None:
    """A sole voter, too (KAFKA-16144)."""
    world = group(voters=voters)
    (leader,) = leaders(world)
    (term,) = terms(world)
    world.run_for(10_000)
    assert leaders(world) == [leader]
    assert terms(world) == {term}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("links", ["both ways", "out", "in"])
def test_a_leader_that_is_cut_off_resigns_and_its_return_disturbs_nobody(
    links: str, seed: int
) -> None:
    """One that is not received, and one that receives nothing (KAFKA-15489), too."""
    world = group(seed)
    (first,) = leaders(world)
    for other in set(world.voter_names) - {first}:
        world.cut |= {(first, other)} if links != "in" else set()
        world.cut |= {(other, first)} if links != "out" else set()
    world.run_for(4000)
    (second,) = leaders(world)
    assert second != first, "the old one has resigned by itself"
    world.heal()
    world.run_for(2000)
    assert leaders(world) == [second]
    assert len(terms(world)) == 1


def test_a_follower_that_comes_back_from_a_partition_starts_no_election() -> None:
    world = group()
    (leader,) = leaders(world)
    (term,) = terms(world)
    away = next(v for v in world.voter_names if v != leader)
    world.isolate(away)
    world.run_for(20_000)
    assert world.nodes[away].quorum.r.leader_epoch == term, "asking does not raise the term"
    world.heal()
    world.run_for(3000)
    assert (leaders(world), terms(world)) == ([leader], {term})


def test_a_voter_with_a_higher_term_is_heard() -> None:
    """The stuck candidate of etcd: it would otherwise refuse the leader for ever."""
    world = group()
    (leader,) = leaders(world)
    stuck = next(v for v in world.voter_names if v != leader)
    q = world.nodes[stuck].quorum
    q.r.leader_epoch = 40
    q._save_vote(world.nodes[stuck].ctx, stuck)
    world.disks[stuck].commit()
    world.kill(stuck)
    world.start(stuck)
    world.run_for(5000)
    assert len(leaders(world)) == 1
    (term,) = terms(world)
    assert term > 40


@pytest.mark.parametrize("victim", VOTERS)
def test_the_cluster_survives_any_one_voter(victim: str) -> None:
    """Brokers, which hold no elections, find the new controller by themselves."""
    world = group(seed=1, brokers=3)
    world.create_topic()
    world.run_for(500)
    world.kill(victim)
    world.run_for(5000)
    (leader,) = leaders(world)
    image = world.nodes[leader].ctx.image
    assert [b for b in world.broker_names if not image.is_active(b)] == []
    assert {world.nodes[b].quorum.r.leader for b in world.broker_names} == {leader}
    world.mail.clear()
    data_leader = world.leader("log-0")
    assert data_leader is not None
    world.kill(data_leader)
    world.run_for(4000)
    successor = world.leader("log-0")
    assert successor is not None, "the new controller elects"
    world.produce(successor, "log-0", 1, b"x")
    world.run_for(200)
    assert not world.answers()[1].error


def test_all_voters_in_turn_and_nothing_of_the_metadata_is_lost() -> None:
    world = group(seed=2, brokers=3)
    world.create_topic(partitions=3)
    for victim in VOTERS:
        world.kill(victim)
        world.run_for(4000)
        world.start(victim)
        world.run_for(3000)
    logs = {tuple(map(repr, world.metadata(name))) for name in world.disks}
    assert len(logs) == 1
    state = world.nodes["v1"].ctx.image.partitions
    assert sorted(state) == ["log-0", "log-1", "log-2"]
    assert all(record.leader for record in state.values())


def test_without_a_majority_nothing_is_decided() -> None:
    world = group(seed=3, brokers=3)
    world.create_topic()
    (leader,) = leaders(world)
    for victim in [v for v in VOTERS if v != leader]:
        world.kill(victim)
    world.run_for(5000)
    assert leaders(world) == []
    before = world.nodes[leader].quorum.r.hw
    world.kill("n1")
    world.run_for(5000)
    assert world.nodes[leader].quorum.r.hw == before
    world.heal()
    world.run_for(5000)
    assert len(leaders(world)) == 1
    assert world.nodes[leader].quorum.r.hw > before


def test_the_records_a_voter_reported_survive_a_power_cut() -> None:
    """A fetch offset is a voter's word that the records are on its disk, flush=async or not: else
    one power cut is enough to lose what a majority had."""
    world = World(1, protocol="quorum", flush_interval_ms=100_000)
    world.run_for(500)
    world.create_topic()
    world.run_for(2000)
    leader = world.leader("log-0")
    assert leader is not None
    other, away = (name for name in world.broker_names if name != leader)
    world.isolate(away)
    world.mail.clear()
    world.produce(leader, "log-0", 1, b"x")
    world.run_for(300)
    assert not world.answers()[1].error
    world.kill(other)
    world.disks[other].power_cut(0)
    world.kill(leader)
    world.cut.clear()
    world.start(other)
    world.run_for(4000)
    assert world.leader("log-0") == other
    assert b"x" in world.payloads(other, "log-0")
