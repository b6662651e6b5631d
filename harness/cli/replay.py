"""`floodmark replay`: a schedule file once more, in the simulated world or in real processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from checker.formats.verdict import RunResult, Verdict
from checker.output.timeline_file import write_story
from harness.runs.interrupts import Interrupts
from harness.runs.judge import judge, summarise, tidy
from harness.runs.options import default_name, load_schedule
from harness.runs.page_builder import bring_finding
from harness.runs.progress import Progress
from harness.runs.run import Run, RunSettings
from harness.search.findings import REAL
from harness.sim.run import SimResult, simulate
from harness.sim.trace_text import steps
from harness.systems.floodmark.brokers import check_upgrades
from nemesis.formats import schedule as schedules
from nemesis.formats.schedule import Expectation, Schedule
from node.core import protocol as protocols
from node.formats.errors import UsageError

EXIT_MET: Final = 0
EXIT_NOT_MET: Final = 1
World = Literal["simulated", "real"]


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked: which file, in which world, how often, and what to show of it.

    `expect` stands in for the expectation of the file: "valid", "invalid", "invalid:PROPERTY"; at
    `least` so many runs must be as expected (None: see `replay_command`).
    """

    file: Path
    world: str = "simulated"
    times: int = 1
    least: int | None = None
    expect: str = ""
    protocol: str | None = None
    seed: int | None = None
    trace: bool = False
    json: bool = False
    quiet: bool = False
    keep: Path | None = None
    store: Path = Path("store")


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One of the replays: did it fail, and how; `folder` is where a kept run is."""

    seed: int
    verdict: str
    sentence: str
    failed: bool
    properties: tuple[str, ...] = ()
    digest: str = ""
    folder: str = ""


def replay_command(wish: Replay) -> int:
    """Carry out `floodmark replay`; 0 when the runs are what the schedule expects, else 1.

    A schedule that expects `invalid` is met when at least one run fails as it says; one that
    expects `valid` when none fails; one that expects nothing always; all of them when at least
    `least` runs are as expected. Raises UsageError.
    """
    schedule = scheduled(wish)
    outcomes = []
    for number, outcome in enumerate(outcomes_of(wish)):
        outcomes.append(outcome)
        if not wish.json:
            print(_line(number, wish.times, outcome))
    met = is_met(schedule.expectation, outcomes, wish.least)
    failed = sum(outcome.failed for outcome in outcomes)
    if wish.json:
        told = {
            "schedule": schedule.digest(),
            "world": wish.world,
            "failed": failed,
            "of": wish.times,
            "met": met,
            "runs": outcomes,
        }
        print(msgspec.json.encode(told).decode())
    else:
        print(f"failed {failed} of {wish.times}; {_expected(schedule.expectation, met)}")
    return EXIT_MET if met else EXIT_NOT_MET


def outcomes_of(wish: Replay) -> Iterator[Outcome]:
    """The runs that are asked for, one after the other as they end. Raises UsageError."""
    if wish.world not in ("simulated", "real"):
        raise UsageError(f"--world is '{wish.world}', but can only be simulated or real")
    if wish.times < 1:
        raise UsageError(f"--times is {wish.times}, but must be at least 1")
    if wish.least is not None and not 1 <= wish.least <= wish.times:
        raise UsageError(f"--least is {wish.least}, but must be 1..{wish.times}")
    schedule = scheduled(wish)
    first = schedule.workload.seed if wish.seed is None else wish.seed
    play = _simulated if wish.world == "simulated" else _real
    for number in range(wish.times):
        yield play(schedule, wish, first, number)


def scheduled(wish: Replay) -> Schedule:
    """The schedule of the file, under another protocol if one is asked for: then its expectation
    is not known. Raises UsageError."""
    schedule = load_schedule(_file(wish))
    if wish.protocol is not None and wish.protocol != schedule.cluster.protocol:
        name = protocols.protocol(wish.protocol).name
        cluster = msgspec.structs.replace(schedule.cluster, protocol=name)
        schedule = msgspec.structs.replace(schedule, cluster=cluster, expectation=Expectation())
    if wish.expect:
        expectation = _expectation(wish.expect)
        schedule = msgspec.structs.replace(schedule, expectation=expectation)
    schedules.check(schedule, source=str(wish.file))
    check_upgrades(schedule)
    return schedule


def _file(wish: Replay) -> Path:
    """The file that is meant: the folder of a finding has one for each world."""
    real = wish.file / REAL
    return real if wish.world == "real" and real.is_file() else wish.file


def _expectation(text: str) -> Expectation:
    verdict, _, which = text.partition(":")
    if verdict == "invalid":
        return Expectation(verdict="invalid", property=which or None)
    if verdict != "valid" or which:
        raise UsageError(f"--expect is '{text}', but can only be valid, invalid, invalid:PROPERTY")
    return Expectation(verdict="valid")


def _simulated(schedule: Schedule, wish: Replay, first: int, number: int) -> Outcome:
    """One run in the simulator, to its end: the verdict must be comparable with a real run's."""
    seed = first + number
    keep = None if wish.keep is None else wish.keep / f"simulated-{seed}"
    result = simulate(schedule, seed=seed, stop_at="never", keep=keep)
    if keep is not None:
        write_story(keep, result.checked)
        bring_finding(wish.file, keep, print)
    if wish.trace:
        print("\n".join(steps(result)))
        print("\n".join(f"waits: {line}" for line in result.waits), end="\n" * bool(result.waits))
    return Outcome(
        seed=seed,
        verdict=result.verdict.value,
        sentence=_sentence(result),
        failed=has_failed(schedule.expectation, result.verdict, result.broken),
        properties=result.broken,
        digest=result.digest,
        folder="" if keep is None else str(keep),
    )


def _sentence(result: SimResult) -> str:
    alone = f" (only the {result.saw_more} saw it)" if result.saw_more else ""
    # The checker's words name operations and replicas; the watcher's only where it was alone.
    said = result.sentence if result.saw_more == "watcher" else result.checked.sentence
    return said + alone


def _real(schedule: Schedule, wish: Replay, first: int, number: int) -> Outcome:
    """One run of real processes, judged in this process."""
    from harness.systems.floodmark.cluster import RealCluster

    seed = first + number
    settings = RunSettings(
        name=default_name(schedule),
        seed=seed,
        store=wish.keep or wish.store,
        command=("floodmark", "replay", str(wish.file), "--world", "real"),
    )
    with Interrupts() as interrupts, Progress(quiet=wish.quiet) as progress:
        run = Run(schedule, settings, RealCluster, progress=progress, interrupts=interrupts)
        run.execute()
        interrupts.at_once = True
        result = judge([run.folder.path], None, progress.note)[0]
        bring_finding(wish.file, run.folder.path, progress.note)
        tidy(run.folder.path, result)
    if wish.trace:
        print(summarise(run.folder.path, result))
    broken = broken_in(result)
    return Outcome(
        seed=seed,
        verdict=result.verdict.value,
        sentence=result.sentence,
        properties=broken,
        failed=has_failed(schedule.expectation, result.verdict, broken),
        folder=str(run.folder.path),
    )


def broken_in(result: RunResult) -> tuple[str, ...]:
    """The properties that a run broke."""
    return tuple(p.property for p in result.properties if p.verdict is Verdict.INVALID)


def has_failed(expected: Expectation, verdict: Verdict, broken: tuple[str, ...]) -> bool:
    """Whether a run fails: it is invalid, and in the property the schedule is about, if it is."""
    if verdict is not Verdict.INVALID:
        return False
    return expected.property is None or expected.property in broken


def is_met(expected: Expectation, outcomes: Sequence[Outcome], least: int | None = None) -> bool:
    """Whether runs are what a schedule expects; see `replay_command`."""
    match expected.verdict:
        case "invalid":
            return sum(outcome.failed for outcome in outcomes) >= (least or 1)
        case "valid":
            good = sum(outcome.verdict == "valid" for outcome in outcomes)
            return good >= (least or len(outcomes))
    return True


def _expected(expected: Expectation, met: bool) -> str:
    if expected.verdict == "any":
        return "the schedule expects nothing in particular"
    about = f" ({expected.property})" if expected.property else ""
    return f"expected {expected.verdict}{about}: {'met' if met else 'not met'}"


def _line(number: int, times: int, outcome: Outcome) -> str:
    count = f"{number + 1}/{times} " if times > 1 else ""
    at = f"  {outcome.folder}" if outcome.folder else ""
    return f"{count}seed {outcome.seed}: {outcome.sentence}{at}"
