"""The checker on a cluster of several machines (here: processes) judges as it does in one."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import msgspec
import pytest

from checker.engine.local import check_run
from checker.engine.result_cache import own_name
from checker.formats.verdict import RunResult
from harness.runs.judge import IN_PROCESS_VARIABLE
from tests.lab.bench.anomaly_injection import INJECTIONS
from tests.lab.bench.synthetic import Size, make_history
from tests.support import python_process
from tests.support.checker.story import Story
from tests.support.python_process import PythonProcess
from tests.support.spark_cluster import ROOT, spark_cluster
from tests.support.waiting import until

pytestmark = [pytest.mark.nightly, pytest.mark.xdist_group("spark")]
TIMEOUT_S = 300.0
CHECK = ("-m", "harness.cli", "check", "--json", "--again")
NOT_HERE = {IN_PROCESS_VARIABLE: "0"}


def test_a_standalone_cluster_judges_as_one_process_does(tmp_path: Path) -> None:
    runs = [tmp_path / "injected", tmp_path / "story"]
    make_history(Size(ops=8_000, anomalies=tuple(INJECTIONS)), runs[0])
    story = Story()
    story.busy()
    story.write(runs[1])
    expected = [check_run(run) for run in runs]
    (tmp_path / "cluster").mkdir()
    with spark_cluster(tmp_path / "cluster", workers=2) as cluster:
        words = (*CHECK, *runs, "--master", cluster.url, "--out", tmp_path / "ours")
        ours = python_process.run(*words, **cluster.environment | NOT_HERE)
        assert ours.returncode == 1, ours.stderr
        assert cluster.executors() >= 2
        application = subprocess.run(
            [
                cluster.environment["SPARK_HOME"] + "/bin/spark-submit",
                "--master",
                cluster.url,
                "--conf",
                "spark.driver.host=127.0.0.1",
                str(ROOT / "checker/engine/app.py"),
                "--out",
                str(tmp_path / "submitted"),
                *map(str, runs),
            ],
            env=cluster.environment,
            cwd=ROOT,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert application.returncode == 1, application.stderr.decode()
        assert cluster.executors() >= 4
    assert [msgspec.convert(r, RunResult) for r in json.loads(ours.stdout)] == expected
    for out in ("ours", "submitted"):
        left = [tmp_path / out / own_name(run) / "results.json" for run in runs]
        found = [msgspec.json.decode(path.read_bytes(), type=RunResult) for path in left]
        assert found == expected


def test_a_worker_killed_in_the_middle_changes_no_verdict(tmp_path: Path) -> None:
    run = tmp_path / "run"
    make_history(Size(ops=60_000, anomalies=tuple(INJECTIONS)), run)
    expected = check_run(run)
    (tmp_path / "cluster").mkdir()
    with spark_cluster(tmp_path / "cluster", workers=2) as cluster:
        words = (*CHECK, run, "--master", cluster.url, "--out", tmp_path / "out")
        environment = cluster.environment | NOT_HERE
        with PythonProcess(*words, env=environment, stderr=subprocess.PIPE) as check:
            until(lambda: cluster.in_a_task(0) or check.poll() is not None, "a task")
            assert check.poll() is None, "the verdict was there before a task was seen"
            cluster.kill_worker(0)
            said, errors = check.communicate(timeout=TIMEOUT_S)
    assert check.returncode == 1, errors
    assert [msgspec.convert(r, RunResult) for r in json.loads(said)] == [expected]
