"""Commands of an operator that are sent again (the faults are scripts)."""

from __future__ import annotations

import pytest

from harness.systems.floodmark.admin import AdminCall
from node.formats.messages import AdminResponse, ElectLeader, Error


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
