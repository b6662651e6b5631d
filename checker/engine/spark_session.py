"""Starts Spark sessions: fast, silent, and never outliving us.

A JVM takes seconds to start, so one is kept for all sessions of this process that can share it; it
ends when this process does.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from checker.engine.class_archive import archive_for, build_in_background
from checker.engine.java import find_java
from checker.engine.jvm import Jvm, JvmSettings
from checker.formats.errors import CheckerError, SparkStartError, error_summary

# PySpark says this on standard error at every grouped Arrow job; no table of ours is a pandas one.
warnings.filterwarnings(
    "ignore", message="PySpark does not yet fully support pandas", category=FutureWarning
)

# Answers must not depend on any of these.
_SQL_SETTINGS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
}

_LARGE_PARTITIONS_PER_CORE = 16
_MOST_SMALL_PARTITIONS = 4

_lock = threading.Lock()
_jvm: Jvm | None = None


def start_session(
    app_name: str,
    *,
    master: str | None = None,
    cores: int | None = None,
    driver_memory: str = "2g",
    small: bool = True,
    log_file: Path | None = None,
) -> SparkSession:
    """Starts a Spark session, or returns the running one if it has the same settings.

    Args:
        app_name: what Spark calls it.
        master: a cluster's master URL; by default this machine. A cluster's machines need the same
            Python packages; `PYSPARK_PYTHON` names their Python.
        cores: how many cores of this machine to use; by default all that we may use.
        driver_memory: the JVM's heap limit, in Java's spelling.
        small: tune for histories of seconds rather than for hundreds of millions of operations.
        log_file: gets everything that Spark prints, which never reaches the terminal. A JVM that is
            used again goes on writing to the file that it was started with.

    Raises:
        JavaMissing: there is no Java that Spark can use.
        SparkStartError: Spark did not start, or a session with other settings is running.
    """
    cores = cores or usable_cores()
    settings = JvmSettings(
        java=find_java(),
        master=master or f"local[{cores}]",
        driver_memory=driver_memory,
        small=small,
    )
    with _lock:
        return open_session(_jvm_with(settings, log_file), app_name, cores=cores)


def open_session(jvm: Jvm, app_name: str, *, cores: int) -> SparkSession:
    """Opens a session on a JVM; the parts of `start_session` that need no choice of JVM.

    Raises:
        SparkStartError: Spark refused.
    """
    SparkContext._ensure_initialized(gateway=jvm.gateway)
    conf = SparkConf()
    conf.setAll(list(_configuration(jvm.settings, app_name, cores).items()))
    try:
        with _python_of_workers(jvm.settings), _own_interrupt_handler():
            session = SparkSession.builder.config(conf=conf).getOrCreate()
    except (Py4JError, PySparkException, OSError) as error:
        raise SparkStartError(f"Spark did not start: {error_summary(error)}.") from error
    session.sparkContext.setLogLevel("WARN")
    _silence_accumulators(session)
    return session


def suit(session: SparkSession) -> SparkSession:
    """Sets a session that somebody else configured to what checks count on."""
    for name, value in _SQL_SETTINGS.items():
        session.conf.set(name, value)
    return session


def warm_up(session: SparkSession) -> None:
    """Runs one tiny grouped Arrow job: starts a Python worker and loads what every check needs."""
    session.range(2).groupBy("id").applyInArrow(_same_table, "id long").count()


def close_jvm() -> None:
    """Ends the JVM that is kept for further sessions; a running session ends with it."""
    with _lock:
        _drop_jvm()


def usable_cores() -> int:
    """How many cores this process may run on."""
    allowed = getattr(os, "sched_getaffinity", None)  # Not every system has it.
    return len(allowed(0)) if allowed else os.cpu_count() or 1


class SessionInBackground:
    """Starts a session while something else is going on, so that nobody waits for it.

    The arguments are those of `start_session`. The start begins at construction, in a daemon
    thread: a program that ends early is not held up.

    Args:
        warm: also run a first small job, which costs as much as the start itself.
    """

    def __init__(
        self,
        app_name: str,
        *,
        master: str | None = None,
        cores: int | None = None,
        driver_memory: str = "2g",
        small: bool = True,
        log_file: Path | None = None,
        warm: bool = True,
    ) -> None:
        self._session: SparkSession | None = None
        self._error: Exception | None = None

        def start() -> None:
            try:
                session = start_session(
                    app_name,
                    master=master,
                    cores=cores,
                    driver_memory=driver_memory,
                    small=small,
                    log_file=log_file,
                )
                if warm:
                    warm_up(session)
                self._session = session
            except Exception as error:  # It is raised again where the session is asked for.
                self._error = error

        self._thread = threading.Thread(target=start, name="spark-start", daemon=True)
        self._thread.start()

    def get(self, timeout_s: float) -> SparkSession:
        """Waits for the session.

        Raises:
            CheckerError: what `start_session` raised, or that it takes longer than `timeout_s`.
        """
        self._thread.join(timeout_s)
        if self._session is not None:
            return self._session
        if self._error is None:
            raise SparkStartError(f"Spark was not ready after {timeout_s:g} s.")
        if isinstance(self._error, CheckerError):
            raise self._error
        raise SparkStartError(
            f"Spark did not start: {error_summary(self._error)}."
        ) from self._error


def _configuration(settings: JvmSettings, app_name: str, cores: int) -> dict[str, str]:
    """What every session is set to; answers must not depend on any of it."""
    partitions = (
        min(cores, _MOST_SMALL_PARTITIONS) if settings.small else cores * _LARGE_PARTITIONS_PER_CORE
    )
    configuration = {
        "spark.app.name": app_name,
        "spark.master": settings.master,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.catalogImplementation": "in-memory",
        # Facts are compressed before Spark gets them (`checker.evidence.arrow_blob`).
        "spark.shuffle.compress": "false",
        **_SQL_SETTINGS,
    }
    if settings.is_local:
        # Without these Spark listens on the machine's outward address.
        configuration["spark.driver.host"] = "127.0.0.1"
        configuration["spark.driver.bindAddress"] = "127.0.0.1"
    if not settings.small:
        configuration["spark.sql.join.preferSortMergeJoin"] = "false"
    return configuration


def _jvm_with(settings: JvmSettings, log_file: Path | None) -> Jvm:
    """The kept JVM if it lives and has these settings, else a new one in its place."""
    global _jvm
    if _jvm is not None and _jvm.is_alive():
        if _jvm.settings == settings:
            return _jvm
        if SparkContext._active_spark_context is not None:
            raise SparkStartError(
                "A Spark session with other settings is running in this process: stop it first."
            )
    _drop_jvm()
    archive = archive_for(settings.java)
    _jvm = Jvm(settings, log_file, archive.reading_options())
    return _jvm


def _drop_jvm() -> None:
    """Ends the kept JVM and makes PySpark forget it, so that the next session gets a new one."""
    global _jvm
    if _jvm is None:
        return
    active = SparkContext._active_spark_context
    if active is not None:
        with contextlib.suppress(Py4JError, PySparkException, OSError):
            active.stop()
    _jvm.close()
    _jvm = None
    SparkContext._active_spark_context = None
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkSession._instantiatedSession = None


@atexit.register
def _at_exit() -> None:
    """Lets the JVM go, and has the class-data archive made while nobody waits."""
    if _jvm is None:
        return
    _jvm.hang_up()
    build_in_background(archive_for(_jvm.settings.java))


@contextlib.contextmanager
def _own_interrupt_handler() -> Iterator[None]:
    """Keeps our handler of Ctrl-C, which PySpark replaces when it starts in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


@contextlib.contextmanager
def _python_of_workers(settings: JvmSettings) -> Iterator[None]:
    """Has PySpark note our own Python for its workers; on a cluster the user names it."""
    if not settings.is_local:
        yield
        return
    before = os.environ.get("PYSPARK_PYTHON")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYSPARK_PYTHON"]
        else:
            os.environ["PYSPARK_PYTHON"] = before


def _silence_accumulators(session: SparkSession) -> None:
    """Keeps a thread of PySpark from printing a traceback when the JVM ends before us."""
    server = getattr(session.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None


def _same_table(table: pa.Table) -> pa.Table:
    return table
