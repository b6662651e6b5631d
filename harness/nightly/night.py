"""The nightly run that a session works on, its host, and the interface of its kinds of work."""

from __future__ import annotations

import heapq
import shutil
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import msgspec

from checker.engine.java import find_java
from checker.formats.anomalies import LOST_WRITES
from checker.formats.verdict import RunResult, Verdict
from harness.formats.journal import JobJournal
from harness.formats.nightly_journal import AnyRow, Ran, Skipped
from harness.formats.nightly_run import NightlyRun, system_label
from harness.nightly import plan
from harness.nightly.counting import Counting
from harness.nightly.requests import NightlyRequest
from harness.runs.interrupts import Interrupts
from harness.runs.judge import build_page
from harness.runs.program import called
from harness.runs.progress import Progress
from harness.runs.run import RunOrder, run_once
from harness.runs.run_folder import readable_lines, remove
from harness.search.jobs import Job, JobProcesses, Pool
from harness.search.worlds.outcome import fault_coverage
from harness.search.worlds.real import StormSubject
from harness.systems import registry
from harness.systems.adapter import SERVER
from harness.systems.setup import Setup
from nemesis import strace, wall_clocks
from nemesis.disk import control
from nemesis.formats.fault_log import FaultLine
from nemesis.formats.schedule import Schedule
from nemesis.links import namespaces
from node.formats.errors import FloodmarkError

_KEEPING: Final = (Verdict.INVALID, Verdict.UNKNOWN)


class RealJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that makes one run of real processes and judges it. `why` and `kinds` are as in `Ran`.
    `setup` is what it runs on."""

    key: str
    why: str
    schedule: Schedule
    name: str
    store: str
    kinds: str = ""
    file: str = ""
    setup: Setup = Setup()

    def do(self) -> Ran:
        """Make the run and judge it. Keep its folder, with a page, only after a failure."""
        row = self.row()
        on, command = self.setup.resolved(self.schedule), (*called(), *sys.argv[1:])
        run = run_once(RunOrder(self.schedule, on, self.name, Path(self.store), command))
        if run.verdict is None:
            remove(run.folder, Path(self.store))
        return self.judged(row, run.folder, run.result)

    def judged(self, row: Ran, folder: Path, result: RunResult) -> Ran:
        """Add the verdict to the row of a run; keep the run folder or remove it."""
        faults = readable_lines(folder / "faults.jsonl", FaultLine)
        row.verdict, row.sentence = result.verdict.value, result.sentence
        row.broken = result.broken
        row.lost = sum(a.count for a in result.anomalies if a.property == LOST_WRITES)
        row.faults = sum(fault.action == "inject" for fault in faults)
        if not row.system:
            # Without traces the roles of the nodes that a fault acted on are not known.
            row.fault_coverage = dict(fault_coverage(_trace(folder), faults))
        if result.verdict in _KEEPING:
            build_page(folder, lambda sentence: None)
            row.kept = str(folder.relative_to(self.store))
        else:
            remove(folder, Path(self.store))
        return row

    def row(self) -> Ran:
        """Return the journal row of the run, still without a verdict. Raises FloodmarkError if a
        system does not tell its version."""
        row = Ran(
            key=self.key,
            why=self.why,
            protocol=self.schedule.cluster.protocol,
            verdict="",
            sentence="",
            bugs=self.schedule.cluster.bugs,
            kinds=self.kinds,
            file=self.file,
            expectation=self.schedule.expectation,
        )
        if self.setup.system != registry.DEFAULT:
            system, settings = self.setup.find(), self.setup.settings.items()
            row.system, row.version = system.short_name, system.version()
            row.given = " ".join(f"{name}={v}" for name, v in settings if name != SERVER.name)
            row.protocol = system_label(row.system, row.version, row.given)
            safe = system.safe_settings
            row.holds = safe is None or system.settings.items() >= safe.items()
            row.options = system.run_options()
        return row


def _trace(folder: Path) -> Iterable[dict[str, Any]]:
    traces = sorted((folder / "trace").glob("*.jsonl"))
    files = [readable_lines(path, dict[str, Any]) for path in traces]
    return heapq.merge(*files, key=lambda event: int(event["t_us"]))


AROUND_A_RUN_S: Final = 50.0
"""Start, recovery, final reads, end and verdict of a real run."""


class NightlyEnvironment:
    """Clock, jobs, disk and tools of the host, which a session reaches only through it. Use it in
    `Interrupts`, in the main thread."""

    def __init__(
        self, store: Path, output: Path, jobs: int, interrupts: Interrupts, progress: Progress
    ) -> None:
        """`output` is the file for what the processes of jobs print."""
        self.output = output
        self._store = store
        self._interrupts = interrupts
        self._progress = progress
        # Each job has a fresh process, so that another hash seed would show.
        self.pool: Pool = JobProcesses(jobs, output)

    def now_s(self) -> float:
        """Return the host's monotonic clock in seconds."""
        return time.monotonic()

    def free_bytes(self) -> int:
        """Return the free space of the store's file system in bytes."""
        return shutil.disk_usage(self._store).free

    def missing_tools(self) -> dict[str, str]:
        """Return the tools for faults or Spark that this host cannot use, with reasons."""
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
        """Return whether Ctrl-C or SIGTERM asked the nightly run to stop."""
        return self._interrupts.asked

    def tell(self, sentence: str) -> None:
        """Print a sentence above the line that shows progress."""
        self._progress.note(sentence)

    def status(self, words: str) -> None:
        """Show a text on the line of progress."""
        self._progress.tell(words)


@dataclass(eq=False)
class Night:
    """One nightly run, in one session. `past` are the earlier runs of the store, `systems` the
    third-party systems to storm. Its journal is all that a later session knows of it."""

    request: NightlyRequest
    systems: Sequence[StormSubject]
    environment: NightlyEnvironment
    journal: JobJournal[AnyRow]
    past: Sequence[NightlyRun]

    def __post_init__(self) -> None:
        self.store = self.request.store
        self.seed = self.request.number * plan.SEEDS_PER_RUN
        self._before_s = self.journal.worked_s()
        self._began_s = self.environment.now_s()

    def worked_s(self) -> float:
        """Return for how many seconds the nightly run has worked, over all its sessions."""
        return self._before_s + self.environment.now_s() - self._began_s

    def left_s(self) -> float:
        """Return how many seconds of the budget are left."""
        return self.request.budget_s - self.worked_s()

    def add(self, row: AnyRow, seconds: float = 0.0) -> None:
        """Write a row. Raises StorageError."""
        row.seconds, row.worked_s = round(seconds, 2), round(self.worked_s(), 2)
        self.journal.add(row)

    def skip(self, key: str, why: object) -> None:
        """Note that work cannot be done on this machine, or is given up."""
        self.add(Skipped(key=key, sentence=str(why)))

    def rows(self, kind: str) -> list[AnyRow]:
        return [row for row in self.journal.rows if row.key.partition("/")[0] == kind]

    def open_numbers(self, kind: str, wanted: int) -> list[int]:
        """Return the smallest numbers of jobs of a kind that are not done, at most `wanted`."""
        done = self.journal.done()
        most = len(done) + wanted
        return [n for n in range(most) if f"{kind}/{n}" not in done][:wanted]

    # -- runs of real processes

    def fits(self, schedule: Schedule) -> bool:
        """Return whether there is time for a run of real processes."""
        return schedule.workload.duration_ms / 1000 + AROUND_A_RUN_S <= self.left_s()

    @property
    def prefix(self) -> str:
        """The prefix of the names of its run folders."""
        return f"nightly-{self.request.number:04d}-"

    def real(self, key: str, schedule: Schedule, name: str, **more: Any) -> RealJob:
        """Return the job that makes one run of real processes."""
        why, store = key.partition("/")[0], str(self.store)
        return RealJob(
            key=key, why=why, schedule=schedule, name=self.prefix + name, store=store, **more
        )


class Kind(ABC):
    """A kind of work, which has a share of the budget. The keys of its jobs begin with its name.
    `real`: its jobs run real processes, so each has the machine for itself."""

    name: ClassVar[str]
    real: ClassVar[bool] = False

    def __init__(self, night: Night) -> None:
        self.night = night

    @abstractmethod
    def jobs(self) -> list[Job]:
        """Return the next jobs: one of real processes, or one for each core; none if nothing is
        left to do."""

    def done(self, row: Any) -> Any:
        """Return the row of a job as it is to be written."""
        return row

    @staticmethod
    @abstractmethod
    def count(row: Any, to: Counting) -> None:
        """Add the row of a job to the summary of the nightly run."""
