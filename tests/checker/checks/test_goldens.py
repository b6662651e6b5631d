"""Every anomaly has a history that shows it and one just short of it: the checker tells which, and
so does its slow definition."""

from __future__ import annotations

from pathlib import Path

import pytest

from checker.formats.anomalies import KINDS, Needs
from checker.formats.verdict import RunResult, Verdict
from tests.support.checker.agreed import EXERCISE, compared
from tests.support.checker.goldens import GOLDENS


def judged(name: str, bad: bool, folder: Path) -> RunResult:
    """Judge a golden: the checker finds what the golden states, and what the definitions find."""
    story = GOLDENS[name].story(bad)
    result = story.check(folder)
    counts: dict[str, int] = {}
    for anomaly in result.anomalies:
        if anomaly.name not in EXERCISE or name in EXERCISE:
            counts[anomaly.name] = counts.get(anomaly.name, 0) + anomaly.count
    assert counts == GOLDENS[name].found[bad]
    assert compared(result, story) == "", "the slow definition in tests/support/checker/ differs"
    return result


def test_every_anomaly_has_its_goldens() -> None:
    assert sorted(GOLDENS) == sorted(KINDS)


@pytest.mark.parametrize("name", GOLDENS)
def test_a_history_that_has_it(tmp_path: Path, name: str) -> None:
    result = judged(name, True, tmp_path)
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
    assert judged(name, False, tmp_path).verdict is not Verdict.INVALID
