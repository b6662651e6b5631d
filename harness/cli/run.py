"""`floodmark run`: a run, its verdict, its page, and what is printed of them."""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path

import msgspec

from checker.formats.verdict import EXIT_CODES, RunResult
from harness.runs.interrupts import Interrupts, StopNow
from harness.runs.judge import SparkSoon, judge, summarise, tidy
from harness.runs.options import Wishes, default_name, to_schedule
from harness.runs.page_builder import bring_finding, page_after
from harness.runs.progress import Progress
from harness.runs.run import Run, RunSettings
from harness.systems.floodmark.cluster import RealCluster
from nemesis.formats.schedule import Schedule


class Presentation(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `floodmark run` that decide nothing about the verdict."""

    name: str | None = None
    store: Path = Path("store")
    hub: bool = True
    report: bool = True
    control: bool = True
    spark: bool = True
    quiet: bool = False
    json: bool = False
    open_page: bool = False


def run_command(wishes: Wishes, how: Presentation) -> int:
    """Carry out `floodmark run`; returns the exit code."""
    schedule = to_schedule(wishes)
    settings = RunSettings(
        name=how.name or default_name(schedule),
        seed=schedule.workload.seed,
        store=how.store,
        command=("floodmark", *sys.argv[1:]),
    )
    with Interrupts() as interrupts, Progress(quiet=how.quiet) as progress:
        run = Run(
            schedule,
            settings,
            lambda schedule, folder: RealCluster(schedule, folder, with_hub=how.hub),
            progress=progress,
            interrupts=interrupts,
        )
        progress.note(_headline(schedule, run.folder.path))
        spark = SparkSoon(run.folder.path / "output" / "spark.txt") if how.spark else None
        try:
            run.execute(on_storm=lambda: spark.begin() if spark else None)
        except StopNow:
            progress.note(f"Stopped at once; to judge it: floodmark check {run.folder.path}")
            raise
        interrupts.at_once = True
        progress.phase("judging")
        result = judge([run.folder.path], spark, progress.note)[0]
        bring_finding(wishes.schedule, run.folder.path, progress.note)
        tidy(run.folder.path, result)
    if not how.json:
        print(summarise(run.folder.path, result), flush=True)
    _print_page(run, result, _page(run.folder.path, how), how)
    return EXIT_CODES[result.verdict]


def _page(folder: Path, how: Presentation) -> Path | None:
    """The page, after the verdict: nothing that goes wrong with it changes that."""
    if not how.report:
        return None
    with Progress(quiet=how.quiet) as progress:
        progress.phase("building the page")
        return page_after(folder, progress.note, control=how.control)


def _headline(schedule: Schedule, folder: Path) -> str:
    """What is run, and how to run it again, before anything can go wrong."""
    cluster = schedule.cluster
    switched = f" with {', '.join(cluster.bugs)}" if cluster.bugs else ""
    return (
        f"{cluster.protocol}{switched}: {cluster.brokers} brokers, {len(schedule.faults)} faults, "
        f"seed {schedule.workload.seed}, schedule {schedule.digest()}, in {folder}\n"
        f"again: floodmark run --schedule {folder}"
    )


def _print_page(run: Run, result: RunResult, page: Path | None, how: Presentation) -> None:
    folder = run.folder.path
    if how.json:
        told = {
            "path": str(folder),
            "page": str(page) if page else None,
            "replay": run.info.replay,
            "result": result,
        }
        print(msgspec.json.encode(told).decode())
    else:
        print(f"  page        {page}" if page else f"  folder      {folder}")
    if how.open_page and page is not None:
        webbrowser.open(page.absolute().as_uri())
