"""Spark sessions that print nothing and never outlive this process.

A process has at most one JVM. PySpark's own `launch_gateway` starts it, with three settings:

* everything that it prints goes to a log file;
* it is in a session of its own, so that Ctrl-C in the terminal reaches neither it nor Python
  workers; PySpark ties it to a pipe to this process, and it ends when the pipe is closed;
* its `java` is a small script (`checker.engine.java.java_home`), because small runtimes lack a
  module that Spark's launcher asks for.
"""

from __future__ import annotations

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
from pathlib import Path
from typing import IO, Any, Final

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from checker.engine.java import Java, find_java, java_home
from checker.engine.workers import SMALL_PAGES, usable_cores
from checker.formats.errors import CheckerError, SparkStartError
from node.formats.owned_folder import OwnedFolder
from node.runtime.environment import inherited

# PySpark says this on standard error; no table of ours is a pandas one.
warnings.filterwarnings(
    "ignore", message="PySpark does not yet fully support pandas", category=FutureWarning
)

_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.catalogImplementation": "in-memory",
    # Facts are compressed before Spark gets them (`checker.evidence.arrow_blob`).
    "spark.shuffle.compress": "false",
}
"""No result depends on these."""
# One client compiler and one collector thread: half the start-up time for small work.
_SMALL_OPTIONS: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_LARGE_OPTIONS: Final = ("-XX:+UseParallelGC",)
_ON_LOOPBACK: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""Without these settings Spark listens on the machine's outward address."""
# Lines of output that do not explain why a JVM did not start.
_SAYS_NOTHING: Final = re.compile(
    r"\s*(Picked up|WARNING|Using |Error: (Could not create|A fatal exception)|#\s*$)"
)
_NAMES_A_CAUSE: Final = re.compile(r"error|exception|invalid|insufficient|could not", re.IGNORECASE)

_lock = threading.Lock()
_jvm: Any = None


def start_session(
    app_name: str,
    *,
    master: str | None = None,
    cores: int | None = None,
    driver_memory: str = "2g",
    small: bool = True,
    log_file: Path | None = None,
) -> SparkSession:
    """Start a Spark session, or return the one that this process has. `master` is the URL of a
    cluster, None for this machine; a cluster's machines need the same Python packages, and
    `PYSPARK_PYTHON` names their Python. `cores` is None for all that this process may use,
    `driver_memory` in Java's spelling. A `small` session is tuned for runs of seconds. Spark prints
    to `log_file`, if given. Raises JavaMissing, SparkStartError."""
    global _jvm
    java = find_java()
    local = master is None or master.startswith("local")
    conf = SparkConf(loadDefaults=False)
    conf.setAppName(app_name).setMaster(master or f"local[{cores or usable_cores()}]")
    conf.setAll([*_SETTINGS.items(), *(_ON_LOOPBACK if local else {}).items()])
    conf.set("spark.driver.memory", driver_memory)
    with _lock, _environment(java, local):
        try:
            if _jvm is None:
                folder = OwnedFolder()
                conf.set("spark.local.dir", str(folder.path))
                speed = _SMALL_OPTIONS if small else _LARGE_OPTIONS
                place = f'"-Djava.io.tmpdir={folder.path}"'
                options = " ".join((*speed, "-XX:-UsePerfData", place))
                conf.set("spark.driver.extraJavaOptions", options)
                _jvm = _launch(conf, log_file), folder
                with _own_interrupt_handler():
                    SparkContext(conf=conf, gateway=_jvm[0])
            with _own_interrupt_handler():
                session = SparkSession.builder.config(conf=conf).getOrCreate()
            session.sparkContext.setLogLevel("WARN")
        except (Py4JError, PySparkException, OSError) as error:
            raise SparkStartError(f"Spark did not start: {error_summary(error)}.") from error
    if not local and session.sparkContext.master != master:
        raise SparkStartError(
            f"A Spark session on {session.sparkContext.master} runs in this process: stop it first."
        )
    _silence_accumulators(session)
    return session


class SessionInBackground:
    """A Spark session that starts in a daemon thread, with a small first job, which takes as long
    as the start itself. The arguments are those of `start_session`. A program that ends early does
    not wait for it."""

    def __init__(self, app_name: str, **settings: Any) -> None:
        self._session: SparkSession | None = None
        self._error: Exception | None = None

        def start() -> None:
            try:
                session = start_session(app_name, **settings)
                # It starts a Python worker and imports what checks use.
                session.sparkContext.parallelize([0], 1).map(_with_checks).count()
                self._session = session
            except Exception as error:  # `get` raises it again.
                self._error = error

        self._thread = threading.Thread(target=start, name="spark-start", daemon=True)
        self._thread.start()

    def get(self, timeout_s: float) -> SparkSession:
        """Wait for the session and return it. Raises what `start_session` raised, or
        SparkStartError if it takes longer than `timeout_s`."""
        self._thread.join(timeout_s)
        if self._session is not None:
            return self._session
        if self._error is None:
            raise SparkStartError(f"Spark is not ready after {timeout_s:g} s: try --no-spark.")
        if isinstance(self._error, CheckerError):
            raise self._error
        raise SparkStartError(
            f"Spark did not start: {error_summary(self._error)}."
        ) from self._error


def error_summary(error: Exception) -> str:
    """Format an error of Spark as one line; only its type if its text died with the JVM."""
    try:
        lines = str(error).strip().split("\n")
    except Exception:
        lines = []
    # The first line of Py4J says what was called, the second what went wrong.
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        lines = [lines[1].lstrip(": ")]
    return (lines[0].rstrip(".") if lines else "") or type(error).__name__


def _launch(conf: SparkConf, log_file: Path | None) -> Any:
    """Start the JVM, which appends to `log_file`; return its gateway. Raises SparkStartError."""
    try:
        if log_file is not None:
            log_file.parent.mkdir(parents=True, exist_ok=True)
        # Without a file of its own the output only serves to explain a failed start.
        log: IO[bytes] = log_file.open("a+b") if log_file else tempfile.TemporaryFile()  # noqa: SIM115
    except OSError as error:
        raise SparkStartError(f"Spark's log {log_file} could not be opened: {error}.") from error
    with log:
        begin = log.seek(0, os.SEEK_END)
        keywords = {"stdout": log, "stderr": subprocess.STDOUT, "start_new_session": True}
        try:
            return launch_gateway(conf, keywords)  # type: ignore[no-untyped-call]
        except (PySparkException, OSError) as error:
            raise SparkStartError(_start_failure(log, begin, log_file)) from error


def _start_failure(log: IO[bytes], begin: int, log_file: Path | None) -> str:
    """Return one sentence with the line of the JVM's output that says most."""
    log.seek(begin)
    written = log.read().decode(errors="replace").splitlines()
    lines = [line.strip() for line in written if line.strip() and not _SAYS_NOTHING.match(line)]
    causes = [line for line in lines if _NAMES_A_CAUSE.search(line)]
    said = next(iter(causes or lines), "nothing")
    where = f" (all of it is in {log_file})" if log_file else ""
    return f"The Java process of Spark ended while starting; it said: {said.rstrip('.')}{where}."


@contextlib.contextmanager
def _environment(java: Java, local: bool) -> Iterator[None]:
    """Set what the JVM, its Python workers and PySpark itself read from the environment; that of
    this process is as before afterwards."""
    our_packages = str(Path(__file__).resolve().parent.parent.parent)
    inherited_path = os.environ.get("PYTHONPATH")
    with OwnedFolder() as folder:
        wanted = {
            "JAVA_HOME": str(java_home(java, folder)),
            # A SPARK_HOME of the user's is that of another Spark.
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "PYTHONPATH": os.pathsep.join(filter(None, [our_packages, inherited_path])),
            # A worker's `python -m` would otherwise import modules from the user's current folder.
            "PYTHONSAFEPATH": "1",
            # All workers must agree on the hash of a string.
            "PYTHONHASHSEED": "0",
        }
        if local:  # On a cluster the user names the Python of its machines.
            wanted |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
            wanted |= SMALL_PAGES
        with inherited(wanted):
            yield


@contextlib.contextmanager
def _own_interrupt_handler() -> Iterator[None]:
    """Keep our handler of Ctrl-C, which PySpark replaces when it starts in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _silence_accumulators(session: SparkSession) -> None:
    """Keep a thread of PySpark from printing a traceback when the JVM ends before us."""
    server = getattr(session.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None


def _with_checks(number: int) -> int:
    """Return a number when what checks use has been imported."""
    import checker.engine.stages  # noqa: F401

    return number
