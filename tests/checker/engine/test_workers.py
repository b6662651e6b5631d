"""Processes that do the work of a check, and what becomes of them."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from checker.engine import local, stages
from checker.engine.local import check_run
from checker.engine.stages import StagedExecutor, check
from checker.engine.workers import ProcessWorkers
from checker.formats.errors import CheckerError
from checker.ingest.source import Source
from tests.lab.bench.anomaly_injection import INJECTIONS
from tests.lab.bench.synthetic import Size, make_history
from tests.support.checker.story import Story

pytestmark = pytest.mark.integration


def end(number: int) -> None:
    os._exit(number)


def test_a_process_that_ends_is_one_sentence() -> None:
    with ProcessWorkers(1) as workers, pytest.raises(CheckerError, match="process died"):
        list(workers.map(end, [1]))


def test_processes_judge_as_this_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("checker.ingest.read_tables.ROWS_PER_SOURCE", 5_000)
    large, small = tmp_path / "large", tmp_path / "small"
    make_history(Size(ops=20_000, hot=0.7, anomalies=tuple(INJECTIONS)), large)
    story = Story()
    story.busy()
    story.write(small)
    with ProcessWorkers(2) as workers:
        (alone,) = local.check([large], partial(StagedExecutor, workers), out=tmp_path / "a")
        results = check([large, small, large], workers, out=tmp_path / "b")
    monkeypatch.setattr(stages, "SMALL_BYTES", 0)
    assert results == [check_run(large), check_run(small), check_run(large)]
    assert alone == results[0]


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" * 100])
def test_a_table_that_cannot_be_read_names_no_origins(tmp_path: Path, content: bytes) -> None:
    """The step before has said that it is damaged."""
    file = tmp_path / "sends.parquet"
    file.write_bytes(content)
    source = Source(0, tmp_path, "sends", file, (0, 1))
    assert stages._origins_in((source, [1])) == (0, [])
