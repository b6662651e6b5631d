"""The nightly run that a session works on, and the interface of its kinds of work."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from harness.formats.journal import JobJournal
from harness.formats.nightly_journal import AnyRow, Skipped
from harness.formats.nightly_run import NightlyRun
from harness.nightly import plan
from harness.nightly.counting import Counting
from harness.nightly.environment import NightlyEnvironment
from harness.nightly.real_job import RealJob
from harness.nightly.requests import NightlyRequest
from harness.search.jobs import Job
from harness.search.worlds.real import StormSubject
from nemesis.formats.schedule import Schedule

AROUND_A_RUN_S: Final = 50.0
"""Start, recovery, final reads, end and verdict of a real run."""


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
