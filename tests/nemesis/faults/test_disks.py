"""Faults of disks: what is asked of the world, when it is undone, and what may be lost by it."""

from __future__ import annotations

from typing import Any

import pytest

from harness.systems.floodmark.brokers import promise_of
from nemesis.draw import draw, expand
from nemesis.faults import (
    KINDS,
    BitFlip,
    DiskEmptied,
    DiskFull,
    FsyncError,
    LyingFsync,
    OldCopy,
    PowerCut,
    SlowFsync,
    Syscall,
    TornWrite,
)
from nemesis.formats.schedule import Cluster, Fault, Schedule, Workload
from nemesis.world import DiskFails
from tests.support.nemesis_world import Storm

DISK = ("fsync-error", "slow-fsync", "disk-full", "torn-write", "bit-flip", "disk-emptied")


@pytest.mark.parametrize(
    ("fault", "fails"),
    [
        (FsyncError(on="n1", at_ms=10, for_ms=20), DiskFails("error")),
        (FsyncError(on="n1", at_ms=10, for_ms=20, written=True), DiskFails("error", written=True)),
        (SlowFsync(on="n1", at_ms=10, for_ms=20, delay_ms=7), DiskFails("slow", delay_ms=7)),
        (DiskFull(on="n1", at_ms=10, for_ms=20), DiskFails("full")),
        (DiskFull(on="n1", at_ms=10, for_ms=20, limit="map"), DiskFails("full-map")),
    ],
)
def test_a_disk_fails_until_the_heal(fault: Fault, fails: DiskFails) -> None:
    storm = Storm(fault)
    storm.run(15)
    assert list(storm.world.disk_faults.values()) == [fails]
    storm.world.up.remove("n1")  # its process ended
    storm.run(99)
    assert storm.world.log == [
        f"10 add_disk_fault {fails.what} n1",
        f"30 remove_disk_fault {fails.what} n1",
        "30 start n1",
    ]
    assert storm.told() == ["0 inject n1", "0 heal n1", "0 effect n1"]
    assert storm.lines[-1]["writes"] == 3


def test_a_node_that_did_not_stop_is_left_as_it_is() -> None:
    storm = Storm(SlowFsync(on="n1,n2", at_ms=10, for_ms=20, delay_ms=7))
    storm.run(99)
    assert not [line for line in storm.world.log if "start" in line]
    assert storm.lines[-1]["writes"] == 6


def test_a_disk_that_lies_ends_with_a_power_cut() -> None:
    storm = Storm(LyingFsync(on="n1", at_ms=10, for_ms=20))
    storm.run(99)
    assert storm.world.log == [
        "10 add_disk_fault lying n1",
        "30 power_cut n1",
        "30 remove_disk_fault lying n1",
        "30 start n1",
    ]


def test_an_old_copy_is_restored_at_the_heal() -> None:
    storm = Storm(OldCopy(on="n1", at_ms=10, for_ms=20))
    storm.run(99)
    acts = ["10 copy_disk n1", "30 kill n1", "30 restore_disk n1", "30 start n1"]
    assert storm.world.log == acts


@pytest.mark.parametrize(
    ("fault", "what"),
    [
        (BitFlip(on="n1", at_ms=10, for_ms=20, part="chain"), "flip"),
        (TornWrite(on="n1", at_ms=10, for_ms=20, keep_percent=25), "tear"),
        (DiskEmptied(on="n1", at_ms=10, for_ms=20), "empty"),
    ],
)
def test_damage_is_done_while_the_node_is_down(fault: Fault, what: str) -> None:
    storm = Storm(fault)
    storm.run(99)
    assert storm.world.log == ["10 kill n1", f"10 damage_disk {what} n1", "30 start n1"]
    assert storm.told() == ["0 inject n1: n1: something is damaged", "0 heal n1"]
    [damage] = storm.world.damages
    assert damage.part == ("chain" if what == "flip" else "payload")
    assert damage.bit == 0.25 or what != "tear"


def test_a_node_with_nothing_to_damage_is_started_again() -> None:
    storm = Storm(BitFlip(on="n1", at_ms=10, for_ms=20))
    storm.world.broken.add("damage_disk flip n1")
    storm.run(99)
    assert storm.world.log == ["10 kill n1", "10 start n1"]
    assert storm.told() == ["0 missed n1: cannot damage_disk flip n1"]


def test_a_node_that_is_down_is_damaged_and_left_to_its_fault() -> None:
    storm = Storm(
        FsyncError(on="n1", at_ms=5, for_ms=40),
        BitFlip(on="n1", at_ms=10, for_ms=20, part="payload"),
    )
    storm.run(7)
    storm.world.up.remove("n1")
    storm.run(99)
    assert storm.world.log == [
        "5 add_disk_fault error n1",
        "10 damage_disk flip n1",
        "30 start n1",
        "45 remove_disk_fault error n1",
    ]


def test_a_client_has_no_disk() -> None:
    storm = Storm(FsyncError(on="c1", at_ms=10, for_ms=20))
    storm.world.log.clear()
    assert not storm.world.disk_faults


class TestDrawing:
    def test_they_are_drawn_only_when_named(self) -> None:
        new = {*DISK, "lying-fsync", "old-copy"}
        assert not new & set(expand(["all"], Cluster()))
        assert set(expand(["disk"], Cluster())) == {*DISK, "read-error"}

    def test_the_disks_of_one_broker_lose_something(self) -> None:
        victims = set()
        for seed in range(30):
            drawn = draw(Cluster(), Workload(duration_ms=60_000), ["disk"], seed)
            hit = {getattr(f, "on", "") for f in drawn if KINDS[f.what].loss}
            assert len(hit) <= 1
            victims |= hit
        assert victims == {"n1", "n2", "n3"}


def promise(*faults: Fault, **cluster: Any) -> tuple[bool, bool, bool]:
    made = promise_of(Schedule(cluster=Cluster(**cluster), faults=faults))
    return made.disks_kept, made.committed_kept, made.durable_acks


KEPT, LOST = (True, True, True), (False, False, False)
FLIP = BitFlip(on="n1", at_ms=1)


class TestPromise:
    @pytest.mark.parametrize("protocol", ["kafka", "quorum"])
    @pytest.mark.parametrize("kind", [BitFlip, TornWrite, DiskEmptied])
    def test_one_disk_of_three_may_lose_something(self, protocol: str, kind: Any) -> None:
        one, other = kind(on="n1", at_ms=1), kind(on="n2", at_ms=1)
        assert promise(one, one, protocol=protocol) == KEPT
        assert promise(one, other, protocol=protocol) == LOST
        assert promise(kind(on="leader", at_ms=1), one, protocol=protocol) == LOST
        assert promise(kind(on="v1", at_ms=1), protocol=protocol) == LOST
        assert promise(kind(on="v1", at_ms=1), protocol=protocol, voters=3) == KEPT
        assert promise(kind(on="voters", at_ms=1), protocol=protocol, voters=3) == LOST

    @pytest.mark.parametrize("protocol", ["high-watermark", "kip-101", "kip-279", "liftbridge"])
    def test_brokers_that_come_back_at_once_survive_none(self, protocol: str) -> None:
        assert promise(FLIP, protocol=protocol) == LOST

    @pytest.mark.parametrize("kind", [LyingFsync, OldCopy])
    def test_no_disk_may_go_back_in_time_unnoticed(self, kind: Any) -> None:
        for on in ("n1", "any", "v2"):
            assert promise(kind(on=on, at_ms=1), voters=3) == LOST

    def test_what_only_fails_loses_nothing(self) -> None:
        faults = (
            FsyncError(on="all", at_ms=1),
            SlowFsync(on="all", at_ms=1, delay_ms=100),
            DiskFull(on="all", at_ms=1),
        )
        assert promise(*faults) == KEPT

    def test_a_value_of_a_voter_is_nobody_elses(self) -> None:
        assert promise(BitFlip(on="n1", at_ms=1, part="value"), protocol="quorum") == LOST

    def test_syncs_that_are_lies_cost_something_when_the_power_goes(self) -> None:
        lie, late = Syscall(on="n1", action="lie", at_ms=1), PowerCut(on="any", at_ms=2)
        assert promise(lie) == promise(late) == KEPT
        assert promise(lie, late) == LOST
        assert promise(Syscall(on="n1", action="error", at_ms=1), late) == KEPT

    def test_power_cuts_and_damage_add_up(self) -> None:
        cut = PowerCut(on="n2", at_ms=1)
        assert promise(FLIP, cut) == KEPT
        assert promise(FLIP, cut, flush="async") == LOST
        assert promise(cut, flush="async") == KEPT
