"""`floodmark run`: a run, its verdict, its page, and what is printed of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli.common import print_json
from harness.runs.requests import RunRequest

if TYPE_CHECKING:
    from nemesis.formats.schedule import Schedule


def run(request: RunRequest) -> int:
    """Run a cluster through a storm of faults and judge it.

    Draws a storm, or takes the one of --schedule. Starts real processes, injects the faults while
    clients write and read, checks the history against the logs of the replicas, and writes a page.
    Exit code: 0 valid, 1 invalid, 2 unknown or not exercised."""
    import sys
    import webbrowser

    if request.system in (None, "floodmark"):
        # It imports what the nodes need while this process imports what it needs itself.
        from harness.systems.floodmark import processes

        processes.prepare()
    from checker.formats.verdict import EXIT_CODES
    from harness.runs.interrupts import Interrupts
    from harness.runs.judge import SparkSoon, run_and_judge, summarise
    from harness.runs.options import default_name, kinds_of, to_schedule
    from harness.runs.program import called
    from harness.runs.progress import Progress
    from harness.runs.run import Run, RunSettings
    from harness.systems.external.links import KERNEL_LINKS
    from harness.systems.setup import setup_of
    from nemesis.links import namespaces

    schedule = to_schedule(request)
    system = setup_of(request.schedule, request.system, request.settings).find()
    if system.link_form(request.links) == KERNEL_LINKS:
        namespaces.enter()
    settings = RunSettings(
        name=request.name or default_name(schedule),
        seed=schedule.workload.seed,
        store=request.store,
        command=(*called(), *sys.argv[1:]),
        links=system.link_form(request.links),
        disk=system.disk_form(request.disk, kinds_of(schedule)),
    )
    with Interrupts() as interrupts, Progress(quiet=request.quiet) as progress:
        run = Run(schedule, settings, system, progress=progress, interrupts=interrupts)
        folder = run.folder.path
        progress.note(_headline(schedule, folder, run.info.replay))
        spark = SparkSoon(folder / "output" / "spark.txt") if request.spark else None
        result = run_and_judge(run, progress, interrupts, spark=spark, source=request.schedule)
    if not request.json:
        print(summarise(folder, result), flush=True)
    page = _page(request, folder) if request.report else None
    if request.json:
        place = {"path": str(folder), "page": str(page) if page else None}
        print_json(place | {"replay": run.info.replay, "result": result})
    else:
        print(f"  page        {page}" if page else f"  folder      {folder}")
    if request.open and page is not None:
        webbrowser.open(page.absolute().as_uri())
    return EXIT_CODES[result.verdict]


def _page(request: RunRequest, folder: Path) -> Path | None:
    """Build the page, after the verdict: no error of it changes the verdict."""
    from harness.replay.pages import page_after
    from harness.runs.progress import Progress

    with Progress(quiet=request.quiet) as progress:
        progress.phase("building the page")
        return page_after(folder, progress.note, baseline_too=request.baseline)


def _headline(schedule: Schedule, folder: Path, again: str) -> str:
    """Return a sentence on the run, with the command that repeats it, to print at its start."""
    cluster = schedule.cluster
    bugs = f" with {', '.join(cluster.bugs)}" if cluster.bugs else ""
    return (
        f"{cluster.protocol}{bugs}: {cluster.brokers} brokers, {len(schedule.faults)} faults, "
        f"seed {schedule.workload.seed}, schedule {schedule.digest()}, in {folder}\n"
        f"again: {again}"
    )
