"""Faults that an operator makes: commands to the controller, shutdowns, upgrades."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from harness.systems.floodmark.admin import AdminCall, request_of
from harness.systems.floodmark.brokers import check_upgrades, promise_of
from nemesis.faults import (
    ElectPreferred,
    ElectUnclean,
    PowerCut,
    Reassign,
    SetMinIsr,
    Stop,
    Upgrade,
)
from nemesis.formats.schedule import Cluster, Fault, Schedule, parse
from nemesis.world import Command
from node.core.messages import AdminResponse, ElectLeader, Error, ReassignReplicas
from node.core.messages import SetMinIsr as SetMinIsrRequest
from node.formats.errors import UsageError
from tests.support.nemesis_world import Storm


def test_commands_go_to_the_controller_one_after_the_other() -> None:
    storm = Storm(
        ElectPreferred(partition="log-1", at_ms=10),
        Reassign(partition="log-0", replicas="n2,n1", at_ms=20),
        Reassign(partition="log-0", replicas="", at_ms=30),
        SetMinIsr(min_isr=1, at_ms=40),
        ElectUnclean(partition="log-1", at_ms=50),
        ElectPreferred(partition="log-0", first="n3", at_ms=60),
    )
    storm.run(100)
    assert storm.world.commands == [
        Command("elect-preferred", "log-1"),
        Command("reassign", "log-0", ("n2", "n1")),
        Command("reassign", "log-0"),
        Command("set-min-isr", min_isr=1),
        Command("elect-unclean", "log-1"),
        Command("elect-preferred", "log-0", ("n3",)),
    ]
    assert storm.told() == [
        "0 inject",
        "1 inject: n2 n1",
        "2 inject",
        "3 inject",
        "4 inject",
        "5 inject: n3",
    ]
    on = ["log-1", "log-0", "log-0", "", "log-1", "log-0"]
    assert [line["on"] for line in storm.lines] == on
    assert storm.injector.exhausted


@pytest.mark.parametrize(
    ("where", "goes"),
    [(("n1", "n2", "n3"), ("n2", "n3", "n4")), (("n3", "n4", "n1"), ("n4", "n1", "n2"))],
)
def test_rotating_moves_each_replica_to_the_next_broker(
    where: tuple[str, ...], goes: tuple[str, ...]
) -> None:
    storm = Storm(Reassign(partition="log-0", replicas="rotate", at_ms=10), brokers=4)
    storm.run(5)
    storm.replicas(*where)
    storm.run(20)
    assert storm.world.commands == [Command("reassign", "log-0", goes)]


@pytest.mark.parametrize(("drawn", "action"), [(False, "missed"), (True, "skipped")])
def test_a_refused_command_had_no_effect(drawn: bool, action: str) -> None:
    storm = Storm(ElectPreferred(partition="log-0", at_ms=10), drawn=drawn)
    storm.world.broken.add("elect-preferred log-0")
    storm.run(20)
    assert storm.told() == [f"0 {action}: cannot elect-preferred log-0"]


def test_a_stopped_node_comes_back_as_a_killed_one_does() -> None:
    storm = Storm(
        Stop(on="n1", at_ms=10, for_ms=30), Stop(on="n1", at_ms=20), Stop(on="n2", at_ms=50)
    )
    storm.run(100)
    assert storm.told() == [
        "0 inject n1",
        "1 missed n1: n1 is down already",
        "0 heal n1",
        "2 inject n2",
    ]
    storm.injector.heal_all()
    assert storm.world.log == ["10 stop n1", "40 start n1", "50 stop n2", "100 start n2"]


def test_an_upgraded_node_is_restarted_with_another_protocol() -> None:
    storm = Storm(Upgrade(on="n1", protocol="kip-279", at_ms=10), protocol="kip-101")
    storm.run(20)
    assert storm.world.log == ["10 set_protocol kip-279 n1", "10 stop n1", "10 start n1"]
    assert storm.told() == ["0 inject n1"]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"what": "elect-preferred", "partition": "log-9"}, "no partition 'log-9'"),
        ({"what": "elect-unclean", "partition": "log-0", "for_ms": 5}, "takes no for_ms"),
        ({"what": "reassign", "partition": "log-0", "replicas": "n1,n9"}, "no broker 'n9'"),
        ({"what": "reassign", "partition": "log-0", "replicas": "n1,v1"}, "no broker 'v1'"),
        ({"what": "reassign", "partition": "log-0", "replicas": "n1,n1"}, "named once"),
        ({"what": "set-min-isr", "min_isr": 4}, "min_isr must be 1..replication_factor"),
        ({"what": "stop", "on": "n7"}, "no node 'n7'"),
        ({"what": "upgrade", "on": "n1", "protocol": "kafka", "for_ms": 1}, "takes no for_ms"),
    ],
)
def test_what_no_cluster_could_do_is_refused(fault: dict[str, Any], message: str) -> None:
    text = {"floodmark_schedule": 1, "faults": [{"at_ms": 1, **fault}]}
    with pytest.raises(UsageError, match=message):
        parse(msgspec.json.encode(text))


@pytest.mark.parametrize(
    ("here", "there", "mixed"),
    [
        ("kip-101", "kip-279", True),
        ("kip-279", "kip-101", True),
        ("kip-101", "kafka", False),
        ("kafka", "kip-279", False),
        ("high-watermark", "kip-101", False),
        ("kip-101", "liftbridge", False),
        ("quorum", "quorum-naive", False),
    ],
)
def test_only_versions_of_one_question_can_be_mixed(here: str, there: str, mixed: bool) -> None:
    schedule = made(Upgrade(on="n1", protocol=there, at_ms=1), protocol=here)
    if mixed:
        check_upgrades(schedule)
        return
    with pytest.raises(UsageError, match=f"{here} and {there} cannot be mixed"):
        check_upgrades(schedule)


def made(*faults: Fault, **cluster: Any) -> Schedule:
    return Schedule(cluster=Cluster(**cluster), faults=faults)


def test_an_unclean_election_may_cost_what_was_acknowledged() -> None:
    promise = promise_of(made(ElectUnclean(partition="log-0", at_ms=1)))
    assert promise.unclean_election
    assert not promise.durable_acks
    assert promise_of(made(ElectPreferred(partition="log-0", at_ms=1))).durable_acks


def test_the_lowest_min_isr_says_how_many_copies_there_are() -> None:
    """One power cut takes the only copy of what was acknowledged while min_isr was 1."""
    cut, lower = PowerCut(on="n1", at_ms=1), SetMinIsr(min_isr=1, at_ms=1)
    assert promise_of(made(cut, flush="async")).durable_acks
    lost = promise_of(made(cut, lower, flush="async"))
    assert (lost.durable_acks, lost.committed_kept) == (False, False)
    assert promise_of(made(cut, SetMinIsr(min_isr=3, at_ms=1), flush="async")).durable_acks
    assert promise_of(made(cut, lower)).durable_acks, "nothing is unsynced"


def test_each_command_has_a_request() -> None:
    assert request_of(Command("elect-preferred", "log-0")) == ElectLeader(partition="log-0")
    assert request_of(Command("elect-preferred", "log-0", ("n2",))) == ElectLeader(
        partition="log-0", first="n2"
    )
    assert request_of(Command("elect-unclean", "log-0")) == ElectLeader(
        partition="log-0", unclean=True
    )
    assert request_of(Command("reassign", "log-0", ("n2",))) == ReassignReplicas(
        partition="log-0", replicas=("n2",)
    )
    assert request_of(Command("set-min-isr", min_isr=2)) == SetMinIsrRequest(topic="log", min_isr=2)


@pytest.mark.parametrize(
    ("answer", "asked", "unchanged"),
    [
        (AdminResponse(), 1, ""),
        (AdminResponse(detail="n1 leads log-0 already"), 1, "n1 leads log-0 already"),
        (AdminResponse(detail="n1 leads log-0 already"), 2, ""),
        (AdminResponse(error=Error.INVALID_REQUEST, detail="no"), 2, "no"),
    ],
)
def test_who_asks_twice_may_find_it_done(answer: AdminResponse, asked: int, unchanged: str) -> None:
    call = AdminCall(["v1"], ElectLeader(partition="log-0"))
    for second in range(asked):
        assert call.step(second * 1_000_000) == "v1"
    call.step(asked * 1_000_000, answer)
    assert call.unchanged == unchanged
