"""All who were sure to have everything lost data: who goes furthest leads (KIP-966, balanced)."""

from __future__ import annotations

import pytest

from node.core.messages import ReplicaLogInfo
from tests.support.broker_world import World
from tests.support.controller_desk import Desk


def lost_by_all() -> Desk:
    """Worked example 5.3.3: RF 3, MinISR 2; ISR and ELR are empty, 2 and 3 are last known."""
    d = Desk()
    for name in ("n1", "n2", "n3"):
        d.fence(name)
    for name in ("n1", "n2", "n3"):
        d.enroll(name, lost_data=True)
    d.rows.clear()
    d.row("2 and 3 are last known")
    return d


def unfence(d: Desk, *names: str) -> None:
    for name in names:
        d.beat(name)
        d.alive.append(name)


def test_the_longest_log_of_the_last_known_leads() -> None:
    """Log ends are 15, 12 and 10 on n1, n2 and n3: n1 has the longest, but was not in sync."""
    d = lost_by_all()
    unfence(d, "n1")
    d.row("1 is back")
    assert d.wake() == [], "it is not asked"
    unfence(d, "n2")
    assert d.wake() == [], "all are asked, or nobody"
    unfence(d, "n3")
    assert [to for to, _ in d.wake()] == ["n2", "n3"]
    d.log_ends("n3", 3, 10)
    d.row("3 answered: 10")
    assert [to for to, _ in d.wake()] == ["n2"], "asked until it answers"
    d.log_ends("n2", 3, 12)
    d.row("2 answered: 12")
    assert d.state.unclean, "reported as a possible loss"
    d.alter(f"n1@{d.epochs['n1']} n2")
    d.row("1 caught up")
    assert not d.state.unclean, "the leader confirmed"
    assert (
        d.table()
        == """
2 and 3 are last known     -    4  6  isr      elr      lost 23
1 is back                  -    4  6  isr      elr      lost 23
3 answered: 10             -    4  6  isr      elr      lost 23
2 answered: 12             n2   5  7  isr 2    elr      lost 23
1 caught up                n2   5  8  isr 12   elr      lost
"""
    )


@pytest.mark.parametrize(
    ("of_n2", "of_n3", "leader"),
    [
        ((2, 9), (3, 4), "n3"),
        ((3, 4), (3, 9), "n3"),
        ((3, 9), (3, 9), "n2"),
        ((-1, 0), (1, 1), "n3"),
    ],
)
def test_epoch_goes_before_length_and_order_decides_between_equals(
    of_n2: tuple[int, int], of_n3: tuple[int, int], leader: str
) -> None:
    d = lost_by_all()
    unfence(d, "n1", "n2", "n3")
    d.log_ends("n2", *of_n2)
    d.log_ends("n3", *of_n3)
    assert d.state.leader == leader


def test_an_answer_that_is_not_about_now_does_not_count() -> None:
    d = lost_by_all()
    unfence(d, "n1", "n2", "n3")
    d.log_ends("n2", 3, 12)
    d.log_ends("n3", 3, 10, partition_epoch=d.state.partition_epoch - 1)
    d.log_ends("n3", 3, 10, broker_epoch=d.epochs["n3"] - 1)
    d.log_ends("n1", 3, 15)
    assert d.state.leader == ""
    d.fence("n2")
    d.log_ends("n3", 3, 10)
    assert d.state.leader == "", "n2 is gone: its answer counts no more"
    d.start("n2")
    d.log_ends("n3", 3, 10)
    assert d.state.leader == "", "and it is asked again"
    d.log_ends("n2", 3, 12)
    assert d.state.leader == "n2"


def test_a_replica_that_dies_after_a_recovery_is_asked_again() -> None:
    d = lost_by_all()
    unfence(d, "n1", "n2", "n3")
    d.log_ends("n2", 3, 12)
    d.log_ends("n3", 3, 10)
    d.fence("n2")
    d.start("n2", lost_data=True)
    d.row("2 again")
    assert d.rows[-1].split()[1:] == ["again", "-", "6", "9", "isr", "elr", "lost", "23"]
    d.log_ends("n2", 3, 11)
    d.log_ends("n3", 5, 11)
    assert d.state.leader == "n3"


def test_an_unclean_election_does_not_wait_for_a_recovery() -> None:
    d = lost_by_all()
    assert d.elect_unclean() == "invalid-request: no replica of log-0 is active"
    unfence(d, "n1")
    assert d.elect_unclean() == ""
    assert (d.state.leader, d.state.isr, d.state.unclean) == ("n1", ("n1",), True)
    assert d.state.last_known_elr == ("n2", "n3")
    assert d.elect_unclean() == "n1 leads log-0: nobody else is needed"


# -- in a whole cluster ---------------------------------------------------------------------------


def test_a_power_cut_everywhere_costs_only_unsynced_records() -> None:
    """Everyone loses the tail of its log, each another part of it."""
    world = World(4, flush_interval_ms=100_000)
    world.run_for(500)
    world.create_topic()
    world.run_for(500)
    for i in range(20):
        world.produce("n1", "log-0", i, b"%d" % i)
        world.run_for(10)
    world.run_for(1000)
    assert world.invariants is not None
    world.invariants.promises = False
    for name, keep in (("n1", 0), ("n2", 16), ("n3", 8)):
        world.kill(name)
        world.disks[name].power_cut(keep)
    ends = {name: len(world.payloads(name, "log-0")) for name in ("n1", "n2", "n3")}
    assert 0 == ends["n1"] < ends["n3"] < ends["n2"] < 20
    world.run_for(2000)
    for name in ("n1", "n2", "n3"):
        world.start(name)
    world.run_for(5000)
    state = world.nodes["v1"].ctx.image.partitions["log-0"]
    assert state.isr == ("n1", "n2", "n3")
    log = [b"%d" % i for i in range(ends["n2"])]
    assert [world.payloads(name, "log-0") for name in ("n1", "n2", "n3")] == [log] * 3
    unclean = [e for e in world.trace if e["event"] == "partition" and e["unclean"]]
    assert [e["leader"] for e in unclean] == ["n2"]


def test_a_replica_answers_only_when_it_knows_of_the_leaderless_epoch() -> None:
    """Until then its leader could still make its log longer than it said."""
    world = World(4, flush_interval_ms=100_000)
    world.run_for(500)
    world.create_topic()
    world.run_for(500)
    assert world.invariants is not None
    world.invariants.promises = False
    for name in ("n1", "n2", "n3"):
        world.power_cut(name)
    world.run_for(2000)
    seen: list[tuple[int, int]] = []

    def note(source: str, to: str, message: object) -> bool:
        if isinstance(message, ReplicaLogInfo):
            r = world.nodes[source].replicas["log-0"]
            seen.append((message.partition_epoch, r.partition_epoch))
            assert r.role == "none"
        return False

    world.drop = note
    for name in ("n1", "n2", "n3"):
        world.start(name)
    world.run_for(5000)
    assert world.leader("log-0") is not None
