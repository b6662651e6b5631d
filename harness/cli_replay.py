"""`floodmark replay`: a schedule several times, and how often what it expects came true."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import msgspec

from checker.verdict import RunResult, Verdict
from harness.interrupts import Interrupts
from harness.judge import judge, tidy
from harness.options import Wishes, default_name, to_schedule
from harness.progress import Progress
from harness.real.cluster import RealCluster
from harness.run import Run, RunSettings
from nemesis.schedule import Expectation, Schedule
from node.errors import UsageError

EXIT_MET: Final = 0
EXIT_NOT_MET: Final = 1


class Tries(msgspec.Struct, frozen=True, kw_only=True):
    """How often it is run; `least` tries must meet the expectation (None: all of them).

    `expect` stands in for the expectation of the file: "valid", "invalid", "invalid:PROPERTY".
    """

    times: int = 1
    least: int | None = None
    expect: str = ""
    store: Path = Path("store")
    quiet: bool = False


def replay_command(wishes: Wishes, tries: Tries) -> int:
    """Carry out `floodmark replay`; returns the exit code."""
    if tries.times < 1 or not 1 <= (tries.least or 1) <= tries.times:
        raise UsageError("--times must be positive, and --least 1..times")
    schedule = to_schedule(wishes)
    if tries.expect:
        schedule = msgspec.structs.replace(schedule, expectation=_expectation(tries.expect))
    found = 0
    kept = 0
    with Interrupts() as interrupts, Progress(quiet=tries.quiet) as progress:
        for number in range(1, tries.times + 1):
            interrupts.at_once = False
            result = _once(schedule, tries.store, progress, interrupts)
            found += result.verdict is Verdict.INVALID
            kept += meets(result, schedule.expectation)
            print(f"{number}: {result.sentence}", flush=True)
            if interrupts.asked:
                return EXIT_NOT_MET
    print(f"failed {found} of {tries.times}; {_told(schedule.expectation)} in {kept}")
    return EXIT_MET if kept >= (tries.least or tries.times) else EXIT_NOT_MET


def meets(result: RunResult, expectation: Expectation) -> bool:
    """Whether a run is what its schedule expects."""
    if expectation.verdict == "any":
        return True
    if result.verdict != expectation.verdict:
        return False
    wanted = expectation.property
    broken = [each.property for each in result.properties if each.verdict is Verdict.INVALID]
    return wanted is None or expectation.verdict == "valid" or wanted in broken


def _once(
    schedule: Schedule, store: Path, progress: Progress, interrupts: Interrupts
) -> RunResult:
    settings = RunSettings(
        name=default_name(schedule), seed=schedule.workload.seed, store=store,
        command=("floodmark", *sys.argv[1:]),
    )  # fmt: skip
    run = Run(schedule, settings, RealCluster, progress=progress, interrupts=interrupts)
    run.execute()
    interrupts.at_once = True
    result = judge([run.folder.path], None, progress.note)[0]
    tidy(run.folder.path, result)
    return result


def _expectation(text: str) -> Expectation:
    verdict, _, which = text.partition(":")
    if verdict not in ("valid", "invalid") or (which and verdict == "valid"):
        raise UsageError(f"--expect is '{text}', but can only be valid, invalid, invalid:PROPERTY")
    return Expectation(verdict="valid" if verdict == "valid" else "invalid", property=which or None)


def _told(expectation: Expectation) -> str:
    """The expectation in words."""
    if expectation.verdict == "any":
        return "anything is expected, seen"
    which = f" in {expectation.property}" if expectation.property else ""
    return f"{expectation.verdict}{which}, as expected,"
