"""GivenLimits of availability: a valid run that exceeds one fails, and its verdict stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from checker.formats.verdict import RunResult, Verdict
from harness.runs.requests import GivenLimits
from harness.sim.run import simulate
from nemesis.formats.schedule import Cluster, Schedule, Workload
from tests.support.command import exit_code


def result(verdict: Verdict = Verdict.VALID, **measures: Any) -> RunResult:
    return RunResult(run="r", verdict=verdict, sentence="", measures=measures)


MEASURED = {"longest_gap_ms": 577.0, "latency_ms": {"send": {"p99": 210.5}}}


def test_a_limit_is_broken_only_by_more_than_it_allows() -> None:
    assert GivenLimits().broken_by(result(**MEASURED)) == []
    assert GivenLimits(max_gap_s=0.577, p99_s=0.2105).broken_by(result(**MEASURED)) == []
    assert GivenLimits(max_gap_s=0.5, p99_s=0.2).broken_by(result(**MEASURED)) == [
        "the longest gap was 577 ms, and --max-gap allows 500 ms",
        "the 99th percentile of the latency of sends was 210.5 ms, and --p99 allows 200 ms",
    ]


def test_what_was_not_measured_is_within_no_limit() -> None:
    gap, latency = GivenLimits(max_gap_s=1, p99_s=1).broken_by(result())
    assert gap == "the longest gap was not measured, so --max-gap cannot be checked"
    assert latency.endswith("was not measured, so --p99 cannot be checked")


@pytest.mark.parametrize("verdict", [each for each in Verdict if each is not Verdict.VALID])
def test_a_run_without_a_valid_verdict_has_its_own_exit_code(verdict: Verdict) -> None:
    assert GivenLimits(max_gap_s=0.1).broken_by(result(verdict, **MEASURED)) == []


def test_check_fails_a_valid_run_over_a_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workload = Workload(seed=1, clients=2, consumers=1, duration_ms=500)
    kept = str(tmp_path / "run")
    simulate(Schedule(cluster=Cluster(partitions=1), workload=workload), seed=1, keep=Path(kept))
    check = ["check", "--no-spark", "--no-report", kept]
    codes = [exit_code([*check, *more]) for more in ([], ["--max-gap", "1h", "--p99", "60s"])]
    assert codes == [0, 0]
    assert exit_code([*check, "--max-gap", "1ms", "--p99", "0.01ms"]) == 1
    said = capsys.readouterr()
    assert said.out.count("✓ VALID") == 3
    assert said.err.count("and --max-gap allows 1 ms") == 1
    assert said.err.count("and --p99 allows 0.01 ms") == 1
