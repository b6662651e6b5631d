"""The kernels of logs and traces against slow definitions, on logs that went astray at random."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, given, settings

from tests.checker.log_definitions import LogDefinitions
from tests.checker.log_histories import LOGS_SHOW, Run, runs, tell
from tests.checker.story import P


@settings(
    max_examples=150, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(runs)
def test_logs_and_traces_agree_with_the_definitions(run: Run) -> None:
    s = tell(*run)
    with tempfile.TemporaryDirectory() as folder:
        found = s.check(Path(folder))
    counts: Counter[str] = Counter()
    for anomaly in found.anomalies:
        if anomaly.name in LOGS_SHOW and anomaly.partition == P:
            counts[anomaly.name] += anomaly.count
    assert counts == LogDefinitions(s).counts()
    assert not any("failed" in problem for problem in found.problems), found.problems
