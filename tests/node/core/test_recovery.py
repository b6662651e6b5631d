"""All who were sure to have everything lost data: who goes furthest leads (KIP-966, balanced)."""

from __future__ import annotations

from node.core.protocol import KAFKA
from node.core.replica import load
from node.formats.messages import ReplicaLogInfo
from tests.support.log_notation import PARTITION
from tests.support.lone_broker import LoneBroker
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


def test_a_stored_high_watermark_above_the_log_is_replaced_with_its_repair() -> None:
    """Records fetched in place of damaged ones are not committed because those were."""
    broker = LoneBroker("n1", "0e1 1e1", hw=9)
    r = load(broker.ctx, PARTITION, KAFKA, durable=True)
    assert r.hw == 2
    r.save_hw(broker.ctx)
    assert broker.storage.get(f"hw/{PARTITION}") == (2).to_bytes(8, "big")
