"""Starts Spark sessions: fast, silent, and never outliving us.

A JVM takes seconds to start, so one is kept for all sessions of this process that can share it. It
is started by PySpark's own `launch_gateway`, with three things set for it:

* everything it writes goes to a log file;
* it is in a session of its own, so that Ctrl-C in the terminal reaches neither it nor Python
  workers; PySpark ties it to a pipe to us, upon whose end it ends, however we end;
* `java` is a small script (`checker.engine.java.java_home`), for slim runtimes lack a module that
  Spark's launcher asks for.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from checker.engine.class_archive import archive_for, build_in_background, spark_home
from checker.engine.java import Java, find_java, java_home
from checker.engine.owned_folder import OwnedFolder
from checker.engine.workers import SMALL_PAGES, usable_cores
from checker.formats.errors import CheckerError, SparkStartError
from node.runtime.environment import inherited
from node.runtime.reap import REAP_S

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

# One client compiler and one collector thread: half the start-up time for small work.
_SMALL_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_LARGE_OPTIONS = ("-XX:+UseParallelGC",)

# In what a JVM says that does not start.
_SAYS_NOTHING = re.compile(
    r"\s*(Picked up|WARNING|Using |Error: (Could not create|A fatal exception)|#\s*$)"
)
_NAMES_A_CAUSE = re.compile(r"error|exception|invalid|insufficient|could not", re.IGNORECASE)

_TEMPORARY: Final = "floodmark-spark-"

_lock = threading.Lock()
_jvm: Jvm | None = None


@dataclass(frozen=True)
class JvmSettings:
    """Everything that is fixed once the JVM runs: equal settings may share one JVM.

    Attributes:
        java: the runtime.
        master: Spark's master URL.
        driver_memory: the heap limit, in Java's spelling (`2g`).
        small: tuned to start fast rather than to run long.
    """

    java: Java
    master: str
    driver_memory: str
    small: bool

    @property
    def is_local(self) -> bool:
        """Whether driver and executors are this one machine."""
        return self.master.startswith("local")


class Jvm:
    """A running JVM and PySpark's connection to it.

    Args:
        settings: what to run.
        log_file: where its output goes; `None` keeps it only to explain a failed start.
        options: further options of the JVM, that read or write a class-data archive.

    Raises:
        SparkStartError: it did not start.
    """

    def __init__(
        self, settings: JvmSettings, log_file: Path | None, options: tuple[str, ...] = ()
    ) -> None:
        self.settings = settings
        try:
            self._folder = OwnedFolder(_TEMPORARY)
        except OSError as error:
            raise SparkStartError(
                f"Spark's temporary folder could not be made: {error}."
            ) from error
        self.folder = self._folder.path
        speed = _SMALL_OPTIONS if settings.small else _LARGE_OPTIONS
        conf = SparkConf(loadDefaults=False)
        conf.set("spark.master", settings.master)
        conf.set("spark.driver.memory", settings.driver_memory)
        place = f'"-Djava.io.tmpdir={self.folder}"'
        conf.set("spark.local.dir", str(self.folder))
        java_options = (*speed, "-XX:-UsePerfData", place, *options)
        conf.set("spark.driver.extraJavaOptions", " ".join(java_options))
        with _open_log(log_file) as log, _environment(settings, self.folder):
            log_start = log.tell()
            keywords = {"stdout": log, "stderr": subprocess.STDOUT, "start_new_session": True}
            try:
                self.gateway: Any = launch_gateway(conf, keywords)  # type: ignore[no-untyped-call]
            except (PySparkException, OSError) as error:
                self._folder.close()
                raise SparkStartError(_start_failure(log, log_start)) from error
        self._process: subprocess.Popen[bytes] = self.gateway.proc

    @property
    def pid(self) -> int:
        """The process id of the JVM."""
        return self._process.pid

    def is_alive(self) -> bool:
        """Whether the JVM still runs."""
        return self._process.poll() is None

    def close(self, timeout_s: float = 10.0) -> bool:
        """Lets the JVM end, and kills it if it will not; true if it ended by itself and well."""
        with contextlib.suppress(OSError):
            self.gateway.shutdown()
        self.hang_up()
        try:
            return self._process.wait(timeout_s) == 0
        except subprocess.TimeoutExpired:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(REAP_S)
            return False
        finally:
            self._folder.close()

    def hang_up(self) -> None:
        """Closes the JVM's standard input, upon which it ends in its own time."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()


def error_summary(error: Exception) -> str:
    """An error of Spark in one line; its text may be out of reach if the JVM has died."""
    try:
        lines = str(error).strip().split("\n")
    except Exception:
        lines = []
    # Py4J says first where it was called, and then what it was.
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        lines = [lines[1].lstrip(": ")]
    return (lines[0].rstrip(".") if lines else "") or type(error).__name__


@contextlib.contextmanager
def _open_log(log_file: Path | None) -> Iterator[IO[bytes]]:
    if log_file is None:
        with tempfile.TemporaryFile(prefix="floodmark-jvm-log-") as log:
            yield log
        return
    try:
        log_file.parent.mkdir(parents=True, exist_ok=True)
        opened = log_file.open("a+b")
    except OSError as error:
        raise SparkStartError(f"Spark's log {log_file} could not be opened: {error}.") from error
    with opened:
        opened.seek(0, os.SEEK_END)
        yield opened


def _start_failure(log: IO[bytes], log_start: int) -> str:
    """One sentence with the line of the JVM's output that says most."""
    log.seek(log_start)
    written = log.read().decode(errors="replace").splitlines()
    lines = [line.strip() for line in written if line.strip() and not _SAYS_NOTHING.match(line)]
    causes = [line for line in lines if _NAMES_A_CAUSE.search(line)]
    said = next(iter(causes or lines), "nothing")
    where = f" (all of it is in {log.name})" if isinstance(log.name, str) else ""
    return f"The Java process of Spark ended while starting; it said: {said.rstrip('.')}{where}."


@contextlib.contextmanager
def _environment(settings: JvmSettings, place: Path) -> Iterator[None]:
    """What the JVM, its Python workers and PySpark itself read from the environment; the
    environment of this process is as before afterwards. Temporary files are made in `place`."""
    our_packages = str(Path(__file__).resolve().parent.parent.parent)
    inherited_path = os.environ.get("PYTHONPATH")
    with tempfile.TemporaryDirectory(prefix="java-", dir=place) as folder:
        wanted = {
            "JAVA_HOME": str(java_home(settings.java, Path(folder))),
            "SPARK_HOME": str(spark_home()),
            "PYTHONPATH": os.pathsep.join(filter(None, [our_packages, inherited_path])),
            # A worker's `python -m` would otherwise import modules from the user's current folder.
            "PYTHONSAFEPATH": "1",
            # All workers must agree on the hash of a string.
            "PYTHONHASHSEED": "0",
        }
        if settings.is_local:  # On a cluster the user names the Python of its machines.
            wanted |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
            wanted |= SMALL_PAGES
        with inherited(wanted):
            yield


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
    conf = SparkConf(loadDefaults=False)
    conf.setAll(list(_configuration(jvm.settings, app_name, cores).items()))
    try:
        with _environment(jvm.settings, jvm.folder), _own_interrupt_handler():
            if SparkContext._active_spark_context is None:
                SparkContext(conf=conf, gateway=jvm.gateway)
            session = SparkSession.builder.config(conf=conf).getOrCreate()
    except (Py4JError, PySparkException, OSError) as error:
        raise SparkStartError(f"Spark did not start: {error_summary(error)}.") from error
    session.sparkContext.setLogLevel("WARN")
    _silence_accumulators(session)
    return session


def suit(session: SparkSession) -> SparkSession:
    """Sets a session that was configured elsewhere to what checks count on."""
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


class SessionInBackground:
    """Starts a session in a thread while something else is going on, and runs a first small job on
    it, which costs as much as the start itself.

    The arguments are those of `start_session`. The start begins at construction, in a daemon
    thread: a program that ends early is not held up.
    """

    def __init__(self, app_name: str, **settings: Any) -> None:
        self._session: SparkSession | None = None
        self._error: Exception | None = None

        def start() -> None:
            try:
                session = start_session(app_name, **settings)
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
    """Lets the JVM go, and has the class-data archive made after the command."""
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


def _silence_accumulators(session: SparkSession) -> None:
    """Keeps a thread of PySpark from printing a traceback when the JVM ends before us."""
    server = getattr(session.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None


def _same_table(table: pa.Table) -> pa.Table:
    return table
