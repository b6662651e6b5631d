"""How soon a blind search meets bugs that it has met before. It may become better, not worse."""

from __future__ import annotations

import math

import pytest

from harness.search import known_bugs

WITHIN = {
    "high-watermark-1": 30,
    "kip-101-2": 60,
    "quorum-naive-1": 150,
    "M1": 20,
    "M2d": 60,
    "M6": 80,
    "M8": 50,
    "M10": 140,
    "M17": 60,
    "M18": 40,
    "M19": 10,
    "M20": 20,
    "M22": 30,
    "LB2": 300,
}
"""KnownBug -> schedules of seed 0 within which a run must break the property it is known for: about
four times as many as it takes, since any change of what is drawn is another throw of the dice."""

KNOWN_BUGS = {target.code: target for target in known_bugs.search_targets()}


@pytest.mark.nightly
@pytest.mark.parametrize("code", WITHIN)
def test_a_bug_is_still_found_soon(code: str) -> None:
    found = known_bugs.search(KNOWN_BUGS[code], 0, math.inf, schedules=WITHIN[code], shrink=False)
    assert found.found, f"not found within {found.schedules} schedules"
