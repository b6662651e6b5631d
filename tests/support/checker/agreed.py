"""The checker against the slow definitions, on one story."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

from checker.formats.anomalies import CATALOGUE, Needs
from checker.formats.verdict import RunResult, Verdict
from tests.support.checker.defined import everything, whole
from tests.support.checker.definitions import EXCUSED
from tests.support.checker.story import Story

EXERCISE = frozenset(kind.name for kind in CATALOGUE if kind.needs is Needs.EXERCISE)


def agreed(s: Story) -> Counter[str]:
    """What the checker finds in a story; it must be what the definitions say, in every respect."""
    with tempfile.TemporaryDirectory() as folder:
        found = s.check(Path(folder))
    due, excused = everything(s)
    unknown = {name.removesuffix(" unknown") for name in due if name.endswith(" unknown")}
    counts, allowed = Counter[str](), Counter[str]()
    for anomaly in found.anomalies:
        counts[anomaly.name] += anomaly.count
        if anomaly.name in EXCUSED and anomaly.allowed:
            allowed[anomaly.name] += anomaly.count
    assert counts == Counter({name: n for name, n in due.items() if not name.endswith("unknown")})
    assert allowed == excused
    if whole(s):
        assert _unknown(found) == unknown - _invalid(found)
    assert not any("failed" in problem for problem in found.problems), found.problems
    return counts


def _unknown(found: RunResult) -> set[str]:
    return {p.property for p in found.properties if p.verdict is Verdict.UNKNOWN}


def _invalid(found: RunResult) -> set[str]:
    return {p.property for p in found.properties if p.verdict is Verdict.INVALID}
