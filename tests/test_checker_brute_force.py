"""The kernels against slow definitions that follow docs/checks.md word by word.

Hypothesis writes tiny histories: wild ones that say anything, and those of a correct log, as they
are and corrupted. The definitions expand every record and compare every pair.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checker.verdict import RunResult
from tests.checker.definitions import EXCUSED, define
from tests.checker.histories import Step, tell, wild
from tests.checker.story import Story

CLIENT_SEES = frozenset(
    {
        "lost", "vanished", "unseen", "divergence", "inconsistent-offsets", "read-beyond-hw",
        "stale-read", "aborted-read", "phantom", "misrouted", "unreadable-record", "duplicate",
        "int-nonmonotonic-poll", "int-poll-skip", "nonmonotonic-poll", "poll-skip", "future-read",
        "precommitted-read", "g1c", "g1c-process", "g1c-realtime", "offset-hole", "realtime-order",
        "nonmonotonic-send", "int-nonmonotonic-send", "hw-regression", "int-send-skip", "g0",
        "g0-process", "g0-realtime",
    }
)  # fmt: skip

slow_but_sure = settings(
    max_examples=150, derandomize=True, deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip


def judged(s: Story) -> RunResult:
    with tempfile.TemporaryDirectory() as folder:
        return s.check(Path(folder))


def compare(s: Story, staleness_ms: int) -> None:
    """Everything that clients can see, by kernels and by definition."""
    s.run["promise"]["staleness_ms"] = staleness_ms
    found = judged(s)
    counts: Counter[str] = Counter()
    excused: Counter[str] = Counter()
    for anomaly in found.anomalies:
        counts[anomaly.name] += anomaly.count
        if anomaly.name in EXCUSED and anomaly.allowed:
            excused[anomaly.name] += anomaly.count
    due, allowed = define(s.history, staleness_us=staleness_ms * 1000)
    assert {n: c for n, c in counts.items() if n in CLIENT_SEES} == due, found.problems
    assert excused == allowed
    assert not found.problems


@slow_but_sure
@given(wild(transactions=False), st.integers(-1, 3))
def test_histories_of_single_steps(steps: list[Step], staleness_ms: int) -> None:
    compare(tell(steps), staleness_ms)


@slow_but_sure
@given(wild(transactions=True), st.integers(-1, 3))
def test_histories_of_transactions(steps: list[Step], staleness_ms: int) -> None:
    compare(tell(steps), staleness_ms)
