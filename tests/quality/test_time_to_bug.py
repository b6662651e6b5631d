"""How soon a blind search meets bugs that it has met before. It may become better, not worse."""

from __future__ import annotations

import pytest

from harness.search import museum
from harness.search.attempt import attempt

WITHIN = {
    "high-watermark-1": 60, "M1": 60, "M8": 30, "M17": 100, "M18": 30,
    "M19": 20, "M20": 80, "M22": 20,
}  # fmt: skip
"""Exhibit -> schedules of seed 0 within which a run must break the property it is known for."""

EXHIBITS = {exhibit.code: exhibit for exhibit in museum.exhibits()}


@pytest.mark.slow
@pytest.mark.parametrize("code", WITHIN)
def test_a_bug_is_still_found_soon(code: str) -> None:
    exhibit = EXHIBITS[code]
    drawn = (museum.drawn(exhibit, 0, number) for number in range(WITHIN[code]))
    found = (s for s in drawn if attempt(s).failed and museum.shows(exhibit, s) is not None)
    assert next(found, None) is not None
