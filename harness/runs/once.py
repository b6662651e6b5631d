"""One run of real processes, from its order to its verdict: for every command and job.

Checker, pages and Spark start slowly, so they are imported late, while a storm goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from harness.formats.run_info import RunInfo
from harness.runs.interrupts import Interrupts, StopNow
from harness.runs.judge import SparkSoon, bring_finding, get_ready, judge, tidy
from harness.runs.program import command_line
from harness.runs.progress import Progress
from harness.runs.run import Run, RunOrder
from harness.systems.external.links import KERNEL_LINKS
from nemesis.links import namespaces
from node.formats.errors import FloodmarkError

if TYPE_CHECKING:
    from checker.formats.verdict import RunResult


class RunOutcome(NamedTuple):
    """A run that was made, in `seconds`. `verdict` is None if it has none; `error` says why.
    `interrupted`: a person or program asked it to stop."""

    folder: Path
    info: RunInfo
    seconds: float
    interrupted: bool
    verdict: RunResult | None
    error: FloodmarkError | None = None

    @property
    def result(self) -> RunResult:
        """The verdict. Raises the error if there is none."""
        if self.verdict is None:
            assert self.error is not None
            raise self.error
        return self.verdict


def run_once(
    order: RunOrder,
    *,
    quiet: bool = True,
    began: Callable[[Run, Progress], None] = lambda run, progress: None,
    spark: bool = False,
) -> RunOutcome:
    """Make a run and judge it. `began` is called when it has a folder. With `spark`, a large run is
    judged on Spark. Raises UsageError or StorageError if the run cannot begin. Main thread only."""
    if order.on.links == KERNEL_LINKS:
        namespaces.enter()
    started_s = time.monotonic()
    verdict = error = None
    with Interrupts() as interrupts, Progress(quiet=quiet) as progress:
        run = Run(order, progress=progress, interrupts=interrupts)
        began(run, progress)
        log = run.folder.path / "output" / "spark.txt"
        try:
            verdict = run_and_judge(run, progress, interrupts, SparkSoon(log) if spark else None)
        except FloodmarkError as raised:
            error = raised
    seconds, asked = time.monotonic() - started_s, interrupts.asked
    return RunOutcome(run.folder.path, run.info, seconds, asked, verdict, error)


def run_and_judge(
    run: Run, progress: Progress, interrupts: Interrupts, spark: SparkSoon | None = None
) -> RunResult:
    """Execute a run and judge it; if it repeats a finding, copy that beside it. `spark`, if given,
    judges a large run; it starts during the storm. Raises what `Run.execute` raises."""
    folder = run.folder.path
    try:
        run.execute(on_storm=lambda: get_ready(spark, run.schedule))
    except StopNow:
        progress.note(f"Stopped at once; to judge it: {command_line('check', folder)}")
        raise
    interrupts.at_once = True
    progress.phase("judging")
    result = judge([folder], spark, progress.note)[0]
    bring_finding(run.order.source, folder, progress.note)
    tidy(folder, result)
    return result
