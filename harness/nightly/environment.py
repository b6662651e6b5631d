"""What a night needs of the world: a clock, processes, real runs, verdicts, room on the disk.

The loop of a night (`night.py`) asks only here, so that its tests can stand in for each.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from checker.formats.verdict import RunResult
from harness.nightly.jobs import AnyJob
from harness.nightly.workers import FinishedJob, side_by_side
from harness.runs.interrupts import Interrupts, StopNow
from harness.runs.judge import Keep, SparkSoon, judge
from harness.runs.progress import Progress
from harness.runs.run import Run, RunSettings
from harness.systems import registry
from nemesis.formats.schedule import Schedule


class Hands(Protocol):
    """See the module."""

    def now_s(self) -> float:
        """A monotonic clock, in seconds."""
        ...

    def free_bytes(self) -> int:
        """Room on the disk of the store."""
        ...

    def stopping(self) -> bool:
        """Whether somebody asked the night to end."""
        ...

    def side_by_side(self, jobs: Sequence[AnyJob], limit_s: float) -> Iterator[FinishedJob]:
        """Do jobs at the same time; gives less when it is asked to stop."""
        ...

    def run(self, schedule: Schedule, name: str, store: Path) -> Path:
        """One run of real processes; returns its folder, not judged. Raises FloodmarkError."""
        ...

    def judge(self, folders: Sequence[Path]) -> list[RunResult]:
        """Judge run folders, those that did not change not again. Raises FloodmarkError."""
        ...

    def tell(self, sentence: str) -> None:
        """Something worth a line."""
        ...

    def status(self, words: str) -> None:
        """How things stand."""
        ...


class RealHands:
    """The real ones. Use inside `Interrupts`, in the main thread."""

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

    def stopping(self) -> bool:
        """After the first Ctrl-C or SIGTERM."""
        return self._interrupts.asked

    def side_by_side(self, jobs: Sequence[AnyJob], limit_s: float) -> Iterator[FinishedJob]:
        """In worker processes."""
        return side_by_side(jobs, self._output, limit_s, self.stopping)

    def run(self, schedule: Schedule, name: str, store: Path) -> Path:
        """A run as `floodmark run` makes it."""
        settings = RunSettings(
            name=name,
            seed=schedule.workload.seed,
            store=store,
            command=("floodmark", *sys.argv[1:]),
        )
        run = Run(
            schedule,
            settings,
            registry.find(registry.DEFAULT),
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
    """Of a run within a night, only which part it is in."""

    def __init__(self, name: str, tell: Callable[[str], None]) -> None:
        super().__init__(quiet=True)
        self._name = name
        self._tell = tell

    def phase(self, name: str, limit_s: float = 0.0) -> None:
        """A part of the run begins."""
        self._tell(f"{self._name}: {name}")
