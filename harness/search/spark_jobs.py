"""A pool of jobs on a Spark cluster, which only starts processes: no data is shuffled."""

from __future__ import annotations

import math
import time

from checker.engine.spark_session import start_session
from checker.formats.errors import CheckerError
from harness.search.jobs import EndedJob, Job, answer
from node.formats.errors import FloodmarkError


class SparkJobs:
    """A `Pool` on a Spark cluster that has floodmark; one Spark job does all waiting jobs."""

    def __init__(self, master: str) -> None:
        """Start Spark on `master`. Raises FloodmarkError when it does not start."""
        try:
            self._session = start_session("floodmark search", master=master)
        except CheckerError as error:
            raise FloodmarkError(str(error)) from None
        self.size = max(1, self._session.sparkContext.defaultParallelism)
        self._waiting: list[Job] = []

    @property
    def running(self) -> int:
        return len(self._waiting)

    def start(self, job: Job, longest_s: float = math.inf) -> None:
        """Queue a job (see `Pool`). Spark, not the pool, ends a task that hangs."""
        self._waiting.append(job)

    def ended(self, within_s: float) -> list[EndedJob]:
        """Do all queued jobs on Spark and return them, even after more than `within_s`."""
        jobs, self._waiting = self._waiting, []
        began_s = time.monotonic()
        done = self._session.sparkContext.parallelize(jobs, len(jobs)).map(answer).collect()
        seconds = time.monotonic() - began_s
        return [
            EndedJob(job, row, seconds, sentence, error)
            for job, (row, sentence, error) in zip(jobs, done, strict=True)
        ]

    def kill(self) -> list[EndedJob]:
        jobs, self._waiting = self._waiting, []
        return [EndedJob(job, None, 0.0, "it was stopped") for job in jobs]

    def close(self) -> None:
        self._session.stop()
