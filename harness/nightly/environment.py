"""What a nightly run needs of its environment: a clock, processes, real runs, verdicts, disk space.

The session asks only here; its tests replace the whole class. Each simulated job is a process of
its own (`harness.runs.job_processes`), and none outlives the nightly run.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import msgspec

from checker.engine.java import find_java
from checker.formats.verdict import RunResult
from harness.formats.nightly_journal import AnyRow
from harness.nightly.jobs import AnyJob, Digests, do
from harness.runs.interrupts import Interrupts, StopNow
from harness.runs.job_processes import EndedJob, JobProcesses
from harness.runs.judge import Keep, SparkSoon, judge
from harness.runs.program import called
from harness.runs.progress import Progress
from harness.runs.run import Run, RunSettings
from harness.search import deadline
from harness.search.real.storms import StormSubject
from harness.systems import registry
from nemesis import strace, wall_clocks
from nemesis.disk import control
from nemesis.formats.schedule import Schedule
from nemesis.links import namespaces
from node.formats.errors import FloodmarkError
from node.formats.json_input import JsonReader, decode

LOOK_S: Final = 0.2
_job_decoder: Final = JsonReader(cast("type[AnyJob]", AnyJob))


class FinishedJob(NamedTuple):
    """What became of a job: its result, or why there is none; `seconds` of wall clock."""

    job: AnyJob
    result: AnyRow | Digests | None
    seconds: float
    sentence: str = ""


def side_by_side(
    jobs: Sequence[AnyJob], output: Path, limit_s: float, stop: Callable[[], bool]
) -> Iterator[FinishedJob]:
    """Do the jobs at the same time, each in its own process, and give results as they come.

    One that takes longer than `limit_s` is killed. When `stop` says so, all are, and nothing more
    is given. `output` gets what processes print.
    """
    is_late = deadline.after(limit_s)
    processes = JobProcesses(_work, output)
    try:
        begun = {processes.start(job.key, msgspec.json.encode(job)): job for job in jobs}
        while processes.running and not stop():
            for ended in processes.kill() if is_late() else processes.ended(LOOK_S):
                yield _finished(begun[ended.number], ended)
    finally:
        processes.close()


def _finished(job: AnyJob, ended: EndedJob) -> FinishedJob:
    """The result of a job that has ended."""
    if ended.answer is None:
        return FinishedJob(job, None, ended.seconds, ended.sentence)
    kinds: Any = Digests if job.key.startswith("determinism/") else AnyRow
    return FinishedJob(job, decode(ended.answer, kinds), ended.seconds)


def _work(request: bytes) -> bytes:
    """One job in a process of its own."""
    return msgspec.json.encode(do(_job_decoder.decode(request)))


class NightlyEnvironment:
    """Use inside `Interrupts`, in the main thread."""

    def __init__(
        self,
        store: Path,
        output: Path,
        interrupts: Interrupts,
        progress: Progress,
        *,
        spark: bool = True,
    ) -> None:
        """`output` gets what worker processes print; without `spark`, runs are judged here."""
        self._store = store
        self._output = output
        self._interrupts = interrupts
        self._progress = progress
        self._spark = SparkSoon(output.with_suffix(".spark.txt")) if spark else None

    def now_s(self) -> float:
        """The host's monotonic clock."""
        return time.monotonic()

    def free_bytes(self) -> int:
        """As the file system says it."""
        return shutil.disk_usage(self._store).free

    def missing_tools(self) -> dict[str, str]:
        """Return why a tool that some faults or Spark need is not usable here, by its name."""
        found = {"FUSE": why} if (why := control.why_impossible()) else {}
        tools: dict[str, Callable[[], object]] = {
            "libfaketime": wall_clocks.library,
            "strace": strace.program,
            "nft": lambda: namespaces.program("nft"),
            "Java": find_java,
        }
        for tool, find in tools.items():
            try:
                find()
            except FloodmarkError as error:
                found[tool] = str(error)
        return found

    def stopping(self) -> bool:
        """After the first Ctrl-C or SIGTERM."""
        return self._interrupts.asked

    def side_by_side(self, jobs: Sequence[AnyJob], limit_s: float) -> Iterator[FinishedJob]:
        """In worker processes."""
        return side_by_side(jobs, self._output, limit_s, self.stopping)

    def run(
        self, schedule: Schedule, name: str, store: Path, subject: StormSubject | None = None
    ) -> Path:
        """A run as `floodmark run` makes it; of the system of the subject, or our brokers."""
        system = (
            registry.find(registry.DEFAULT)
            if subject is None
            else registry.find(subject.system, subject.settings)
        )
        settings = RunSettings(
            name=name, seed=schedule.workload.seed, store=store, command=(*called(), *sys.argv[1:])
        )
        run = Run(
            schedule,
            settings,
            system,
            progress=_Quiet(name, self._progress.tell),
            interrupts=self._interrupts,
        )
        try:
            run.execute()
        except StopNow:
            # Nobody broke it: there is nothing to learn from what there is of it.
            shutil.rmtree(run.folder.path, ignore_errors=True)
            raise
        finally:
            self._interrupts.at_once = False
        return run.folder.path

    def judge(self, folders: Sequence[Path]) -> list[RunResult]:
        """All at once, on one Spark session that stays warm for the next time."""
        return judge(folders, self._spark, self.tell, Keep(None, again=False))

    def tell(self, sentence: str) -> None:
        """Above the line that shows progress."""
        self._progress.note(sentence)

    def status(self, words: str) -> None:
        """On the line that shows progress."""
        self._progress.tell(words)


class _Quiet(Progress):
    """Of a run within a nightly run, only which part it is in."""

    def __init__(self, name: str, tell: Callable[[str], None]) -> None:
        super().__init__(quiet=True)
        self._name = name
        self._tell = tell

    def phase(self, name: str, limit_s: float = 0.0) -> None:
        """A part of the run begins."""
        self._tell(f"{self._name}: {name}")
