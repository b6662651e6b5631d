"""How soon a blind search meets bugs that it has met before. It may become better, not worse."""

from __future__ import annotations

import math

import pytest

from harness.search import museum

WITHIN = {
    "high-watermark-1": 60, "M1": 60, "M8": 30, "M17": 100, "M18": 30,
    "M19": 20, "M20": 80, "M22": 20,
}  # fmt: skip
"""Exhibit -> schedules of seed 0 within which a run must break the property it is known for."""

EXHIBITS = {exhibit.code: exhibit for exhibit in museum.exhibits()}


@pytest.mark.slow
@pytest.mark.parametrize("code", WITHIN)
def test_a_bug_is_still_found_soon(code: str) -> None:
    found = museum.hunt(EXHIBITS[code], 0, math.inf, schedules=WITHIN[code], shrink=False)
    assert found.found, f"not found within {found.schedules} schedules"
