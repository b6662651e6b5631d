"""Faults that an operator makes: commands to the controller, shutdowns, upgrades."""

from __future__ import annotations

from typing import Any

import pytest

from harness.systems.floodmark.admin import AdminCall, request_of
from harness.systems.floodmark.brokers import check_upgrades
from nemesis.faults import Upgrade
from nemesis.formats.schedule import Cluster, Fault, Schedule
from nemesis.world import Command
from node.core.messages import AdminResponse, ElectLeader, Error, ReassignReplicas
from node.core.messages import SetMinIsr as SetMinIsrRequest
from node.formats.errors import UsageError


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
