"""A pool that does its jobs in this process, one after the other."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from harness.search.jobs import EndedJob, Job


class LocalPool:
    """Implements `harness.search.jobs.Pool`. `at` is called before each job with its number."""

    def __init__(self, size: int = 1) -> None:
        self.size = size
        self.jobs: list[Job] = []
        self.killed: list[Job] = []
        self.at: Callable[[int], None] = lambda number: None
        self.endless: tuple[type, ...] = ()
        """Jobs of these types do not end."""
        self._waiting: list[Job] = []

    @property
    def running(self) -> int:
        return len(self._waiting)

    def start(self, job: Job, longest_s: float = math.inf) -> None:
        self._waiting.append(job)
        self.jobs.append(job)

    def ended(self, within_s: float) -> list[EndedJob]:
        """Do the oldest job; those beside it go on."""
        if isinstance(self._waiting[0], self.endless):
            return []
        job = self._waiting.pop(0)
        began_s = time.monotonic()
        self.at(len(self.jobs) - len(self._waiting))
        return [EndedJob(job, self.do(job), time.monotonic() - began_s)]

    def do(self, job: Job) -> object:
        return job.do()

    def kill(self) -> list[EndedJob]:
        gone, self._waiting = self._waiting, []
        self.killed += gone
        return [EndedJob(job, None, 0.0, "it was killed") for job in gone]

    def close(self) -> None:
        self.kill()
