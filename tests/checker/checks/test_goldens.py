"""Every anomaly has a history that shows it and one just short of it: the checker tells which."""

from __future__ import annotations

from pathlib import Path

import pytest

from checker.formats.anomalies import CATALOGUE, KINDS, Needs
from checker.formats.verdict import RunResult, Verdict
from tests.support.checker.goldens import GOLDENS

EXERCISE = {kind.name for kind in CATALOGUE if kind.needs is Needs.EXERCISE}


def found(result: RunResult, name: str) -> dict[str, int]:
    """All anomalies by name with their counts, lack of exercise only where it is the subject."""
    counts: dict[str, int] = {}
    for anomaly in result.anomalies:
        if anomaly.name not in EXERCISE or name in EXERCISE:
            counts[anomaly.name] = counts.get(anomaly.name, 0) + anomaly.count
    return counts


def test_every_anomaly_has_its_goldens() -> None:
    assert sorted(GOLDENS) == sorted(kind.name for kind in CATALOGUE)


@pytest.mark.parametrize("name", GOLDENS)
def test_a_history_that_has_it(tmp_path: Path, name: str) -> None:
    golden = GOLDENS[name]
    result = golden.story(bad=True).check(tmp_path)
    assert found(result, name) == golden.bad
    assert not any("failed" in problem for problem in result.problems), result.problems
    mine = next(a for a in result.anomalies if a.name == name)
    assert mine.message.endswith(".")
    if KINDS[name].needs is Needs.INFORMATION:
        assert mine.verdict is Verdict.VALID
        assert mine.allowed
    elif name in EXERCISE:
        assert mine.verdict is Verdict.NOT_EXERCISED
    else:
        assert result.verdict is Verdict.INVALID


@pytest.mark.parametrize("name", GOLDENS)
def test_a_history_just_short_of_it(tmp_path: Path, name: str) -> None:
    golden = GOLDENS[name]
    result = golden.story(bad=False).check(tmp_path)
    assert found(result, name) == golden.good
    assert result.verdict is not Verdict.INVALID
    assert not any("failed" in problem for problem in result.problems), result.problems
