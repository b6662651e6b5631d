"""A disk gives back what was not written: the broker names it, serves none of it, and comes back by
its peers; what nobody else has stays out."""

from __future__ import annotations

from typing import Any

import pytest

from harness.sim.disk import SimDisk
from node.core import batch as batches
from node.core.log import Damage, Log
from node.core.protocol import QUORUM
from node.formats.errors import DamagedStore
from node.formats.trace import METADATA_PARTITION
from tests.support.disk_damage import PLACES, flip, spoil
from tests.support.world import World, logs_of

LOG = "log-0"


def cluster(protocol: str = "kafka", *, rf: int = 3, voters: int = 1, **options: Any) -> World:
    """Three brokers; one partition with ten records, all committed."""
    world = World(5, protocol=protocol, voters=voters, **options)
    world.run_for(2000)
    world.create_topic(rf=rf, min_isr=min(rf, 2))
    world.run_for(2000)
    for number in range(10):
        leader = world.leader(LOG)
        assert leader
        world.produce(leader, LOG, number, b"record %d" % number)
        world.run_for(300)
    assert len(world.answers()) == 10
    return world


def found(world: World, node: str, event: str = "damaged") -> list[dict[str, Any]]:
    return [e for e in world.trace if e["node"] == node and e["event"] == event]


def whole(world: World, name: str) -> bool:
    return [p for p in world.payloads(name, LOG) if p.startswith(b"record")] == [
        b"record %d" % number for number in range(10)
    ]


def base_of(world: World, name: str, number: int) -> int:
    """Where a record is."""
    return next(
        base
        for base, (_, data) in world.log(name, LOG).items()
        if data.endswith(b"record %d" % number)
    )


class TestLog:
    def log(self) -> tuple[SimDisk, Log]:
        disk = SimDisk()
        log = Log(LOG, disk, durable=True)
        for number in range(4):
            log.append_as_leader(batches.build(2, b"%02d" % number), 1)
        return disk, log

    @pytest.mark.parametrize("place", [*PLACES, "chain", "missing"])
    @pytest.mark.parametrize("base", [0, 4, 6])
    def test_a_start_uses_nothing_from_the_damage_on(self, place: str, base: int) -> None:
        disk, before = self.log()
        flip(disk, base, place)
        log = Log(LOG, disk, durable=True)
        if place == "missing" and base == 6:
            return  # only the batch behind it would show that one is missing
        assert log.damage is not None
        assert (log.damage.offset, log.leo) == (base, base)
        assert log.hash_at(base) == before.hash_at(base)
        assert log.read(0, max_bytes=1 << 20, below=8) == before.read(
            0, max_bytes=1 << 20, below=base
        )
        assert len(logs_of(disk)[LOG]) == 4 - (place == "missing"), "the disk is as it was"
        log.repair()
        assert log.damage is None
        assert sorted(logs_of(disk)[LOG]) == list(range(0, base, 2))
        assert Log(LOG, disk, durable=True).damage is None

    @pytest.mark.parametrize("place", PLACES)
    def test_a_read_gives_none_of_it_back(self, place: str) -> None:
        disk, log = self.log()
        log._tail.clear()
        flip(disk, 4, place)
        assert len(log.read(0, max_bytes=1 << 20, below=4)[0]) == 2
        with pytest.raises(DamagedStore, match="log-0: the batch at 4 is damaged on disk: "):
            log.read(0, max_bytes=1 << 20, below=8)
        assert log.leo == 4
        assert log.damage is not None

    @pytest.mark.parametrize("control", [False, True])
    def test_every_bit_counts(self, control: bool) -> None:
        disk = SimDisk()
        log = Log(LOG, disk, durable=True)
        for payload in (b"first", b"second", b"third"):
            log.append_as_leader(batches.build(1, payload, control=control), 1)
        chain, data = logs_of(disk)[LOG][1]
        for bit in range(8 * (len(chain) + len(data))):
            changed = bytearray(chain + data)
            changed[bit // 8] ^= 1 << bit % 8
            logs_of(disk)[LOG][1] = bytes(changed[:8]), bytes(changed[8:])
            damage = Log(LOG, disk, durable=True).damage
            assert damage is not None, f"bit {bit}"
            assert damage.offset == 1

    def test_an_epoch_that_falls_is_damage(self) -> None:
        disk, _ = self.log()
        chain = logs_of(disk)[LOG][2][0]
        data = batches.stamp(batches.build(2, b"xx"), 4, 0)
        logs_of(disk)[LOG][4] = (batches.chain(chain, batches.view(data)), data)
        assert Log(LOG, disk, durable=True).damage == Damage(4, "leader epoch 0 after 1")

    def test_a_log_that_begins_above_0_is_read(self) -> None:
        disk, before = self.log()
        assert before.delete_head(3)
        log = Log(LOG, disk, durable=True)
        assert (log.start, log.leo, log.damage) == (2, 8, None)
        assert log.hash_at(2) == before.hash_at(2)
        assert len(log.read(2, max_bytes=1 << 20, below=8)[0]) == 3

    def test_its_first_batch_is_checked_against_what_was_deleted(self) -> None:
        disk, before = self.log()
        before.delete_head(2)
        flip(disk, 2, "chain")
        assert Log(LOG, disk, durable=True).damage == Damage(2, "the prefix hash does not match")

    def test_of_a_log_whose_start_is_damaged_nothing_is_used(self) -> None:
        disk, before = self.log()
        before.delete_head(2)
        spoil(disk, f"start/{LOG}")
        log = Log(LOG, disk, durable=True)
        assert (log.start, log.leo) == (0, 0)
        assert log.damage is not None
        assert log.damage.offset == 0
        log.repair()
        assert logs_of(disk)[LOG] == {}
        assert (Log(LOG, disk, durable=True).start, Log(LOG, disk, durable=True).damage) == (
            0,
            None,
        )


class TestVoters:
    def test_a_damaged_voter_votes_again_with_a_later_term(self) -> None:
        world = cluster(QUORUM.name)
        leader = world.leader(LOG)
        assert leader
        others = [n for n in ("n1", "n2", "n3") if n != leader]
        node = others[0]
        world.kill(node)
        flip(world.disks[node], base_of(world, node, 4), "payload")
        world.start(node)
        world.run_for(3000)
        assert whole(world, node)
        assert not world.nodes[node].quorums[LOG].is_voter
        world.kill(leader)
        world.run_for(5000)
        assert world.leader(LOG) is None, "two are left, and one of them does not vote"
        world.start(leader)
        world.run_for(5000)
        assert world.leader(LOG) not in (None, node)
        assert world.nodes[node].quorums[LOG].is_voter, "it has a record of the new term"

    def test_an_emptied_voter_only_reads_along(self) -> None:
        world = cluster(QUORUM.name)
        leader = world.leader(LOG)
        assert leader
        node = next(n for n in ("n1", "n2", "n3") if n != leader)
        for _ in range(2):
            world.kill(node)
            killed_us = world.now_us
            if not found(world, node):
                world.sims[node].disk = SimDisk()
            world.start(node)
            world.run_for(3000)
            assert whole(world, node)
            quorum = world.nodes[node].quorums[LOG]
            assert not quorum.is_voter
            peer = world.nodes[leader].replicas[LOG].peers[node]
            assert peer.last_fetch_us < killed_us, "its fetches do not count"
        assert [e["what"] for e in found(world, node)] == [
            "the disk is empty, and this is process 2"
        ], "the third process does not vote either, and need not say it again"

    @pytest.mark.parametrize("what", ["log", "vote", "range", "emptied"])
    def test_a_sole_voter_that_lost_something_does_not_start(self, what: str) -> None:
        world = cluster()
        world.kill("v1")
        key = f"vote/{METADATA_PARTITION}"
        if what == "log":
            flip(world.disks["v1"], 0, "payload", METADATA_PARTITION)
            reason = "the batch at 0 is damaged on disk: .* v1 is the only voter"
        elif what == "vote":
            spoil(world.disks["v1"], key)
            reason = f"the value '{key}' is damaged on disk: its checksum does not match"
        elif what == "range":
            world.disks["v1"]._synced.values[key] = b"\x92\xcf" + b"\xff" * 8 + b"\xa2v1"
            reason = f"the value '{key}' is damaged on disk: Expected `int` <= 2147483647"
        else:
            world.sims["v1"].disk = SimDisk()
            reason = "the disk was emptied, .* v1 is the only voter"
        with pytest.raises(AssertionError, match=reason):
            world.start("v1")
