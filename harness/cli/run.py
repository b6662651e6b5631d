"""`floodmark run`: a run, its verdict, its page, and what is printed of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli.common import print_json, print_result, tell
from harness.runs.requests import RunRequest

if TYPE_CHECKING:
    from harness.runs.progress import Progress
    from harness.runs.run import Run


def run(request: RunRequest) -> int:
    """Run a cluster through a storm of faults and judge it.

    Draws a storm, or takes the one of --schedule. Starts real processes, injects the faults while
    clients write and read, checks the history against the logs of the replicas, and writes a page.
    Exit code: 0 valid, 1 invalid or over a limit, 2 unknown or not exercised."""
    import sys
    import webbrowser

    if request.system in (None, "floodmark"):
        # It imports what the nodes need while this process imports what it needs itself.
        from harness.systems.floodmark import processes

        processes.prepare()
    from checker.formats.verdict import EXIT_CODES
    from harness.runs.judge import summarise
    from harness.runs.options import default_name, requested
    from harness.runs.program import called
    from harness.runs.requests import EXIT_OVER
    from harness.runs.run import RunOrder, run_once

    schedule, on = requested(request)
    order = RunOrder(
        schedule,
        on,
        name=request.name or default_name(schedule),
        store=request.store,
        command=(*called(), *sys.argv[1:]),
        source=request.schedule,
    )
    outcome = run_once(order, quiet=request.quiet, began=_headline, spark=request.spark)
    folder, result = outcome.folder, outcome.result
    if not request.json:
        print_result(summarise(folder, result), result.verdict)
    page = _page(request, folder) if request.report else None
    if request.json:
        place = {"path": str(folder), "page": str(page) if page else None}
        print_json(place | {"replay": outcome.info.replay, "result": result})
    else:
        print(f"  page        {page}" if page else f"  folder      {folder}")
    if request.open and page is not None:
        webbrowser.open(page.absolute().as_uri())
    broken = request.limits.broken_by(result)
    for sentence in broken:
        tell(f"floodmark: {sentence}")
    return EXIT_OVER if broken else EXIT_CODES[result.verdict]


def _page(request: RunRequest, folder: Path) -> Path | None:
    """Build the page, after the verdict: no error of it changes the verdict."""
    from harness.replay.pages import page_after
    from harness.runs.progress import Progress

    with Progress(quiet=request.quiet) as progress:
        progress.phase("building the page")
        return page_after(folder, progress.note, baseline_too=request.baseline)


def _headline(run: Run, progress: Progress) -> None:
    """Print a sentence on a run that begins, and the command that repeats it."""
    from reports.wording import count

    schedule, cluster = run.schedule, run.schedule.cluster
    faults = count(len(schedule.faults), "fault")
    bugs = f" with {', '.join(cluster.bugs)}" if cluster.bugs else ""
    progress.note(
        f"{cluster.protocol}{bugs}: {count(cluster.brokers, 'broker')}, {faults}, "
        f"seed {schedule.workload.seed}, schedule {schedule.digest()}, in {run.folder.path}\n"
        f"again: {run.info.replay}"
    )
