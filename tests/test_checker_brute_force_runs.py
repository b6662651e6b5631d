"""Liveness, exercise and leadership against slow definitions, on runs drawn at random."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, given, settings

from checker.verdict import RunResult, Verdict
from tests.checker import life_histories
from tests.checker.life_definitions import (
    LEADERSHIP_SHOWS,
    LIFE_SHOWS,
    Leadership,
    LifeDefinitions,
)
from tests.checker.life_histories import Change, Life, led, lives, tell
from tests.checker.story import Story

slow_but_sure = settings(
    max_examples=150, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def counted(s: Story, names: frozenset[str]) -> tuple[Counter[str], RunResult]:
    with tempfile.TemporaryDirectory() as folder:
        found = s.check(Path(folder))
    counts: Counter[str] = Counter()
    for anomaly in found.anomalies:
        if anomaly.name in names:
            counts[anomaly.name] += anomaly.count
    assert not any("failed" in problem for problem in found.problems), found.problems
    return counts, found


@slow_but_sure
@given(lives)
def test_runs_agree_with_the_definitions(life: Life) -> None:
    s = tell(life)
    counts, found = counted(s, LIFE_SHOWS)
    due = LifeDefinitions(s).counts()
    unknown = due.pop("liveness unknown", 0)
    assert counts == due
    liveness = next(p for p in found.properties if p.property == "liveness")
    if unknown:
        assert liveness.verdict in (Verdict.UNKNOWN, Verdict.INVALID)
    else:
        assert liveness.verdict is not Verdict.UNKNOWN


@slow_but_sure
@given(life_histories.changes)
def test_leadership_agrees_with_the_definitions(told: list[Change]) -> None:
    s = led(told)
    counts, _ = counted(s, LEADERSHIP_SHOWS)
    assert counts == Leadership(s).counts()
