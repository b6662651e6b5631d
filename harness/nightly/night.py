"""The nightly run that a session works on, its host, and the interface of its kinds of work."""

from __future__ import annotations

import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from checker.engine.java import find_java
from harness.formats.journal import JobJournal
from harness.formats.nightly_journal import AnyRow, Skipped
from harness.formats.nightly_run import NightlyRun
from harness.nightly import plan
from harness.nightly.counting import Counting
from harness.nightly.real_job import RealJob
from harness.nightly.requests import NightlyRequest
from harness.runs.interrupts import Interrupts
from harness.runs.progress import Progress
from harness.search.jobs import Job, JobProcesses, Pool
from harness.search.worlds.real import StormSubject
from nemesis import strace, wall_clocks
from nemesis.disk import control
from nemesis.formats.schedule import Schedule
from nemesis.links import namespaces
from node.formats.errors import FloodmarkError

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


class Night:
    """One nightly run, in one session. `past` are the earlier runs of the store, `systems` the
    third-party systems to storm. Its journal is all that a later session knows of it."""

    def __init__(
        self,
        request: NightlyRequest,
        systems: Sequence[StormSubject],
        environment: NightlyEnvironment,
        journal: JobJournal[AnyRow],
        past: Sequence[NightlyRun],
    ) -> None:
        self.request = request
        self.systems = systems
        self.environment = environment
        self.journal = journal
        self.past = past
        self.store = request.store
        self.seed = request.number * plan.SEEDS_PER_RUN
        self._before_s = journal.worked_s()
        self._began_s = environment.now_s()

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
