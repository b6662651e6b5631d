"""The shrinking of a failed run or of a finding: `floodmark shrink FOLDER`.

A run of our own brokers is tried in the simulated world first, where a run takes milliseconds and
always has the same result. If it does not fail there, or the system has no simulated world,
schedules are run again on real processes, and fail if most of their runs fail in the same way."""

from __future__ import annotations

import dataclasses
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from checker.formats.verdict import RunResult, Verdict
from harness.formats.finding import RECORD, Finding
from harness.runs.interrupts import Interrupts
from harness.runs.judge import Tell
from harness.runs.options import load_schedule
from harness.runs.progress import Progress
from harness.search import findings, table
from harness.search.jobs import do_one
from harness.search.requests import ShrinkRequest
from harness.search.run import simulated_pool, storm_pool
from harness.search.search_jobs import FinishJob
from harness.search.worlds.outcome import run_simulated
from harness.search.worlds.real import StormSubject, outcome_in
from harness.search.worlds.simulated import SimulatedSubject
from harness.search.worlds.subject import GIVEN, Drawn, RunFolders, Stop, deadline
from harness.systems.setup import Setup, setup_of
from nemesis.formats.schedule import Schedule
from node.formats.errors import FloodmarkError, UsageError
from node.formats.host_errors import reason
from node.formats.json_input import Unreadable, read_file

SEEDS_TRIED: Final = 20


def shrink_run(
    request: ShrinkRequest, interrupts: Interrupts, progress: Progress, output: Tell
) -> bool:
    """Look for the smallest schedule that fails as a run does. Return whether any fails at all.
    Raises UsageError if the folder is neither a failed run nor a finding, StorageError."""
    is_late = deadline(request.budget_s)

    def stop() -> bool:
        return is_late() or interrupts.asked

    if (request.run / RECORD).is_file():
        job = _of_finding(request)
    else:
        job = _of_run(request, stop, progress, output)
    subject = job.subject
    if isinstance(subject, StormSubject):
        pool = storm_pool(1, request.store, subject.links)
    else:
        pool = simulated_pool(1, request.store)
    folder = findings.keep_unless_smaller(job.finding, request.store)
    progress.phase("shrinking", request.budget_s)

    def stop_and_tell() -> bool:
        # The job keeps the finding each time it becomes smaller.
        progress.tell(table.shrinking(findings.latest(request.store, job.finding)))
        return stop()

    with closing(pool):
        try:
            do_one(job, pool, stop_and_tell)
        except FloodmarkError:
            if not stop():
                raise
        finally:
            if isinstance(subject, StormSubject):
                findings.sweep(request.store, job.place.run_name)
    found = findings.latest(request.store, job.finding)
    output("\n".join(table.finished(found, folder)))
    return found.counts.failed > (found.world == "real")


def _of_finding(request: ShrinkRequest) -> FinishJob:
    """Return the job that goes on to shrink a finding. Raises UsageError, StorageError."""
    setup, finding = _setup_of(request), findings.load(request.run)
    is_here = findings.folder_of(request.store, finding).resolve() == request.run.resolve()
    # The runs of another store stay where they are.
    finding = replace(finding, shrunk=False, run=finding.run if is_here else "")
    subject: SimulatedSubject | StormSubject
    if finding.world == "simulated":
        cluster = finding.drawn.cluster
        subject = SimulatedSubject(protocol=cluster.protocol, bugs=cluster.bugs)
    else:
        subject = StormSubject(**msgspec.structs.asdict(setup))
    return _job(request, subject, finding)


def _of_run(request: ShrinkRequest, stop: Stop, progress: Progress, output: Tell) -> FinishJob:
    """Return the job that shrinks the schedule of a failed run. Raises UsageError."""
    result, setup = _failed_run(request.run), _setup_of(request)
    schedule, system = load_schedule(request.run), setup.find()
    if system.simulated:
        progress.phase("trying the schedule in the simulated world", request.budget_s)
        job = _simulated(request, schedule, result, stop)
        if job is not None:
            return job
        output(f"it does not fail with any of {SEEDS_TRIED} seeds of the simulated world")
    # Whether it fails alike is judged by the run that is there; it stays where it is.
    outcome = dataclasses.replace(outcome_in(request.run, result, 0.0), folder="")
    subject = StormSubject(**msgspec.structs.asdict(setup))
    return _job(request, subject, subject.finding(Drawn(GIVEN, schedule, outcome)))


def _setup_of(request: ShrinkRequest) -> Setup:
    return setup_of(request.run, request.system, request.settings)


def _job(
    request: ShrinkRequest, subject: SimulatedSubject | StormSubject, finding: Finding
) -> FinishJob:
    name = findings.subject_in_names(finding.subject)
    return FinishJob(
        key="shrink",
        subject=subject,
        finding=finding,
        seconds=request.budget_s,
        place=RunFolders(str(request.store), f"shrink-{name}-{finding.drawn.digest()}"),
    )


def _failed_run(folder: Path) -> RunResult:
    """Return the verdict of a run folder. Raises UsageError unless it is invalid."""
    try:
        result = read_file(folder / "results.json", RunResult)
    except (OSError, Unreadable) as error:
        raise UsageError(
            f"{folder}: not a judged run: {reason(error)} (`floodmark check` judges a run folder)"
        ) from None
    if result.verdict is not Verdict.INVALID:
        raise UsageError(f"{folder} is {result.verdict}: only a failed run can be shrunk")
    return result


def _simulated(
    request: ShrinkRequest, schedule: Schedule, result: RunResult, stop: Stop
) -> FinishJob | None:
    """Return the job for the first seed that breaks a property of the run, None if none does."""
    broken = tuple(result.broken)
    subject = SimulatedSubject(protocol=schedule.cluster.protocol, bugs=schedule.cluster.bugs)
    for seed in range(schedule.workload.seed, schedule.workload.seed + SEEDS_TRIED):
        if stop():
            return None
        workload = replace(schedule.workload, seed=seed)
        tried = replace(schedule, workload=workload)
        outcome = run_simulated(tried, about=broken[0])
        if outcome.failed and outcome.property in broken:
            found = subject.finding(Drawn(GIVEN, tried, outcome))
            return _job(request, subject, replace(found, seed=seed))
    return None
