"""The place where a run is judged, and the modules that are loaded for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from checker.engine.local import check_run
from checker.formats.errors import CheckerError
from checker.formats.verdict import RunResult, Verdict
from harness.runs import judge
from harness.runs.judge import IN_PROCESS_BYTES, SparkSoon
from harness.runs.options import to_schedule
from harness.runs.requests import RunRequest
from tests.support.checker.story import Story
from tests.support.command import imported_by


class Unwilling(SparkSoon):
    """A session that cannot be had; `begun`: whether it was asked to start."""

    begun = False

    def begin(self, *, large: bool = False) -> None:
        self.begun = True

    def check(
        self, folders: Sequence[Path], *, out: Path | None = None, again: bool = True
    ) -> list[RunResult]:
        raise CheckerError("Spark was asked.")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    s = Story()
    s.send(1, at=0)
    s.poll((0, 1), final=True)
    return s.write(tmp_path / "run")


def test_a_small_run_is_judged_here_and_a_large_one_on_spark(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    (small,) = judge.judge([folder], Unwilling(), said.append)
    assert said == []
    monkeypatch.setattr(judge, "IN_PROCESS_BYTES", 0)
    assert judge.judge([folder], Unwilling(), said.append) == [small]
    assert said == ["Spark was asked. The run is judged without Spark instead."]
    assert small.verdict is not Verdict.INVALID


def test_a_cluster_that_was_asked_for_judges_whatever_the_size(folder: Path) -> None:
    cluster = Unwilling(master="spark://there:7077")
    with pytest.raises(CheckerError, match="Spark was asked"):
        judge.judge([folder], cluster, lambda said: None)


@pytest.mark.parametrize(
    ("request_", "starts"),
    [
        (RunRequest(seed=1), False),
        (RunRequest(seed=1, time_limit=3600), True),
        (RunRequest(seed=1, rate=0), True),
    ],
)
def test_spark_starts_with_a_storm_that_will_leave_much(request_: RunRequest, starts: bool) -> None:
    spark = Unwilling()
    judge.get_ready(spark, to_schedule(request_))
    assert spark.begun == starts
    assert IN_PROCESS_BYTES > 0


def test_many_small_runs_are_too_much_for_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge, "MANY_RUNS", 2)
    folders = [Story().write(tmp_path / name) for name in "abc"]
    assert not judge.is_much(folders[:2])
    assert judge.is_much(folders)
    said: list[str] = []
    results = judge.judge(folders, None, said.append)
    assert said == []
    assert results == [check_run(each) for each in folders]


@pytest.mark.integration
def test_checks_and_pages_are_not_loaded_before_the_storm() -> None:
    _, imported = imported_by(
        "registry.find('floodmark')",
        "import harness.runs.judge, harness.runs.run, harness.runs.options",
        "from harness.systems import registry",
    )
    slow = {"numpy", "pyarrow", "pandas", "pyspark", "matplotlib", "jinja2", "reports"}
    assert not imported & {*slow, "harness.sim.run", "checker.engine.local"}
