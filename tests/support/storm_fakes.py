"""Storms that take no time: a verdict that a test plans, and a clock that runs move."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from harness.runs import run_folder
from harness.search.real.attempt import StormJob, StormOutcome
from harness.search.real.runner import EndedStorm

LOST = "no-lost-acknowledged-write"
RUN_S = 30.0

Plan = Callable[[StormJob, int], StormOutcome | bool]
"""What becomes of a job, by how often its schedule was run before: an outcome, or whether a write
is lost."""


class FakeStorms:
    """Implements `harness.search.real.runner.StormRunner`; a failing run leaves a folder."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._waiting: list[tuple[int, StormJob]] = []
        self._begun = 0
        self._runs: dict[str, int] = {}
        self.jobs: list[StormJob] = []
        self.killed = 0
        self.clock_s = 1000.0
        self.at: Callable[[int], None] = lambda number: None

    def now_s(self) -> float:
        return self.clock_s

    @property
    def running(self) -> int:
        return len(self._waiting)

    def start(self, job: StormJob) -> int:
        self._begun += 1
        self._waiting.append((self._begun, job))
        self.jobs.append(job)
        return self._begun

    def ended(self, within_s: float) -> list[EndedStorm]:
        """The oldest one; those beside it go on."""
        number, job = self._waiting.pop(0)
        self.clock_s += RUN_S
        self.at(number)
        return [EndedStorm(number, self._outcome(job))]

    def kill(self) -> None:
        self.killed += len(self._waiting)
        self._waiting.clear()

    def _outcome(self, job: StormJob) -> StormOutcome:
        key = f"{job.subject.settings} {job.schedule.digest()}"
        before = self._runs.get(key, 0)
        self._runs[key] = before + 1
        came_to = self._plan(job, before)
        if isinstance(came_to, bool):
            came_to = (
                loses_a_write(job) if came_to else StormOutcome(verdict="valid", seconds=RUN_S)
            )
        return came_to


def loses_a_write(job: StormJob, *disks: str) -> StormOutcome:
    """A failing run, with its folder."""
    folder = run_folder.create(Path(job.store), job.name).path
    return StormOutcome(
        verdict="invalid",
        sentence="invalid: a record is gone.",
        broken={LOST: "lost"},
        lost_disks=disks,
        folder=str(folder),
        seconds=RUN_S,
    )
