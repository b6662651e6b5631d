"""Commands to the controller: elections and min.insync.replicas, and every refusal's sentence."""

from __future__ import annotations

import pytest

from node.core.messages import (
    AdminRequest,
    AdminResponse,
    CreateTopic,
    ElectLeader,
    Error,
    ProduceResponse,
    ReassignReplicas,
    SetMinIsr,
)
from tests.support.broker_world import World
from tests.support.controller_desk import Desk
from tests.support.replica_bench import PARTITION, Bench

# -- the preferred leader -------------------------------------------------------------------------


def test_the_preferred_replica_leads_again_when_it_is_asked_for() -> None:
    d = Desk()
    assert d.prefer() == "n1 leads log-0 already"
    d.fence("n1")
    assert d.prefer() == "invalid-request: n1, preferred for log-0, is not active"
    d.start("n1")
    assert d.prefer() == "invalid-request: n1, preferred for log-0, is not in sync"
    d.alter(f"n2 n3 n1@{d.epochs['n1']}")
    d.row("1 is in sync again")
    assert d.prefer() == ""
    d.row("and preferred")
    assert (
        d.table()
        == """
topic made                 n1   1  1  isr 123  elr      lost
1 is in sync again         n2   2  3  isr 123  elr      lost
and preferred              n1   3  4  isr 123  elr      lost
"""
    )


def test_the_leadership_is_handed_over_in_one_change() -> None:
    d = Desk()
    epoch = d.state.partition_epoch
    assert d.hand_over("n2") == ""
    assert (d.state.leader, d.state.replicas) == ("n2", ("n2", "n1", "n3"))
    assert d.state.partition_epoch == epoch + 1
    assert d.hand_over("n2") == "n2 leads log-0 already"
    assert d.prefer() == "n2 leads log-0 already"
    assert d.hand_over("n4") == "invalid-request: n4 is no replica of log-0"
    d.fence("n1")
    assert d.hand_over("n1") == "invalid-request: n1, preferred for log-0, is not active"
    d.start("n1")
    assert d.admin(ReassignReplicas(partition=PARTITION, replicas=("n1", "n2"))) == ""
    assert d.hand_over("n3") == (
        "invalid-request: log-0 is being moved, and keeps its order until then"
    )


# -- unclean elections ----------------------------------------------------------------------------


def test_an_unclean_election_is_for_partitions_without_a_leader() -> None:
    d = Desk()
    assert d.elect_unclean() == "n1 leads log-0: nobody else is needed"
    d.alter("n1 n2")
    for name in ("n3", "n2", "n1"):
        d.fence(name)
    d.start("n3")
    d.row("only 3 is there")
    assert d.elect_unclean() == ""
    d.row("unclean")
    assert d.state.unclean
    d.start("n1")
    d.alter(f"n3 n1@{d.epochs['n1']}")
    d.row("1 follows it")
    assert not d.state.unclean, "its first proposal confirms the leader"
    assert (
        d.table()
        == """
topic made                 n1   1  1  isr 123  elr      lost
only 3 is there            -    2  4  isr      elr 12   lost
unclean                    n3   3  5  isr 3    elr      lost 12
1 follows it               n3   3  6  isr 13   elr      lost
"""
    )


def test_before_kip_966_the_last_of_the_isr_is_given_up() -> None:
    d = Desk(protocol="kip-279")
    for name in ("n1", "n2", "n3"):
        d.fence(name)
    d.start("n2")
    d.row("3 was the last")
    assert d.elect_unclean() == ""
    d.row("unclean")
    assert (
        d.table()
        == """
topic made                 n1   1  1  isr 123  elr      lost
3 was the last             -    4  4  isr 3    elr      lost
unclean                    n2   5  5  isr 2    elr      lost
"""
    )


# -- min.insync.replicas --------------------------------------------------------------------------


def test_a_change_of_min_isr_empties_the_elr() -> None:
    """KAFKA-16540: the ELR is what it is by the old MinISR."""
    d = Desk()
    d.alter("n1")
    d.row("2 and 3 lag")
    assert d.set_min_isr(3) == ""
    d.row("min_isr 3")
    assert d.set_min_isr(3) == "min_isr of log is 3 already"
    d.alter(f"n1 n2@{d.epochs['n2']}")
    d.row("2 caught up")
    assert d.set_min_isr(1) == ""
    d.row("min_isr 1")
    assert d.state.min_isr == 1
    assert (
        d.table()
        == """
topic made                 n1   1  1  isr 123  elr      lost
2 and 3 lag                n1   1  2  isr 1    elr 23   lost
min_isr 3                  n1   1  3  isr 1    elr      lost 23
2 caught up                n1   1  4  isr 12   elr      lost 23
min_isr 1                  n1   1  5  isr 12   elr      lost
"""
    )


def test_a_new_min_isr_keeps_the_last_replica_that_may_lead() -> None:
    """Nobody leads, so nothing commits whatever MinISR is: the ELR stays complete."""
    d = Desk()
    for name in ("n1", "n2", "n3"):
        d.fence(name)
    assert d.set_min_isr(1) == ""
    d.row("min_isr 1")
    d.start("n2")
    d.row("2 is back")
    assert (
        d.table()
        == """
topic made                 n1   1  1  isr 123  elr      lost
min_isr 1                  -    4  5  isr      elr 23   lost
2 is back                  n2   5  6  isr 2    elr      lost
"""
    )


def test_the_high_watermark_moves_when_min_isr_is_lowered() -> None:
    b = Bench("n1", "0e1 1e1")
    b.metadata("n1", 2, "n1", at=5, min_isr=2)
    assert b.r.hw == 0, "one in sync, two needed"
    b.metadata("n1", 2, "n1", at=6, min_isr=1)
    assert b.r.hw == 2


def test_a_waiting_producer_gets_an_error_when_min_isr_is_raised() -> None:
    b = Bench("n1")
    b.metadata("n1", 1, "n1 n2", at=1, min_isr=2)
    assert b.produce() is None
    b.metadata("n1", 1, "n1 n2", at=2, min_isr=3)
    answer = b.last(ProduceResponse)
    assert answer is not None
    assert (answer.error, answer.appended) == (Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND, True)
    refused = b.produce()
    assert refused is not None
    assert (refused.error, refused.appended) == (Error.NOT_ENOUGH_REPLICAS, False)


def test_a_leader_that_has_not_heard_of_a_new_min_isr_is_not_let_change_the_isr() -> None:
    """Otherwise it could commit alone while the controller counts on the high watermark standing
    still (KAFKA-16540)."""
    d = Desk(min_isr=1)
    old = d.state.partition_epoch
    d.set_min_isr(2)
    assert d.alter("n1", partition_epoch=old).error is Error.INVALID_UPDATE_VERSION
    assert d.state.isr == ("n1", "n2", "n3")


# -- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        (ElectLeader(partition="log-7"), "unknown-partition: there is no partition log-7"),
        (
            ReassignReplicas(partition="log-7", replicas=("n1",)),
            "unknown-partition: there is no partition log-7",
        ),
        (SetMinIsr(topic="lo", min_isr=1), "unknown-partition: there is no topic lo"),
        (SetMinIsr(topic="log", min_isr=0), "invalid-request: min_isr is 1 or more, not 0"),
        (
            CreateTopic(topic="more", partitions=1, replication_factor=4, min_isr=1),
            "invalid-request: replication factor 4 needs as many live brokers, there are 3",
        ),
        (
            CreateTopic(topic="log", partitions=1, replication_factor=1, min_isr=1),
            "topic log is there already",
        ),
    ],
)
def test_the_answer_to_a_command_that_changes_nothing(command: AdminRequest, answer: str) -> None:
    d = Desk()
    end = d.node.quorum.r.leo
    assert d.admin(command) == answer
    assert d.node.quorum.r.leo == end


@pytest.mark.parametrize(
    "command",
    [
        ElectLeader(partition=PARTITION),
        ReassignReplicas(partition=PARTITION, replicas=("n1",)),
        SetMinIsr(topic="log", min_isr=1),
    ],
)
def test_where_votes_decide_there_is_nothing_to_command(command: AdminRequest) -> None:
    d = Desk(protocol="quorum")
    assert d.admin(command) == (
        "invalid-request: votes decide who leads, among replicas that stay as they are"
    )


def test_only_the_controller_answers_and_only_when_it_has_committed() -> None:
    world = World(2, voters=3)
    world.run_for(1500)
    world.create_topic()
    controller = world.nodes["n1"].ctx.controller
    others = [v for v in world.voter_names if v != controller]
    command = SetMinIsr(topic="log", min_isr=1)

    def answers() -> list[AdminResponse]:
        return [m for _, m, _ in world.mail if isinstance(m, AdminResponse)]

    world.mail.clear()
    world.send(others[0], command)
    world.run_for(10)
    (refused,) = answers()
    assert (refused.error, refused.leader) == (Error.NOT_CONTROLLER, controller)
    world.mail.clear()
    world.isolate(controller)
    world.send(controller, command)
    world.run_for(300)
    assert answers() == [], "nobody else has it"
    world.heal()
    world.run_for(1500)
    for voter in world.voter_names:
        world.send(voter, command)
    world.run_for(50)
    assert sorted(a.error for a in answers()) == [
        Error.NONE,
        Error.NOT_CONTROLLER,
        Error.NOT_CONTROLLER,
    ]
