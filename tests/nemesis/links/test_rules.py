"""The faults `link` and `power-cut`: what a file may say, what they do, what they may cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.runs.options import RunRequest, to_schedule
from nemesis import ready_made
from nemesis.draw import draw
from nemesis.faults import Kill, Link, PowerCut, Reassign
from nemesis.faults.losses import outnumber_copies
from nemesis.formats.schedule import Cluster, Expectation, Fault, Schedule, Workload, check, parse
from node.formats.errors import UsageError
from node.formats.trace import matches
from tests.support.nemesis_world import Storm

DROP: dict[str, Any] = {"what": "link", "at_ms": 0, "on": "n1", "to": "n2", "action": "drop"}
POWER: dict[str, Any] = {"what": "power-cut", "at_ms": 0, "on": "n1"}


@pytest.mark.parametrize(
    ("fault", "wrong"),
    [
        (DROP | {"action": "tear"}, "tear"),
        (DROP | {"percent": 0}, "percent: expected `int` >= 1"),
        (DROP | {"limit": 0}, "limit: expected `int` >= 1"),
        (DROP | {"delay_ms": 5}, "a drop takes no delay_ms"),
        (DROP | {"action": "delay", "jitter_ms": -1}, "jitter_ms: expected `int` >= 0"),
        (DROP | {"kinds": ["fetchd"]}, "no message of kind 'fetchd'"),
        (DROP | {"match": {"colour": 1}}, "no message has a field 'colour'"),
        (DROP | {"kinds": ["fetch"], "match": {"hw": 1}}, "of kind fetch has a field 'hw'"),
        (DROP | {"match": {"hw": {"above": 1}}}, "a bound is written at_least or at_most"),
        (DROP | {"match": {"hw": {"given": 1.5}}}, "a condition given"),
        (DROP | {"match": {"hw": {"at_least": "many"}}}, "at_least and at_most are numbers"),
        (DROP | {"match": {"hw": {"at_most": True}}}, "at_least and at_most are numbers"),
        (DROP | {"match": {"hw": [[1]]}}, "a number, a text, or a short list"),
        (DROP | {"action": "delay", "delay_ms": 2**31}, "delay_ms: expected `int` <= 2147483647"),
        (DROP | {"at_ms": 2**31}, "at_ms: expected `int` <= 2147483647"),
        (DROP | {"to": "n9"}, "no node 'n9'"),
        (POWER | {"keep_percent": 101}, "keep_percent: expected `int` <= 100"),
        (POWER | {"keep_percent": -1}, "keep_percent: expected `int` >= 0"),
    ],
)
def test_what_could_not_be_carried_out_is_refused(fault: dict[str, Any], wrong: str) -> None:
    text = msgspec.json.encode({"floodmark_schedule": 1, "faults": [fault]})
    with pytest.raises(UsageError, match=wrong):
        parse(text)


def test_a_file_says_the_same_when_written_and_read_again() -> None:
    rule = DROP | {"match": {"hw": {"at_least": 50}, "partition": "log-0"}, "limit": 3}
    made = parse(msgspec.json.encode({"floodmark_schedule": 1, "faults": [rule, POWER]}))
    assert parse(made.to_json()) == made
    assert isinstance(made.faults[0], Link)
    assert isinstance(made.faults[1], PowerCut)


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [({"given": True}, ["told"]), ({"given": False}, ["null", "absent"]), (True, [])],
)
def test_a_field_may_be_asked_to_be_there(wanted: object, fits: list[str]) -> None:
    """What an answer says of where logs diverge is a pair of numbers: no plain value fits all."""
    headers: dict[str, dict[str, object]] = {
        "told": {"diverging": (1, 4)},
        "null": {"diverging": None},
        "absent": {},
    }
    assert [n for n, header in headers.items() if matches(header, {"diverging": wanted})] == fits


@pytest.mark.parametrize(("two_way", "links"), [(False, ["n1>n2"]), (True, ["n1>n2", "n2>n1"])])
def test_a_link_fault_is_its_rule_and_outlives_a_restart(two_way: bool, links: list[str]) -> None:
    wanted = {"hw": {"at_least": 50}}
    storm = Storm(
        Link(
            on="n1",
            to="n2",
            action="duplicate",
            two_way=two_way,
            kinds=("fetch-response",),
            match=wanted,
            percent=40,
            delay_ms=7,
            jitter_ms=2,
            limit=9,
            at_ms=10,
        ),
        Kill(on="n2", at_ms=20, for_ms=10),
    )
    storm.run(50)
    rules = list(storm.world.rules.values())
    assert [f"{rule.senders[0]}>{rule.receivers[0]}" for rule in rules] == links
    for rule in rules:
        assert (rule.action, rule.kinds, rule.match) == ("duplicate", ("fetch-response",), wanted)
        assert (rule.percent, rule.delay_ms, rule.jitter_ms, rule.limit) == (40, 7, 2, 9)
    storm.injector.heal_all()
    assert not storm.world.rules


def power_cut(*nodes: str, keep: int | None = None) -> Storm:
    storm = Storm(PowerCut(on=",".join(nodes), at_ms=10, for_ms=20, keep_percent=keep))
    storm.run(50)
    return storm


def test_a_power_cut_tells_what_it_took_and_is_healed_by_a_start() -> None:
    storm = power_cut("n1", keep=25)
    assert storm.world.log == ["10 power_cut n1", "30 start n1"]
    assert storm.told() == ["0 inject n1: n1 kept 250 of 1000 unsynced bytes", "0 heal n1"]


def test_each_node_loses_its_own_share_and_always_the_same() -> None:
    first, again = power_cut("n1", "n2"), power_cut("n1", "n2")
    assert first.told() == again.told()
    one, other = first.lines[0]["detail"].split("; ")
    assert one.split()[2] != other.split()[2]


def test_a_dead_node_has_no_power_to_lose() -> None:
    storm = Storm(Kill(on="n1", at_ms=5), PowerCut(on="n1", at_ms=10))
    storm.run(20)
    assert storm.told()[-1] == "1 missed n1: n1 is down already"


def test_storms_cut_power_only_when_asked_to() -> None:
    cluster, workload = Cluster(), Workload()
    for seed in range(20):
        drawn = draw(cluster, workload, ["all"], seed)
        assert not any(isinstance(fault, PowerCut | Link) for fault in drawn)
    drawn = draw(cluster, workload, ["power-cut"], 1)
    assert drawn
    assert all(isinstance(fault, PowerCut) for fault in drawn)
    check(Schedule(faults=drawn))
    with pytest.raises(UsageError, match="fault 'link' is never drawn"):
        draw(cluster, workload, ["link"], 1)


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


def test_a_ready_made_schedule_is_run_by_its_name_and_under_another_protocol() -> None:
    name = Path("kip-101-scenario-1")
    asis = to_schedule(RunRequest(schedule=name))
    assert asis == ready_made.load("kip-101-scenario-1")
    other = to_schedule(RunRequest(schedule=name, protocol="kip-101"))
    assert other.cluster.protocol == "kip-101"
    assert other.faults == asis.faults
    assert other.expectation == Expectation()
    with pytest.raises(UsageError, match="no ready-made schedule 'kip-0'"):
        to_schedule(RunRequest(schedule=Path("kip-0")))
