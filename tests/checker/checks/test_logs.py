"""Golden stories: invariants of logs and of leadership."""

from __future__ import annotations

from pathlib import Path

from harness.formats.history import LogRun
from tests.support.checker.story import Story, against, one


def test_a_sound_log(tmp_path: Path) -> None:
    s = Story()
    s.send(10, 2, at=0)
    s.send(20, at=2)
    s.log("n1", (10, 2, 1), (20, 1, 3), epochs=[(1, 0), (3, 2), (4, 3)])
    s.log("n2", (10, 2, 1), (20, 1, -1), hw=2, epochs=[(1, 0)])
    s.log("n3", (10, 2, 1), epochs=[])
    assert against(s.check(tmp_path)) == {}, "what has no epoch, and a cache not kept, are no fault"


def test_epochs_that_go_back_along_the_log(tmp_path: Path) -> None:
    s = Story()
    s.send(10, 2, at=0)
    s.send(20, at=2)
    s.send(30, at=3)
    s.log("n1", (10, 2, 3), (20, 1, 1), (30, 1, 1), epochs=[(3, 0), (1, 2)])
    found = one(s.check(tmp_path), "epoch-regression")
    assert "from 3 to 1 at offset 2" in found.message
    assert found.offset == 2


def test_a_hole_in_a_log(tmp_path: Path) -> None:
    s = Story()
    s.send(10, 2, at=0)
    s.log("n1", (10, 2))
    s.logs["n1"][1] = LogRun(node="n1", partition="log-0", offset=1, count=1, epoch=0)
    found = one(s.check(tmp_path), "log-hole")
    assert found.offset == 1


def test_a_log_that_is_shorter_than_it_says(tmp_path: Path) -> None:
    s = Story()
    s.log("n1", (10, 2), hw=0, leo=5)
    s.log("n2", (10, 2), hw=0, leo=0)
    s.send(10, 2, at=0)
    assert against(s.check(tmp_path)) == {"log-hole": 2}


def test_bytes_that_changed_on_disk(tmp_path: Path) -> None:
    s = Story()
    s.send(10, 2, at=0)
    s.log("n1", (10, 2))
    damaged = s.logs["n1"][1]
    s.logs["n1"][1] = LogRun(
        node="n1",
        partition="log-0",
        offset=0,
        count=2,
        epoch=0,
        hash=damaged.hash,
        stored_hash="00000000000000ff",
        records=damaged.records,
    )
    assert against(s.check(tmp_path)) == {"corrupt-batch": 1}


def test_an_epoch_cache_that_is_wrong(tmp_path: Path) -> None:
    s = Story()
    s.send(10, 2, at=0)
    s.send(20, at=2)
    s.log("n1", (10, 2, 1), (20, 1, 3), epochs=[(1, 0), (3, 1)])
    found = one(s.check(tmp_path), "epoch-cache-mismatch")
    assert "has epoch 3 from 1 where its batches have epoch 3 from 2" in found.message


def test_a_watermark_beyond_the_log(tmp_path: Path) -> None:
    s = Story()
    s.send(10, 2, at=0)
    s.log("n1", (10, 2), hw=3)
    s.log("n2", hw=1)
    assert against(s.check(tmp_path)) == {"hw-beyond-log": 2}


def cut(s: Story, node: str, leo: int, hw: int) -> None:
    s.event(node, "truncated", from_leo=3, leo=leo, hw=hw, reason="diverging-epoch", hash="")


def test_a_watermark_that_a_truncation_leaves_beyond_the_log(tmp_path: Path) -> None:
    """The next answer of the leader would hide it: no log at the end shows it."""
    s = Story()
    s.send(10, 2, at=0)
    s.log("n1", (10, 2))
    s.log("n2", (10, 2))
    cut(s, "n1", leo=2, hw=2)
    assert against(s.check(tmp_path / "lowered")) == {}
    cut(s, "n2", leo=1, hw=2)
    found = one(s.check(tmp_path / "left"), "hw-beyond-log")
    assert "n2 truncated its log of log-0 to 1" in found.message
    assert "left its high watermark at 2" in found.message
    assert [(w.node, w.what, w.offset) for w in found.witnesses] == [("n2", "truncation", 1)]


def test_a_watermark_over_an_empty_log_and_a_log_end_that_is_not_known(tmp_path: Path) -> None:
    s = Story()
    s.send(10, 2, at=0)
    s.log("n1", (10, 2))
    cut(s, "n1", leo=-1, hw=2)
    assert against(s.check(tmp_path / "unknown")) == {}
    cut(s, "n1", leo=0, hw=2)
    assert against(s.check(tmp_path / "empty")) == {"hw-beyond-log": 1}


def lead(s: Story, node: str, epoch: int) -> None:
    s.event(node, "role", role="leader", leader=node, leader_epoch=epoch, leo=0, hw=0)


def test_one_leader_an_epoch(tmp_path: Path) -> None:
    s = Story()
    lead(s, "n1", 1)
    lead(s, "n2", 2)
    lead(s, "n1", 3)
    assert against(s.check(tmp_path)) == {}


def test_two_leaders_in_one_epoch(tmp_path: Path) -> None:
    s = Story()
    lead(s, "n1", 0)
    lead(s, "n2", 0)
    assert "n1 and n2 all became leader" in one(s.check(tmp_path), "two-leaders").message


def test_two_writers_in_one_epoch(tmp_path: Path) -> None:
    s = Story()
    for node in ("n1", "n2"):
        s.event(node, "append", base_offset=0, leo=1, leader_epoch=4, hash="", role="leader")
    assert against(s.check(tmp_path)) == {"two-leaders": 1}


def test_two_controllers_in_one_term(tmp_path: Path) -> None:
    s = Story(voters=["v1", "v2"])
    s.traces["v2"] = []
    s.event("v1", "controller", None, state="active", term=1)
    s.event("v2", "controller", None, state="active", term=2)
    assert against(s.check(tmp_path / "one")) == {}
    s.event("v2", "controller", None, state="active", term=1)
    assert against(s.check(tmp_path / "two")) == {"two-controllers": 1}


def change(
    s: Story,
    leader: str | None,
    epoch: int,
    number: int,
    isr: list[str],
    elr: tuple[str, ...] = (),
    **more: object,
) -> None:
    fields = {"elr": list(elr), "replicas": ["n1", "n2", "n3"]} | more
    s.event(
        "v1",
        "partition",
        leader=leader,
        leader_epoch=epoch,
        partition_epoch=number,
        isr=isr,
        **fields,
    )


def test_elections_from_isr_and_elr(tmp_path: Path) -> None:
    s = Story()
    change(s, "n1", 0, 0, ["n1", "n2"])
    change(s, "n2", 1, 1, ["n2"])
    change(s, None, 2, 2, [], elr=("n3",))
    change(s, "n3", 3, 3, ["n3"])
    change(s, None, 4, 4, [], last_known_elr=["n1"])
    change(s, "n1", 5, 5, ["n1"])
    assert against(s.check(tmp_path)) == {}


def test_a_leader_from_outside(tmp_path: Path) -> None:
    s = Story()
    change(s, "n1", 0, 0, ["n1", "n2"])
    change(s, "n3", 1, 1, ["n3"])
    found = one(s.check(tmp_path / "clean"), "leader-outside-isr")
    assert "n3 was elected leader of log-0 in epoch 1" in found.message
    s.run["promise"]["unclean_election"] = True
    assert against(s.check(tmp_path / "unclean")) == {}


def test_the_record_that_completes_a_move_may_elect_whom_it_takes_in(tmp_path: Path) -> None:
    """n1 proposed n3, was to leave when n3 is in sync, and so is succeeded by it."""
    s = Story()
    change(s, "n1", 0, 0, ["n1"], replicas=["n1", "n3"], removing=["n1"])
    change(s, "n3", 1, 1, ["n3"], replicas=["n3"], removing=[])
    assert against(s.check(tmp_path)) == {}


def test_a_move_under_way_excuses_no_other_election(tmp_path: Path) -> None:
    s = Story()
    change(s, "n1", 0, 0, ["n1", "n2"], replicas=["n1", "n2", "n3"], removing=["n1"])
    change(s, "n3", 1, 1, ["n3"], replicas=["n1", "n2", "n3"], removing=["n1"])
    assert against(s.check(tmp_path / "not complete")) == {"leader-outside-isr": 1}
    s = Story()
    change(s, "n2", 0, 0, ["n1", "n2"], replicas=["n1", "n2", "n3"], removing=["n1"])
    change(s, "n3", 1, 1, ["n3"], replicas=["n2", "n3"], removing=[])
    assert against(s.check(tmp_path / "of a leader that stays")) == {"leader-outside-isr": 1}
    s = Story()
    change(s, "n1", 0, 0, ["n1", "n2"], replicas=["n1", "n2", "n3"], removing=["n1"])
    change(s, "n3", 1, 1, ["n3"], replicas=["n1", "n2", "n3"], removing=[])
    assert against(s.check(tmp_path / "cancelled")) == {"leader-outside-isr": 1}


def test_an_isr_with_an_outsider_in_it(tmp_path: Path) -> None:
    s = Story()
    change(s, "n1", 0, 0, ["n1", "n9"])
    assert against(s.check(tmp_path)) == {"isr-outside-replicas": 1}


def fence(s: Story, broker: str, state: str) -> None:
    s.event("v1", "broker", None, broker=broker, broker_epoch=7, state=state)


def test_a_fenced_member_of_an_isr(tmp_path: Path) -> None:
    """KIP-841."""
    s = Story()
    fence(s, "n3", "unfenced")
    change(s, "n1", 0, 0, ["n1", "n2", "n3"])
    fence(s, "n3", "fenced")
    change(s, "n1", 0, 1, ["n1", "n2"])
    assert against(s.check(tmp_path / "left")) == {}
    change(s, "n1", 0, 2, ["n1", "n2", "n3"])
    found = one(s.check(tmp_path / "in"), "fenced-in-isr")
    assert "n3 in the ISR of log-0" in found.message
    s.run["promise"]["silence_deposes"] = False
    assert against(s.check(tmp_path / "silence")) == {}, "as in Liftbridge"


def test_who_may_be_fenced_and_in_the_isr(tmp_path: Path) -> None:
    """The last member, where there is no ELR; and nobody can tell of another controller's time."""
    s = Story()
    fence(s, "n1", "fenced")
    change(s, None, 0, 0, ["n1"])
    s.event("v1", "controller", None, state="resigned", term=1)
    s.event("v1", "controller", None, state="active", term=3)
    change(s, "n1", 1, 2, ["n1", "n2"])
    assert against(s.check(tmp_path)) == {}
