"""Retention: a leader deletes the head of its log, followers delete after it, or start over."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.sim.disk import SimDisk
from node.core.log import Log
from node.core.log_start import ORIGIN, LogStart
from node.formats.trace import DELETED
from tests.support.stage_replica import PARTITION, Pair, bare_log, fill, show
from tests.support.world import World

TEN = "0e1 1e1 2-3e1 4e1 5e2 6e2 7-8e2 9e2"
Epochs = tuple[int, ...]


class TestFollower:
    def test_it_deletes_what_its_leader_has_deleted(self) -> None:
        pair = Pair(TEN, "0e1 1e1 2-3e1 4e1 5e2", 3)
        pair.leader.r.log.delete_head(4)
        pair.leader.r.hw = 9
        pair.talk()
        assert (pair.follower.r.log.start, pair.follower.r.hw) == (4, 9)
        assert [e["reason"] for e in pair.follower.events(DELETED)] == ["leader"]

    def test_one_that_lacks_the_next_record_starts_over(self) -> None:
        pair = Pair(TEN, "0e1 1e1", 3)
        whole = pair.leader.r.log.hash_at(10)
        pair.leader.r.log.delete_head(7)
        pair.leader.r.hw = 9
        pair.talk()
        follower = pair.follower.r
        assert show(follower.log) == "7-8e2 9e2"
        assert follower.log.hash_at(10) == whole
        assert follower.hw == 9
        assert [e["reason"] for e in pair.follower.events(DELETED)] == ["restart"]

    def test_a_log_that_is_cut_below_its_start_starts_over_at_0(self) -> None:
        pair = Pair("0e1 1e3", "0e1 1e1 2e1 3e1", 4)
        pair.follower.r.log.delete_head(3)
        pair.follower.r.hw = 3
        pair.talk()
        assert show(pair.follower.r.log) == "0e1 1e3"
        assert pair.follower.r.log.chain == pair.leader.r.log.chain
        assert [e["reason"] for e in pair.follower.events(DELETED)] == ["truncated"]


def logs() -> Iterator[Epochs]:
    """Every log of up to three records of three epochs."""
    for length in range(4):
        for number in range(3**length):
            epochs = tuple(1 + number // 3**k % 3 for k in range(length))
            if list(epochs) == sorted(epochs):
                yield epochs


def one_history(a: Epochs, b: Epochs) -> bool:
    """Whether both can be: an epoch has one writer, so it begins in both after the same records."""
    return all(a[: a.index(epoch)] == b[: b.index(epoch)] for epoch in {*a} & {*b})


def shared(a: Epochs, b: Epochs) -> int:
    """How many records they have in common."""
    both = list(zip(a, b, strict=False))
    return next((k for k, (x, y) in enumerate(both) if x != y), len(both))


def written(epochs: Epochs) -> str:
    return " ".join(f"{offset}e{epoch}" for offset, epoch in enumerate(epochs))


def test_every_follower_ends_with_the_log_of_its_leader_wherever_both_begin() -> None:
    tried = 0
    for leads in logs():
        for follows in logs():
            if not one_history(leads, follows):
                continue
            # What a follower has deleted was committed: the leader has, or had, the same.
            for deleted in range(shared(leads, follows) + 1):
                for start in range(len(leads) + 1):
                    pair = Pair(written(leads), written(follows), 4)
                    whole = pair.leader.r.log.chain
                    pair.leader.r.log.delete_head(start)
                    pair.follower.r.log.delete_head(deleted)
                    pair.leader.r.hw, pair.follower.r.hw = start, deleted
                    case = (leads, start, follows, deleted)
                    pair.talk()
                    log = pair.follower.r.log
                    assert log.chain == whole, case
                    assert show(log) == " ".join(written(leads).split()[log.start :]), case
                    tried += 1
    assert tried > 1000


class TestLog:
    def test_a_new_process_begins_where_the_old_one_did(self) -> None:
        disk = SimDisk()
        log = Log(PARTITION, disk, durable=True)
        fill(log, TEN)
        for upto, start in ((4, 4), (10, 10)):
            assert log.delete_head(upto)
            again = Log(PARTITION, disk, durable=True)
            for each in (log, again):
                assert (each.start, each.leo, each.damage) == (start, 10, None)
                assert each.cache.entries()[0] == (1 if start == 4 else 2, start - 1)
            assert again.hash_at(10) == log.hash_at(10)
            assert (again.last_epoch, again.chain) == (2, log.chain)

    def test_whole_batches_only(self) -> None:
        log = bare_log(TEN)
        assert log.delete_head(3)
        assert log.start == 2
        assert not log.delete_head(3)

    def test_what_is_behind_goes_on_after_a_restart_at_a_start(self) -> None:
        log, other = bare_log(TEN), bare_log("0e1 1e1")
        other.restart_at(LogStart(7, log.epoch_at(6), bytes.fromhex(log.hash_at(7)[1])))
        assert (other.start, other.leo, other.last_epoch) == (7, 7, 2)
        fill(other, "7-8e2 9e2")
        assert other.chain == log.chain
        other.restart_at(ORIGIN)
        assert (other.start, other.leo, other.last_epoch, other.cache.entries()) == (0, 0, -1, [])


@pytest.mark.parametrize("protocol", ["kafka", "kip-279", "liftbridge", "quorum"])
def test_a_broker_that_was_away_comes_back_to_a_log_without_its_head(protocol: str) -> None:
    world = World(7, protocol=protocol, retention_records=3)
    world.run_for(2000)
    world.create_topic(rf=3, min_isr=2)
    world.run_for(2000)
    leader = world.leader(PARTITION)
    assert leader
    away = next(n for n in ("n1", "n2", "n3") if n != leader)
    world.kill(away)
    world.run_for(4000)
    for number in range(12):
        leader = world.leader(PARTITION)
        assert leader
        world.produce(leader, PARTITION, number, b"record %d" % number)
        world.run_for(300)
    world.start(away)
    world.run_for(5000)
    kept = [world.nodes[name].replicas[PARTITION].log for name in ("n1", "n2", "n3")]
    assert min(log.start for log in kept) > 5
    assert len({(log.leo, log.chain) for log in kept}) == 1
    reasons = [e["reason"] for e in world.trace if e["event"] == DELETED and e["node"] == away]
    assert reasons[0] == "restart"
