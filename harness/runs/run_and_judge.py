"""A run of real processes from its first process to its verdict."""

from __future__ import annotations

from pathlib import Path

from checker.formats.verdict import RunResult
from harness.runs.interrupts import Interrupts, StopNow
from harness.runs.judge import SparkSoon, get_ready, judge, tidy
from harness.runs.program import command_line
from harness.runs.progress import Progress
from harness.runs.run import Run


def run_and_judge(
    run: Run,
    progress: Progress,
    interrupts: Interrupts,
    *,
    spark: SparkSoon | None = None,
    source: Path | None = None,
) -> RunResult:
    """Execute a run and judge it; a large one on `spark` if given, which starts while the storm
    goes on.

    `source` is what the run was asked to replay; a finding's explanation is copied from there.
    Raises what `Run.execute` raises.
    """
    folder = run.folder.path
    try:
        run.execute(on_storm=lambda: get_ready(spark, run.schedule))
    except StopNow:
        progress.note(f"Stopped at once; to judge it: {command_line('check', folder)}")
        raise
    interrupts.at_once = True
    progress.phase("judging")
    result = judge([folder], spark, progress.note)[0]
    from harness.runs.page_builder import bring_finding

    bring_finding(source, folder, progress.note)
    tidy(folder, result)
    return result
