"""The shrinking of a failed run of real processes: `floodmark shrink RUN`.

A run of our own brokers is tried in the simulated world first, where a schedule takes milliseconds
and its outcome never changes. A run that does not fail there, or of a system that has no simulated
world, is run again on real processes: k of n runs must fail alike.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

from checker.formats.verdict import RunResult, Verdict
from harness.formats.run_info import RunInfo
from harness.replay.replay import broken_properties
from harness.runs.interrupts import Interrupts
from harness.runs.options import load_schedule, system_of
from harness.runs.progress import Progress
from harness.search import campaign, deadline
from harness.search.attempt import attempt
from harness.search.campaign import Finding, as_file
from harness.search.deadline import Stop
from harness.search.real import report
from harness.search.real.attempt import outcome_of
from harness.search.real.main import finish, storm_processes
from harness.search.real.storms import StormSubject
from harness.search.real.system_search import SystemSearch
from harness.search.requests import ShrinkRequest
from harness.search.simulated_search import Finds, Print
from harness.systems.interface import System
from nemesis.formats.schedule import Schedule
from node.formats.errors import UsageError
from node.formats.json_input import Unreadable, read_file

SEEDS_TRIED: Final = 20
SHRINK_TRIES: Final = 1500


def shrink_run(
    request: ShrinkRequest, interrupts: Interrupts, progress: Progress, output: Print
) -> bool:
    """Look for the smallest schedule that fails like a run; return whether one fails at all.

    Raises UsageError if the folder is not a failed run, StorageError if the store cannot be
    written.
    """
    result = _failed_run(request.run)
    schedule, system = load_schedule(request.run), system_of(request.run)
    is_late = deadline.after(request.budget_s)

    def stop() -> bool:
        return is_late() or interrupts.asked

    if system.simulated:
        progress.phase("trying the schedule in the simulated world", request.budget_s)
        found = _simulated_failure(schedule, result, stop)
        if found is not None:
            progress.phase("shrinking in the simulated world")
            finds = Finds(request.store / "findings", output, stop)
            smallest = campaign.shrink(found, lambda tried: tried.bucket, SHRINK_TRIES, stop)
            finds.keep(campaign.CampaignResult(findings=[smallest]))
            finds.explain(smallest)
            return True
        output(f"it does not fail with any of {SEEDS_TRIED} seeds of the simulated world")
    return _shrink_on_processes(request, schedule, system, result, stop, progress, output)


def _failed_run(folder: Path) -> RunResult:
    """Return the verdict of a run folder. Raises UsageError unless it is invalid."""
    try:
        result = read_file(folder / "results.json", RunResult)
    except (OSError, Unreadable) as error:
        raise UsageError(
            f"{folder}: not a judged run: {error} (`floodmark check` judges a run folder)"
        ) from None
    if result.verdict is not Verdict.INVALID:
        raise UsageError(f"{folder} is {result.verdict}: only a failed run can be shrunk")
    return result


def _simulated_failure(schedule: Schedule, result: RunResult, stop: Stop) -> Finding | None:
    """Return the first failure with a broken property of the run, over some seeds; None if no seed
    has one."""
    broken = broken_properties(result)
    for seed in range(schedule.workload.seed, schedule.workload.seed + SEEDS_TRIED):
        if stop():
            return None
        workload = msgspec.structs.replace(schedule.workload, seed=seed)
        tried = msgspec.structs.replace(schedule, workload=workload)
        outcome = attempt(tried, about=broken[0])
        if outcome.failed and outcome.property in broken:
            return Finding(
                bucket=outcome.bucket,
                property=outcome.property,
                sentence=outcome.sentence,
                schedule=tried,
                smallest=as_file(tried, outcome),
                schedules_before=seed - schedule.workload.seed + 1,
                seconds_before=0.0,
                shrink_tries=0,
                shrunk=False,
            )
    return None


def _shrink_on_processes(
    request: ShrinkRequest,
    schedule: Schedule,
    system: System,
    result: RunResult,
    stop: Stop,
    progress: Progress,
    output: Print,
) -> bool:
    """Run the schedule again until it is known whether it mostly fails, and then smaller ones."""
    links = read_file(request.run / "run.json", RunInfo).system.links
    subject = StormSubject(system=system.name, settings=dict(system.settings), links=links)
    with closing(storm_processes(system, request.store)) as runner:
        search = SystemSearch(
            subject,
            system,
            runner,
            request.store,
            seed=schedule.workload.seed,
            jobs=1,
            stop=stop,
            tell=progress.tell,
        )
        # Whether it fails alike is judged by the run that is there; it stays where it is.
        outcome = msgspec.structs.replace(outcome_of(request.run, result, 0.0), folder="")
        find = search.adopt(schedule, outcome)
        progress.phase("shrinking on real processes", request.budget_s)
        finish(search, find, request.budget_s)
    output("\n".join(report.shrunk(find)))
    return find.finding.counts.failed > 1
