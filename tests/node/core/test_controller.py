"""The controller: what it decides when brokers come, go and restart, and when leaders propose.

A story is told to one voter that is its own majority, and printed as a table (`controller_desk`).
"""

from __future__ import annotations

import random

import pytest

from node.core.api import NodeConfig, Tick
from node.core.broker import Broker
from node.core.messages import AdminResponse, CreateTopic, Error
from tests.support.controller_desk import MS, Desk
from tests.support.replica_bench import PARTITION

# -- stories --------------------------------------------------------------------------------------


def test_the_last_one_standing_dies_uncleanly() -> None:
    """Worked example 5.2.2: nothing is lost, for the ELR member takes over."""
    d = Desk()
    d.alter("n1 n3")
    d.row("2 lags")
    d.alter("n1")
    d.row("3 lags")
    d.fence("n1")
    d.row("1 dies")
    d.start("n1", lost_data=True)
    d.row("1 is back without its tail")
    d.alter(f"n1@{d.epochs['n1']} n3")
    d.row("1 caught up")
    assert (
        d.table()
        == """
topic made                 n1   1  1  isr 123  elr      lost
2 lags                     n1   1  2  isr 13   elr      lost
3 lags                     n1   1  3  isr 1    elr 3    lost
1 dies                     n3   2  4  isr 3    elr 1    lost
1 is back without its tail n3   2  5  isr 3    elr      lost 1
1 caught up                n3   2  6  isr 13   elr      lost
"""
    )


def test_the_power_goes_out_for_all_one_after_the_other() -> None:
    """Worked example 5.3.3, up to where the last known ELR must be asked."""
    d = Desk()
    d.fence("n1")
    d.row("fence 1")
    d.fence("n2")
    d.row("fence 2")
    d.fence("n3")
    d.row("fence 3")
    d.enroll("n1", lost_data=True)
    d.row("1 registers, lost data")
    d.enroll("n2", lost_data=True)
    d.row("2 registers, lost data")
    d.enroll("n3", lost_data=True)
    d.row("3 registers, lost data")
    assert (
        d.table()
        == """
topic made                 n1   1  1  isr 123  elr      lost
fence 1                    n2   2  2  isr 23   elr      lost
fence 2                    n3   3  3  isr 3    elr 2    lost
fence 3                    -    4  4  isr      elr 23   lost
1 registers, lost data     -    4  4  isr      elr 23   lost
2 registers, lost data     -    4  5  isr      elr 3    lost 2
3 registers, lost data     -    4  6  isr      elr      lost 23
"""
    )


def test_all_stop_cleanly_and_come_back() -> None:
    d = Desk()
    for name in ("n3", "n1", "n2"):
        d.fence(name)
        d.row(f"fence {name[1:]}")
    d.start("n3")
    d.row("3 is back")
    d.start("n1")
    d.row("1 is back")
    d.alter(f"n1@{d.epochs['n1']}")
    d.start("n2")
    d.row("2 is back")
    d.alter(f"n1 n2@{d.epochs['n2']} n3@{d.epochs['n3']}")
    d.row("all caught up")
    assert (
        d.table()
        == """
topic made                 n1   1  1  isr 123  elr      lost
fence 3                    n1   1  2  isr 12   elr      lost
fence 1                    n2   2  3  isr 2    elr 1    lost
fence 2                    -    3  4  isr      elr 12   lost
3 is back                  -    3  4  isr      elr 12   lost
1 is back                  n1   4  5  isr 1    elr 2    lost
2 is back                  n1   4  6  isr 1    elr 2    lost
all caught up              n1   4  7  isr 123  elr      lost
"""
    )


def test_with_min_isr_1_only_the_last_leader_may_come_back() -> None:
    d = Desk(min_isr=1)
    for name in ("n1", "n2", "n3"):
        d.fence(name)
        d.row(f"fence {name[1:]}")
    d.start("n1")
    d.row("1 is back")
    d.start("n3")
    d.row("3 is back")
    assert (
        d.table()
        == """
topic made                 n1   1  1  isr 123  elr      lost
fence 1                    n2   2  2  isr 23   elr      lost
fence 2                    n3   3  3  isr 3    elr      lost
fence 3                    -    4  4  isr      elr 3    lost
1 is back                  -    4  4  isr      elr 3    lost
3 is back                  n3   5  5  isr 3    elr      lost
"""
    )


def test_an_unclean_election_takes_any_active_replica_and_records_it() -> None:
    d = Desk(unclean_election=True)
    d.alter("n1 n2")
    d.fence("n2")
    d.row("fence 2")
    assert not d.state.unclean, "n1 is in sync"
    d.fence("n1")
    d.row("fence 1")
    assert d.state.unclean, "3 was not in sync"
    d.fence("n3")
    d.row("fence 3")
    d.start("n3")
    d.row("3 is back")
    assert not d.state.unclean, "it has all there is now"
    assert (
        d.table()
        == """
topic made                 n1   1  1  isr 123  elr      lost
fence 2                    n1   1  3  isr 1    elr 2    lost
fence 1                    n3   2  4  isr 3    elr      lost 12
fence 3                    -    3  5  isr      elr 3    lost 12
3 is back                  n3   4  6  isr 3    elr      lost 12
"""
    )


@pytest.mark.parametrize("unclean", [False, True])
def test_the_controller_appoints_no_leader_where_votes_decide(unclean: bool) -> None:
    d = Desk(protocol="quorum", unclean_election=unclean)
    made = d.state
    assert (made.leader, made.isr) == ("", ())
    d.fence("n1")
    d.start("n1")
    assert d.state == made


def test_a_follower_leaves_and_the_leader_stays() -> None:
    d = Desk()
    d.fence("n2")
    d.row("fence 2")
    d.start("n2")
    d.row("2 is back, not in sync")
    assert (
        d.table()
        == """
topic made                 n1   1  1  isr 123  elr      lost
fence 2                    n1   1  2  isr 13   elr      lost
2 is back, not in sync     n1   1  2  isr 13   elr      lost
"""
    )


def test_the_next_leader_is_the_first_in_sync_in_replica_order() -> None:
    d = Desk()
    d.alter("n1 n3")
    d.fence("n1")
    d.row("")
    assert d.rows[-1].split()[0] == "n3", "not n2, which is first but not in sync"


# -- brokers --------------------------------------------------------------------------------------


def test_a_broker_epoch_is_the_offset_of_its_registration() -> None:
    d = Desk(start="")
    end = d.node.quorum.r.leo
    assert d.register("n1", 1).broker_epoch == end
    assert d.register("n2", 1).broker_epoch == end + 1


def test_the_same_process_that_asks_again_gets_the_same_epoch() -> None:
    d = Desk()
    before = d.state
    again = d.register("n1", 1)
    assert (again.error, again.broker_epoch) == (Error.NONE, d.epochs["n1"])
    assert d.state == before


def test_a_second_process_waits_until_the_first_is_fenced() -> None:
    d = Desk()
    assert d.register("n1", 2).error is Error.DUPLICATE_REGISTRATION
    d.fence("n1")
    assert d.register("n1", 2).error is Error.NONE


def test_a_registration_of_a_process_before_the_present_one_is_refused() -> None:
    """A copy that was long under way. Were it accepted, the process that lives would be told for
    ever that its epoch is stale."""
    d = Desk()
    d.fence("n1")
    d.enroll("n1")
    assert d.incarnations["n1"] == 2
    late = d.register("n1", 1)
    assert late.error is Error.DUPLICATE_REGISTRATION
    assert d.beat("n1").error is Error.NONE


def test_a_registered_broker_is_fenced_until_it_has_applied_its_registration() -> None:
    d = Desk()
    d.fence("n1")
    d.enroll("n1")
    epoch = d.epochs["n1"]
    assert d.beat("n1", offset=epoch).fenced, "its own record is the next it will apply"
    assert not d.beat("n1", offset=epoch + 1).fenced


def test_a_fenced_process_that_speaks_again_is_unfenced_with_the_same_epoch() -> None:
    d = Desk()
    d.fence("n1")
    assert d.node.ctx.image.brokers["n1"].fenced
    assert not d.beat("n1").fenced
    assert d.node.ctx.image.broker_epoch("n1") == d.epochs["n1"]
    assert "n1" not in d.state.isr, "it has to catch up like everyone"


def test_a_heartbeat_of_another_process_is_refused() -> None:
    d = Desk()
    assert d.beat("n1", epoch=d.epochs["n1"] + 1).error is Error.STALE_BROKER_EPOCH
    d.fence("n1")
    d.enroll("n1")
    assert d.beat("n1", epoch=0).error is Error.STALE_BROKER_EPOCH


def test_silence_is_counted_from_when_the_controller_could_hear() -> None:
    d = Desk()
    d.now_us += 60_000 * MS
    config = NodeConfig(node="v1", voters=("v1",), brokers=("n1", "n2", "n3"))
    d.node = Broker(config, d.disk, random.Random(1), d.now_us)
    d._step(Tick())
    d.now_us += 1_400 * MS
    d._step(Tick())
    assert d.state.isr == ("n1", "n2", "n3")
    d.now_us += 200 * MS
    d._step(Tick())
    assert d.state.leader == ""


# -- proposals ------------------------------------------------------------------------------------


def test_an_accepted_proposal_is_answered_with_the_present_state() -> None:
    d = Desk()
    answer = d.alter("n3 n1")
    assert (answer.error, answer.request_epoch, answer.partition_epoch) == (Error.NONE, 1, 2)
    assert answer.isr == ("n1", "n3"), "in replica order"


@pytest.mark.parametrize(
    ("isr", "change", "error"),
    [
        ("n1 n2", {"partition": "log-7"}, Error.UNKNOWN_PARTITION),
        ("n1 n2", {"leader_epoch": 3}, Error.NOT_CONTROLLER),
        ("n1 n2", {"partition_epoch": 4}, Error.NOT_CONTROLLER),
        ("n1 n2", {"leader_epoch": 1}, Error.FENCED_LEADER_EPOCH),
        ("n1 n2", {"leader_epoch": 1, "partition_epoch": 2}, Error.FENCED_LEADER_EPOCH),
        ("n1 n2", {"partition_epoch": 2}, Error.INVALID_UPDATE_VERSION),
        ("n1 n2", {"broker_epoch": 0}, Error.STALE_BROKER_EPOCH),
        ("n1 n2", {"broker": "n1", "broker_epoch": 1}, Error.INVALID_REQUEST),
        ("n1", {}, Error.INVALID_REQUEST),
        ("n2 n4", {}, Error.INVALID_REQUEST),
        ("n2 n2", {}, Error.INVALID_REQUEST),
        ("n2 n3", {}, Error.INELIGIBLE_REPLICA),
        ("n2 n1@0", {}, Error.INELIGIBLE_REPLICA),
    ],
)
def test_why_a_proposal_is_refused(isr: str, change: dict[str, object], error: Error) -> None:
    """n2 leads epoch 2 since n1 was fenced and came back; n3 is fenced. Partition epoch 3."""
    d = Desk()
    d.fence("n1")
    d.start("n1")
    d.fence("n3")
    assert (d.state.leader, d.state.leader_epoch, d.state.partition_epoch) == ("n2", 2, 3)
    if change.get("broker_epoch") == 1:
        change = {**change, "broker_epoch": d.epochs["n1"]}
    before = d.state
    assert d.alter(isr, **change).error is error
    assert (d.state.isr, d.state.elr, d.state.leader) == (before.isr, before.elr, before.leader)


def test_only_a_final_refusal_burns_the_partition_epoch() -> None:
    d = Desk()
    d.alter("n1 n2")
    d.fence("n3")
    refused = d.alter("n1 n2 n3")
    assert (refused.error, refused.partition_epoch) == (Error.INELIGIBLE_REPLICA, 3)
    d.start("n3")
    late_copy = d.alter("n1 n2 n3", partition_epoch=2)
    assert late_copy.error is Error.INVALID_UPDATE_VERSION
    assert d.state.partition_epoch == 3
    assert d.alter(f"n1 n2 n3@{d.epochs['n3']}").error is Error.NONE


def test_a_restarted_follower_is_not_taken_in_for_its_former_self() -> None:
    """KIP-903: the proposal was made for the process before."""
    d = Desk()
    d.alter("n1 n2")
    seen = d.epochs["n3"]
    d.fence("n3")
    d.start("n3", lost_data=True)
    assert d.alter(f"n1 n2 n3@{seen}").error is Error.INELIGIBLE_REPLICA


# -- topics ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"replication_factor": 4},
        {"replication_factor": 0},
        {"replication_factor": -1},
        {"partitions": 0},
        {"min_isr": 0},
        {"topic": ""},
        {"topic": "a b"},
        {"topic": "x" * 300},
        {"topic": "__cluster_metadata"},
    ],
)
def test_a_topic_that_cannot_be(wrong: dict[str, object]) -> None:
    d = Desk()
    wish = {"topic": "other", "partitions": 1, "replication_factor": 3, "min_isr": 2} | wrong
    answer = d.ask(CreateTopic(**wish))  # type: ignore[arg-type]
    assert isinstance(answer, AdminResponse)
    assert answer.error is Error.INVALID_REQUEST
    assert list(d.node.ctx.image.partitions) == [PARTITION]


def test_a_topic_is_spread_over_the_brokers_and_made_once() -> None:
    d = Desk()
    wish = CreateTopic(topic="t", partitions=3, replication_factor=2, min_isr=1)
    for _ in range(2):
        answer = d.ask(wish)
        assert isinstance(answer, AdminResponse)
        assert answer.error is Error.NONE
    made = {n: s.replicas for n, s in d.node.ctx.image.partitions.items() if n.startswith("t-")}
    assert made == {"t-0": ("n1", "n2"), "t-1": ("n2", "n3"), "t-2": ("n3", "n1")}
