"""Golden stories: committed-prefix agreement, at any moment and at the end."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.support.checker.story import NODES, P, Story, against, one


def test_replicas_that_agree(tmp_path: Path) -> None:
    s = Story()
    for node in NODES:
        s.hw(node, (10, 2))
        s.hw(node, (10, 2), (20, 1))
    s.send(10, 2, at=0)
    s.send(20, at=2)
    s.poll((0, 10, 2, 0), (2, 20, 1, 0))
    s.agree((10, 2), (20, 1))
    assert against(s.check(tmp_path)) == {}


def test_a_replica_may_lag(tmp_path: Path) -> None:
    s = Story()
    s.hw("n1", (10, 2), (20, 1))
    s.hw("n2", (10, 2))
    s.log("n1", (10, 2), (20, 1))
    s.log("n2", (10, 2), (20, 1), hw=2)
    s.log("n3", (10, 2))
    s.send(10, 2, at=0)
    s.send(20, at=2)
    assert against(s.check(tmp_path)) == {}


def test_high_watermarks_that_disagree_at_some_moment(tmp_path: Path) -> None:
    s = Story()
    s.event("n1", "append", base_offset=0, leo=1, leader_epoch=0, hash="00000000000000aa")
    s.event("n2", "append", base_offset=0, leo=1, leader_epoch=0, hash="00000000000000aa")
    s.hw("n1", (10, 1), (20, 1), ms=250)
    s.hw("n2", (10, 1), (30, 1), ms=500)
    found = one(s.check(tmp_path), "divergence")
    assert (found.offset, found.count) == (1, 1)
    assert "diverges in [1, 2)" in found.message
    assert "seen 0.250 s into the storm, and agree below 1" in found.message
    assert {w.node for w in found.witnesses} == {"n1", "n2"}


def test_one_replica_that_changed_what_it_had_committed(tmp_path: Path) -> None:
    s = Story()
    s.hw("n1", (10, 1))
    s.hw("n1", (30, 1))
    assert "at different times" in one(s.check(tmp_path), "divergence").message


def test_final_logs_that_differ_below_their_high_watermarks(tmp_path: Path) -> None:
    s = Story()
    s.send(10, 2, at=0)
    s.send(20, at=2)
    s.send(30, at=2)
    s.log("n1", (10, 2), (20, 1))
    s.log("n2", (10, 2), (30, 1))
    s.log("n3", (10, 2))
    found = one(s.check(tmp_path), "divergence")
    assert (found.offset, found.count) == (2, 2)
    assert "differs at offset 2" in found.message
    assert {w.node for w in found.witnesses} == {"n1", "n2"}


def test_same_values_of_different_epochs_differ(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=0)
    s.log("n1", (10, 1, 3))
    s.log("n2", (10, 1, 4))
    assert "value 10 of epoch 4" in one(s.check(tmp_path), "divergence").message


def test_an_uncommitted_tail_may_differ_until_convergence_is_due(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=0)
    s.send(20, outcome="info")
    s.send(30, outcome="info")
    s.log("n1", (10, 1), (20, 1), hw=1)
    s.log("n2", (10, 1), (30, 1), hw=1)
    s.log("n3", (10, 1), hw=1)
    assert against(s.check(tmp_path / "early")) == {}
    s.phase("heal", 100)
    s.phase("end", 100 + s.run["recovery_limit_ms"])
    assert set(against(s.check(tmp_path / "late"))) == {"divergent-tail", "not-converged"}


def test_batch_boundaries_are_agreed_on_too(tmp_path: Path) -> None:
    s = Story()
    s.send(10, 2, at=0)
    s.log("n1", (10, 2))
    s.log("n2", (10, 1), (11, 1), hw=1)
    s.log("n3", (10, 2))
    found = one(s.check(tmp_path), "divergence")
    assert "a committed batch ends at offset 1" in found.message
    assert "no batch does in the log of n1 and n3" in found.message


def test_a_read_that_the_committed_log_denies(tmp_path: Path) -> None:
    s = Story()
    s.send(10, outcome="info")
    s.send(20, at=0)
    read = s.poll((0, 10))
    s.agree((20, 1))
    found = one(s.check(tmp_path), "divergence")
    assert found.witnesses[0].op == read
    assert "read value 10; the committed log of n1, n2 and n3 has value 20" in found.message


def test_two_readers_of_one_offset_in_different_epochs(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=0)
    s.poll((0, 10, 1, 3), process=8)
    s.poll((0, 10, 1, 4), process=9)
    assert against(s.check(tmp_path)) == {"divergence": 1}


def test_an_unknown_epoch_contradicts_nothing(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=0)
    s.poll((0, 10, 1, 3), process=8)
    s.poll((0, 10, 1, -1), process=9)
    assert against(s.check(tmp_path)) == {}


def test_committed_records_in_no_log_at_the_end(tmp_path: Path) -> None:
    s = Story()
    s.hw("n1", (10, 2), (20, 3), ms=100)
    s.agree((10, 2))
    s.send(10, 2, at=0)
    s.send(20, 3, outcome="info")
    found = one(s.check(tmp_path), "committed-truncated")
    assert (found.count, found.offset) == (3, 2)


def test_a_leader_without_the_committed_prefix(tmp_path: Path) -> None:
    s = Story()
    s.hw("n1", (10, 2), epoch=1, ms=100)
    s.event("n2", "role", role="leader", leader="n2", leader_epoch=2, leo=1, hw=0, ms=200)
    found = one(s.check(tmp_path), "incomplete-leader")
    assert found.offset == 1
    assert "n2 became leader of log-0 in epoch 2 with a log that ends at 1" in found.message


def test_a_broker_that_learns_late_of_a_leadership_long_past(tmp_path: Path) -> None:
    s = Story()
    s.hw("n1", (10, 1), epoch=1, ms=100)
    s.hw("n3", (10, 1), (20, 1), epoch=3, ms=200)
    s.event("n2", "role", role="leader", leader="n2", leader_epoch=2, leo=1, hw=1, ms=300)
    assert against(s.check(tmp_path)) == {}


def test_unclean_elections_excuse_divergence(tmp_path: Path) -> None:
    s = Story(promise={"unclean_election": True, "durable_acks": False})
    s.hw("n1", (10, 1))
    s.hw("n2", (20, 1))
    result = s.check(tmp_path)
    assert against(result) == {}
    assert one(result, "divergence").allowed


def test_weak_acks_do_not_excuse_divergence(tmp_path: Path) -> None:
    s = Story(promise={"acks": 1, "durable_acks": False})
    s.hw("n1", (10, 1))
    s.hw("n2", (20, 1))
    assert against(s.check(tmp_path)) == {"divergence": 1}


def test_the_metadata_partition_is_judged_like_any_other(tmp_path: Path) -> None:
    s = Story()
    s.hw("v1", (10, 1), partition="__cluster_metadata-0")
    s.hw("n1", (20, 1), partition="__cluster_metadata-0")
    assert one(s.check(tmp_path), "divergence").partition == "__cluster_metadata-0"


def _lost_with_all_disks(*, differ: bool) -> Story:
    """Both brokers that had 20 lost their power; then 30 was written where 20 had been."""
    s = Story()
    s.run["promise"]["durable_acks"] = False
    s.send(10, at=0)
    s.send(20, at=1)
    s.hw("n1", (10, 1), (20, 1))
    s.send(30, at=1)
    s.hw("n2", (10, 1), (30, 1, 1), epoch=1)
    s.phase("heal")
    s.phase("in_sync")
    s.final((0, 10, 1, 0), (1, 30, 1, 1), hw=2, node="n2")
    s.phase("end")
    s.log("n1", (10, 1), (20, 1) if differ else (30, 1, 1))
    s.log("n2", (10, 1), (30, 1, 1))
    s.log("n3", (10, 1), (30, 1, 1))
    return s


def test_records_lost_with_more_disks_than_promised_are_allowed(tmp_path: Path) -> None:
    result = _lost_with_all_disks(differ=False).check(tmp_path)
    assert against(result) == {}
    allowed = {a.name for a in result.anomalies if a.allowed}
    assert {"lost", "divergence"} <= allowed


def test_replicas_that_keep_different_records_are_never_allowed(tmp_path: Path) -> None:
    result = _lost_with_all_disks(differ=True).check(tmp_path)
    assert against(result) == {"replicas-differ": 1}
    found = one(result, "replicas-differ")
    assert "that the replicas hold in the end of log-0 diverges in [1, 2)" in found.message
    assert {w.node for w in found.witnesses} == {"n1", "n2", "n3"}


def test_a_replica_that_had_no_time_to_mend_its_log_is_not_blamed(tmp_path: Path) -> None:
    s = _lost_with_all_disks(differ=True)
    del s.run["phases"]["in_sync_us"]
    assert against(s.check(tmp_path)) == {}


def test_a_log_that_begins_later_misses_no_batch_before_its_start(tmp_path: Path) -> None:
    s = Story()
    s.send(10, 2, at=0)
    s.send(20, at=2)
    s.agree((10, 2), (20, 1))
    head, _, last = s.logs["n3"]
    s.logs["n3"] = [msgspec.structs.replace(head, offset=2, epochs=((0, 2),)), last]
    assert against(s.check(tmp_path / "promised")) == {"log-hole": 2}
    s.run["promise"]["retention"] = True
    assert against(s.check(tmp_path / "deleted")) == {}


def test_batches_without_a_prefix_hash_contradict_nothing(tmp_path: Path) -> None:
    s = Story()
    s.send(10, 2, at=0)
    s.agree((10, 2))
    s.logs["n3"] = [msgspec.structs.replace(line, hash="") for line in s.logs["n3"]]
    s.hw("n1", (10, 2))
    s.event("n2", "hw", hw=1, leo=2, leader_epoch=0, role="leader", batch_end=1, hash="")
    s.phase("heal")
    s.phase("in_sync")
    s.phase("end")
    assert against(s.check(tmp_path)) == {}


def role(s: Story, leo: int, *, role: str = "leader", epoch: int = 2, ms: float = 2) -> None:
    """n2 begins in a role with a log that ends at `leo`."""
    s.event("n2", "role", role=role, leader_epoch=epoch, leo=leo, hw=0, ms=ms)


def test_who_must_begin_with_all_that_was_committed(tmp_path: Path) -> None:
    """A leader whose log is known to end below the HW of an earlier epoch, established before."""
    s = Story()
    s.hw("n1", (10, 2), epoch=1, ms=1)
    role(s, 0, role="follower")
    role(s, -1)
    role(s, 0, epoch=1, ms=3)
    role(s, 0, ms=1)
    role(s, 0, epoch=3, ms=0.5)
    role(s, 2, epoch=4)
    assert against(s.check(tmp_path / "none of these")) == {}
    role(s, 0, epoch=5, ms=4)
    assert against(s.check(tmp_path / "this one")) == {"incomplete-leader": 1}


@pytest.mark.parametrize("moved", [False, True])
def test_what_a_broker_kept_of_a_partition_that_was_moved_away_owes_nothing(
    tmp_path: Path, moved: bool
) -> None:
    """n1 was down when the move was completed, and never learned that its log can go."""
    s = Story()
    s.run["partitions"][P] = list(NODES[1:] if moved else NODES)
    s.send(10, at=0)
    for value in (20, 30, 40):
        s.send(value, outcome="info")
    s.phase("heal", 100)
    s.phase("end", 100 + s.run["recovery_limit_ms"])
    s.log("n1", (10, 1), (20, 1), hw=1)
    s.log("n2", (10, 1), (30, 1), (40, 1), hw=1)
    s.log("n3", (10, 1), (30, 1), (40, 1), hw=1)
    apart = {"divergent-tail": 1, "not-converged": 1}
    assert against(s.check(tmp_path)) == ({} if moved else apart)


def test_committed_records_that_only_a_former_replica_kept(tmp_path: Path) -> None:
    s = Story()
    s.run["partitions"][P] = list(NODES[1:])
    s.send(10, 3, outcome="info")
    s.hw("n1", (10, 3))
    s.log("n1", (10, 3))
    s.log("n2", (10, 3))
    s.log("n3", (10, 3))
    assert against(s.check(tmp_path / "kept")) == {}
    for node in NODES[1:]:
        s.logs[node].clear()
        s.log(node)
    assert against(s.check(tmp_path / "gone")) == {"committed-truncated": 3}


def test_nothing_is_settled_in_a_run_that_was_never_healed(tmp_path: Path) -> None:
    s = Story()
    s.send(10, outcome="info")
    s.send(20, outcome="info")
    s.phase("end", 5_000)
    s.log("n1", (10, 1), hw=0)
    s.log("n2", (20, 1), hw=0)
    s.log("n3", (20, 1), hw=0)
    assert against(s.check(tmp_path)) == {}


@pytest.mark.parametrize(("hw", "found"), [(0, {}), (1, {"divergence": 1})])
def test_a_batch_end_binds_who_has_committed_so_far(
    tmp_path: Path, hw: int, found: dict[str, int]
) -> None:
    """The other may yet truncate the batch that it has instead."""
    s = Story()
    s.send(10, 2, at=0)
    s.log("n1", (10, 1), (11, 1))
    s.log("n2", (10, 2), hw=hw)
    assert against(s.check(tmp_path)) == found


def test_a_batch_whose_hash_is_not_known_is_compared_by_its_records(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=0)
    s.send(20, outcome="info")
    s.send(30, outcome="info")
    s.phase("heal", 100)
    s.phase("end", 5_000)
    for node, value in zip(NODES, (20, 30, 30), strict=True):
        s.log(node, (10, 1), (value, 1), hw=1)
    s.logs["n1"][1] = msgspec.structs.replace(s.logs["n1"][1], hash="")
    assert against(s.check(tmp_path)) == {"divergent-tail": 2}, "its record, and where it ends"
