"""The interface of what a search tries to break: how its schedules are drawn, run and judged.

There are two subjects: a protocol in the simulated world and a system of real processes. They
differ in one number: a schedule fails if it fails in the majority of `most_runs` runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from harness.formats.finding import Finding
from harness.runs.run_folder import remove
from harness.search.shrink.passes import Pass
from harness.search.worlds.outcome import ScheduleOutcome
from nemesis.formats.schedule import Schedule

if TYPE_CHECKING:
    from harness.search.search_jobs import AnySearchJob

GIVEN: Final = "a run that failed"
"""The family of a schedule that was not drawn."""
Stop = Callable[[], bool]
"""A function that returns True when the work should end with what was found so far."""


def never() -> bool:
    """Return False: a `Stop` for work without a time limit."""
    return False


def deadline(seconds: float) -> Stop:
    """Return a `Stop` that returns True from `seconds` from now on; 0 means no limit."""
    if not seconds:
        return never
    end_s = time.monotonic() + seconds
    return lambda: time.monotonic() >= end_s


class RunFolders(NamedTuple):
    """The place of the run folders of a job: in `store`, with names that begin with `run_name`."""

    store: str = ""
    run_name: str = ""


class Drawn(NamedTuple):
    """A schedule that a search drew, or one with a worse ending, and the outcome of its run.
    `family` is the kind of storm, "" in the simulated world."""

    family: str
    schedule: Schedule
    outcome: ScheduleOutcome


class Shrinks(NamedTuple):
    """The way in which schedules of a subject are shrunk. `passes` propose smaller schedules and
    are repeated until none helps. `tries` is the largest number of runs. A smaller schedule is
    saved at most every `save_every_s` seconds."""

    passes: Sequence[Pass]
    tries: int
    save_every_s: float


class Subject(Protocol):
    """A protocol or system that a search tries to break. It can be pickled. `chunk` is the number
    of schedules in one job, `generator` the version of the generator: under another one a seed
    draws another schedule."""

    @property
    def name(self) -> str: ...
    @property
    def chunk(self) -> int: ...
    @property
    def generator(self) -> int: ...
    @property
    def most_runs(self) -> int: ...
    @property
    def shrinks(self) -> Shrinks: ...

    def longest_s(self, job: AnySearchJob) -> float:
        """Return after how many seconds a job counts as hung and is killed."""
        ...

    def runs(
        self, seed: int, number: int, known: Collection[str], at: RunFolders
    ) -> Iterator[Drawn]:
        """Draw the schedule of this number and run it; then worse endings. Yield each run. `known`
        are the buckets of which the search has a finding."""
        ...

    def run(self, schedule: Schedule, at: RunFolders) -> ScheduleOutcome:
        """Run a schedule once; return the outcome."""
        ...

    def bucket(self, outcome: ScheduleOutcome) -> str:
        """Return the class of the failure, "" if the run did not fail."""
        ...

    def finding(self, drawn: Drawn) -> Finding:
        """Return a finding for a failed run, without its number in the search."""
        ...

    def is_alike(self, finding: Finding, outcome: ScheduleOutcome) -> bool:
        """Return whether a run fails in the same way as a finding."""
        ...

    def complete(
        self, finding: Finding, folder: Path, stop: Stop, at: RunFolders, *, form: bool = True
    ) -> Finding:
        """Do what follows the shrinking of a finding, until `stop` returns True: explain it, run it
        on a safe configuration, or with `form` find a form for real processes."""
        ...


def drop(run: str, at: RunFolders) -> None:
    """Remove the run folder of an outcome that is not kept, if it has one."""
    if run:
        remove(Path(run), Path(at.store))
