"""A disk gives back what was not written: a log uses none of it.

`scripts/damage-in-clusters.txt` has what becomes of the broker."""

from __future__ import annotations

import pytest

from harness.sim.disk import SimDisk
from node.core import batch as batches
from node.core.log import Damage, Log
from node.formats.errors import DamagedStore
from tests.support.disk_damage import PLACES, flip, spoil
from tests.support.world import logs_of

LOG = "log-0"


class TestLog:
    def log(self) -> tuple[SimDisk, Log]:
        disk = SimDisk()
        log = Log(LOG, disk, durable=True)
        for number in range(4):
            log.append_as_leader(batches.view(batches.build(2, b"%02d" % number)), 1)
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
            log.append_as_leader(batches.view(batches.build(1, payload, control=control)), 1)
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
