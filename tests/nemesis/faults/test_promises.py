"""The promise of a run under faults of disks and power, and elections."""

from __future__ import annotations

from typing import Any

import pytest

from harness.systems.floodmark.brokers import promise_of
from nemesis.faults import (
    BitFlip,
    DiskEmptied,
    DiskFull,
    ElectPreferred,
    ElectUnclean,
    FsyncError,
    Kill,
    LyingFsync,
    OldCopy,
    PowerCut,
    Reassign,
    SetMinIsr,
    SlowFsync,
    Syscall,
    TornWrite,
)
from nemesis.faults.losses import outnumber_copies
from nemesis.formats.schedule import Cluster, Fault, Schedule


def planned(*faults: Fault, **cluster: Any) -> Schedule:
    return Schedule(cluster=Cluster(**cluster), faults=faults)


def promise(*faults: Fault, **cluster: Any) -> tuple[bool, bool, bool]:
    made = promise_of(planned(*faults, **cluster))
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


def test_an_unclean_election_may_cost_what_was_acknowledged() -> None:
    promise = promise_of(planned(ElectUnclean(partition="log-0", at_ms=1)))
    assert promise.unclean_election
    assert not promise.durable_acks
    assert promise_of(planned(ElectPreferred(partition="log-0", at_ms=1))).durable_acks


def test_the_lowest_min_isr_says_how_many_copies_there_are() -> None:
    """One power cut takes the only copy of what was acknowledged while min_isr was 1."""
    cut, lower = PowerCut(on="n1", at_ms=1), SetMinIsr(min_isr=1, at_ms=1)
    assert promise_of(planned(cut, flush="async")).durable_acks
    lost = promise_of(planned(cut, lower, flush="async"))
    assert (lost.durable_acks, lost.committed_kept) == (False, False)
    assert promise_of(planned(cut, SetMinIsr(min_isr=3, at_ms=1), flush="async")).durable_acks
    assert promise_of(planned(cut, lower)).durable_acks, "nothing is unsynced"


def move(replicas: str) -> Reassign:
    return Reassign(partition="log-0", replicas=replicas, at_ms=1)


@pytest.mark.parametrize(
    ("flush", "faults", "lossy"),
    [
        ("sync", [PowerCut(on="all", at_ms=1)], False),
        ("async", [Kill(on="all", at_ms=1)], False),
        ("async", [PowerCut(on="n1", at_ms=1), PowerCut(on="n1", at_ms=9)], False),
        ("async", [PowerCut(on="n1", at_ms=1), PowerCut(on="n2", at_ms=9)], True),
        ("async", [PowerCut(on="leader", at_ms=1), PowerCut(on="leader", at_ms=9)], True),
        ("async", [PowerCut(on="v1", at_ms=1)], False),
        ("async", [move("n2"), PowerCut(on="n2", at_ms=9)], True),
        ("async", [move("n2,n3"), PowerCut(on="n2", at_ms=9)], False),
        ("async", [move("rotate"), PowerCut(on="n2", at_ms=9), move("")], False),
    ],
)
def test_only_as_many_power_cuts_as_copies_excuse_a_loss(
    flush: Any, faults: list[Fault], lossy: bool
) -> None:
    schedule = Schedule(cluster=Cluster(flush=flush, min_isr=2), faults=tuple(faults))
    assert outnumber_copies(schedule) is lossy
