"""Storms that take no time: a verdict that a test plans, and a clock that runs move."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from harness.formats.finding import Finding
from harness.formats.journal import JobJournal, SearchRow
from harness.runs import run_folder
from harness.search.loop import Budget, Search, journal_of
from harness.search.worlds.outcome import ScheduleOutcome
from harness.search.worlds.real import StormJob, StormSubject
from harness.search.worlds.subject import RunFolders, Stop
from nemesis.formats.schedule import Schedule
from tests.support.local_pool import LocalPool

LOST = "no-lost-acknowledged-write"
RUN_S = 30.0

Plan = Callable[[StormJob, int], ScheduleOutcome | bool]
"""What becomes of a job, by how often its schedule was run before: an outcome, or whether a write
is lost."""


class FakeStorms:
    """Storms without processes; a failing run leaves a folder."""

    def __init__(self, plan: Plan, patch: pytest.MonkeyPatch) -> None:
        self._plan = plan
        self._runs: dict[str, int] = {}
        self.jobs: list[StormJob] = []
        self.clock_s = 1000.0
        patch.setattr(StormJob, "do", lambda job: self._do(job))

        def in_process(
            of: StormSubject, schedule: Schedule, stop: Stop, at: RunFolders
        ) -> ScheduleOutcome:
            job = StormJob(subject=of, schedule=schedule, store=at.store, name=at.run_name)
            return self._do(job)

        patch.setattr(StormSubject, "in_process", in_process)

    def _do(self, job: StormJob) -> ScheduleOutcome:
        self.jobs.append(job)
        self.clock_s += RUN_S
        key = f"{job.subject.settings} {job.schedule.digest()}"
        before = self._runs.get(key, 0)
        self._runs[key] = before + 1
        came_to = self._plan(job, before)
        if isinstance(came_to, bool):
            came_to = (
                loses_a_write(job) if came_to else ScheduleOutcome(verdict="valid", seconds=RUN_S)
            )
        return came_to

    def search(
        self,
        store: Path,
        system: str,
        budget: Budget,
        *,
        disks: Any = "one",
        loss: str = "",
        pool: LocalPool | None = None,
        stop: Callable[[], bool] = lambda: False,
        **more: Any,
    ) -> Search:
        subject = StormSubject(system=system, disks=disks, loss=loss)
        file = journal_of(store, subject, 3)
        with closing(JobJournal[SearchRow](file, SearchRow)) as journal:
            made = Search(
                *(subject, journal, store),
                seed=3,
                budget=budget,
                clock_s=lambda: self.clock_s,
                **more,
            )
            made.work(pool or LocalPool(), stop)
        return made


def find_of(made: Search) -> Finding:
    (finding,) = made.kept.values()
    return finding


def loses_a_write(job: StormJob, *disks: str) -> ScheduleOutcome:
    """Return the outcome of a failing run, with its folder."""
    folder = run_folder.create(Path(job.store), job.name).path
    return ScheduleOutcome(
        failed=True,
        verdict="invalid",
        property=LOST,
        sentence="invalid: a record is gone.",
        broken={LOST: "lost"},
        lost_disks=disks,
        folder=str(folder),
        seconds=RUN_S,
    )
