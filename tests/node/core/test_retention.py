"""Retention: a leader deletes the head of its log, followers delete after it, or start over."""

from __future__ import annotations

from itertools import product

from harness.sim.disk import SimDisk
from node.core.log import ORIGIN, Log, LogStart
from node.formats.trace import DELETED
from tests.node.core.test_short_logs import SIZES, common_prefix, legal_pairs, paired, written
from tests.support.log_notation import PARTITION, TEN, bare_log, fill, show

SINGLE = SIZES["single records"]


def test_every_follower_ends_with_the_log_of_its_leader_wherever_both_begin() -> None:
    tried, reasons = 0, set()
    for leads, follows in legal_pairs(3, 3):
        # What a follower has deleted was committed: the leader has, or had, the same.
        places = product(range(common_prefix(leads, follows) + 1), range(len(leads) + 1))
        for deleted, start in places:
            stage = paired(written(leads, SINGLE), written(follows, SINGLE))
            leader, follower = stage.nodes["n1"], stage.nodes["n2"]
            whole = leader.r.log.chain
            leader.r.log.delete_head(start)
            follower.r.log.delete_head(deleted)
            leader.r.hw, follower.r.hw = start, deleted
            stage.run(most=20)
            log, case = follower.r.log, (leads, start, follows, deleted)
            assert not stage.mail, case
            assert log.chain == whole, case
            assert show(log) == " ".join(written(leads, SINGLE).split()[log.start :]), case
            assert follower.r.hw >= log.start, case
            reasons |= {event["reason"] for event in follower.events(DELETED)}
            tried += 1
    assert tried > 1000
    assert reasons == {"leader", "restart"}


def test_a_log_that_is_truncated_below_its_start_starts_over_at_0() -> None:
    stage = paired("0e1 1e3", "0e1 1e1 2e1 3e1")
    follower = stage.nodes["n2"]
    follower.r.log.delete_head(3)
    follower.r.hw = 3
    stage.run(most=20)
    assert stage.log("n2") == "0e1 1e3"
    assert follower.r.log.chain == stage.nodes["n1"].r.log.chain
    assert [e["reason"] for e in follower.events(DELETED)] == ["truncated"]


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

    def test_a_cut_at_the_log_end_still_drops_the_entry_there(self) -> None:
        log = bare_log("0e1 1e1")
        log.begin_epoch(2)
        assert log.cache.entries() == [(1, 0), (2, 2)]
        assert log.truncate(2) == 2
        assert log.cache.entries() == [(1, 0)]
        assert log.truncate(99) == 2

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
