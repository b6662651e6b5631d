"""All who were sure to have everything lost data: who goes furthest leads (KIP-966, balanced)."""

from __future__ import annotations

import pytest

from node.formats.messages import Error, ReplicaLogInfo
from node.formats.trace import TRUNCATED
from tests.support.world import World


def test_a_replica_answers_only_when_it_knows_of_the_leaderless_epoch() -> None:
    """Until then its leader could still make its log longer than it said."""
    world = World(4, flush_interval_ms=100_000)
    world.run_for(500)
    world.create_topic()
    world.run_for(500)
    leader = world.leader("log-0")
    assert leader is not None
    world.produce(leader, "log-0", corr=1, payload=b"x")
    world.run_for(500)
    world.invariants.committed_stays = False
    for name in ("n1", "n2", "n3"):
        world.power_cut(name)
    world.run_for(2000)
    answered: set[str] = set()

    def note(source: str, to: str, message: object) -> bool:
        if isinstance(message, ReplicaLogInfo):
            r = world.nodes[source].replicas["log-0"]
            assert (r.role, r.partition_epoch) == ("none", message.partition_epoch)
            answered.add(source)
        return False

    world.drop = note
    for name in ("n1", "n2", "n3"):
        world.start(name)
    world.run_for(5000)
    assert world.leader("log-0") in answered


def records(*, flush_interval_ms: int) -> tuple[World, str]:
    """Return a cluster of `high-watermark` at rest, 20 records committed, and a follower."""
    world = World(protocol="high-watermark", flush_interval_ms=flush_interval_ms)
    world.run_for(500)
    world.create_topic()
    world.run_for(500)
    leader = world.leader("log-0") or ""
    for corr in range(20):
        world.produce(leader, "log-0", corr=corr, payload=b"x")
    world.run_for(2000)
    assert len([m for m in world.answers().values() if m.error is Error.NONE]) == 20
    return world, next(name for name in world.broker_names if name != leader)


@pytest.mark.parametrize("flush_interval_ms", [0, 1000])
def test_a_power_cut_takes_no_checkpoint_of_the_high_watermark(flush_interval_ms: int) -> None:
    """Document 001: it is checkpointed to stable storage periodically. Without it the restarted
    follower cuts committed records."""
    world, name = records(flush_interval_ms=flush_interval_ms)
    before = len(world.trace)
    world.power_cut(name)
    world.start(name)
    world.run_for(2000)
    mine = [e for e in world.trace[before:] if (e["node"], e.get("partition")) == (name, "log-0")]
    assert not [e for e in mine if e["event"] == TRUNCATED]
    assert world.nodes[name].replicas["log-0"].hw == 20


def test_a_lowered_high_watermark_outlives_a_power_cut() -> None:
    """A restart would take the next records for committed ones."""
    world, name = records(flush_interval_ms=0)
    broker = world.nodes[name]
    world.isolate(name)
    world.invariants.committed_stays = False
    broker.replicas["log-0"].set_hw(broker.ctx, 10)
    world.run_for(10)
    world.power_cut(name)
    world.start(name)
    assert world.disks[name].get("hw/log-0") == (10).to_bytes(8, "big")
