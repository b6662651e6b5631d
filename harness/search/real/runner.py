"""Runs storms side by side, each in a process of its own, while a search decides what is next."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple, Protocol

import msgspec

from harness.runs.job_processes import JobProcesses
from harness.search.real.attempt import StormJob, StormOutcome, storm_in_process
from nemesis.formats.schedule import Schedule
from node.formats.json_input import JsonReader, Unreadable

BESIDE_THE_STORM_S: Final = 600.0
"""What a run may take beside storm and recovery. One that takes longer is taken to hang, and
killed."""


class EndedStorm(NamedTuple):
    """A storm that was started, by its number, and what it came to."""

    number: int
    outcome: StormOutcome


class StormRunner(Protocol):
    """What makes the runs of a search; one in memory in tests."""

    @property
    def running(self) -> int:
        """How many have not ended."""
        ...

    def start(self, job: StormJob) -> int:
        """Begin one; returns its number."""
        ...

    def ended(self, within_s: float) -> list[EndedStorm]:
        """Those that have ended, once one has or the time is over."""
        ...

    def kill(self) -> None:
        """End all that run, without a trace of them."""
        ...


class StormProcesses:
    """The storms of real processes. `close` it in any case."""

    def __init__(self, output: Path, recovery_ms: int) -> None:
        """`output` gets what the processes print. `recovery_ms` is how long the system may take to
        recover from a storm."""
        self._jobs = JobProcesses(storm_in_process, output)
        self._recovery_ms = recovery_ms
        self._outcomes = JsonReader(StormOutcome)

    @property
    def running(self) -> int:
        """See `StormRunner`."""
        return self._jobs.running

    def start(self, job: StormJob) -> int:
        """See `StormRunner`."""
        longest_s = longest_run_s(job.schedule, self._recovery_ms)
        return self._jobs.start("storm", msgspec.json.encode(job), longest_s)

    def ended(self, within_s: float) -> list[EndedStorm]:
        """See `StormRunner`."""
        found = []
        for job in self._jobs.ended(within_s):
            try:
                outcome = self._outcomes.decode(job.answer or b"")
            except Unreadable as error:
                why = job.sentence or str(error)
                outcome = StormOutcome(verdict="unknown", problem=why, seconds=job.seconds)
            found.append(EndedStorm(job.number, outcome))
        return found

    def kill(self) -> None:
        """See `StormRunner`."""
        self._jobs.kill()

    def close(self) -> None:
        """Leave no process behind."""
        self._jobs.close()


def longest_run_s(schedule: Schedule, recovery_ms: int) -> float:
    """How long a run of a schedule may take, in seconds."""
    return BESIDE_THE_STORM_S + (schedule.workload.duration_ms + recovery_ms) / 1000
