"""A command to the controller, from the first voter that is asked to the answer."""

from __future__ import annotations

import pytest

from harness.systems.floodmark.admin import ASK_EVERY_US, AdminCall
from node.formats.messages import AdminResponse, ElectLeader, Error, SetMinIsr

VOTERS = ("v1", "v2", "v3")


def call() -> AdminCall:
    return AdminCall(VOTERS, SetMinIsr(topic="log", min_isr=1, corr=7))


def test_voters_are_asked_in_turn_while_they_are_silent() -> None:
    c = call()
    asked = [c.step(ms * 1000) for ms in range(0, 4000, 250)]
    assert [name for name in asked if name] == ["v1", "v2", "v3", "v1"]
    assert asked.index("v2") * 250_000 == ASK_EVERY_US


def test_who_is_named_as_the_controller_is_asked_at_once() -> None:
    c = call()
    assert c.step(0) == "v1"
    c.step(1_000, AdminResponse(corr=6))
    assert c.answer is None, "an answer to the command before is not for this one"
    # Who knows no controller is left alone for a while.
    assert c.step(5_000, AdminResponse(corr=7, error=Error.NOT_CONTROLLER)) == ""
    assert c.step(105_000) == "v2"
    moved = AdminResponse(corr=7, error=Error.NOT_CONTROLLER, leader="v3")
    assert c.step(106_000, moved) == "v3"
    assert c.step(107_000) == ""


def test_the_first_answer_of_a_controller_is_final() -> None:
    c = call()
    c.step(0)
    refused = AdminResponse(corr=7, error=Error.INVALID_REQUEST, detail="no")
    assert c.step(9_000, refused) == ""
    c.step(10_000, AdminResponse(corr=7))
    assert c.answer == refused
    assert c.step(9_000_000) == "", "nobody is asked any more"


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
