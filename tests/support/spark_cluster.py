"""A standalone Spark cluster on this machine: a master and workers, gone when the test is over."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyspark

from checker.engine.java import find_java, java_home
from tests.support.paths import ROOT
from tests.support.waiting import until

HOST = "127.0.0.1"
SPARK_HOME = Path(pyspark.__file__).parent


@dataclass(frozen=True)
class SparkCluster:
    """A running cluster: its URL, what a program needs to use it, and what its processes said."""

    url: str
    environment: dict[str, str]
    logs: Path
    workers: list[subprocess.Popen[bytes]]

    def executors(self) -> int:
        """Count the executors that its workers have started so far."""
        said = "".join(path.read_text() for path in self.logs.glob("worker-*.txt"))
        return len(re.findall(r"Asked to launch executor", said))

    def in_a_task(self, worker: int) -> bool:
        """Return whether an executor of a worker has started a process that runs Python."""
        with suppress(psutil.Error):
            executors = psutil.Process(self.workers[worker].pid).children()
            return any(
                "CoarseGrainedExecutorBackend" in " ".join(one.cmdline()) and one.children()
                for one in executors
            )
        return False

    def kill_worker(self, worker: int) -> None:
        """Kill a worker with its executors."""
        _end(self.workers[worker])


@contextmanager
def spark_cluster(folder: Path, workers: int) -> Iterator[SparkCluster]:
    """Yield a master and `workers` workers of one core each, on loopback, below `folder`."""
    environment = {
        **os.environ,
        "JAVA_HOME": str(java_home(find_java(), folder / "java")),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_SCALA_VERSION": "2.13",  # as Spark's own start scripts find out
        "SPARK_LOCAL_IP": HOST,
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
    }
    with ExitStack() as stack:
        processes: dict[str, subprocess.Popen[bytes]] = {}

        def start(name: str, program: str, *arguments: str) -> Path:
            log = folder / f"{name}.txt"
            with log.open("wb") as output:
                process = subprocess.Popen(
                    [
                        SPARK_HOME / "bin/spark-class",
                        f"org.apache.spark.deploy.{program}",
                        *arguments,
                    ],
                    env=environment,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=folder,
                    start_new_session=True,
                )
            processes[name] = process
            stack.callback(_end, process)
            return log

        master = start(
            "master", "master.Master", "--host", HOST, "--port", "0", "--webui-port", "0"
        )
        found: list[str] = []

        def is_up() -> bool:
            found[:] = re.findall(r"Starting Spark master at (spark://\S+)", master.read_text())
            return bool(found)

        until(is_up, "the master")
        for number in range(workers):
            log = start(
                f"worker-{number}",
                *("worker.Worker", found[0], "--host", HOST, "--cores", "1", "--memory", "1g"),
                *("--webui-port", "0", "--work-dir", str(folder / f"work-{number}")),
            )
            until(lambda log=log: "Successfully registered" in log.read_text(), "a worker")
        started = [processes[f"worker-{number}"] for number in range(workers)]
        yield SparkCluster(found[0], environment, folder, started)


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
