"""The pages of runs and findings, and the baseline run of a failure, which is made before its page.

A baseline run is that of the same schedule on a configuration that should hold. The schedule is
simulated as it is, and under the configuration that the system names (for our own brokers: the
nearest protocol that is expected to keep every promise, without bugs). If the first run does not
fail, the failure depends on real timing, and the pair proves nothing. If the failing run was
simulated itself, the first run must reproduce it byte for byte.

No verdict depends on them: a part that cannot be made is left out, and a sentence says so."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Final

import msgspec

from checker.formats.verdict import RunResult, Verdict
from checker.story.story import write_story
from harness.formats.baseline import FILE, Baseline, Side
from harness.formats.finding import SCHEDULE, SIMULATED
from harness.formats.run_info import RunInfo
from harness.runs.judge import Tell, bring_finding
from harness.runs.options import load_schedule
from harness.runs.program import command_line, program
from harness.sim.run import SimResult, simulate
from harness.systems.setup import setup_of
from nemesis.formats.schedule import Schedule
from node.formats.errors import FloodmarkError
from node.formats.files import write_whole
from node.formats.json_input import MOST_FILE_BYTES, Unreadable, read_bytes, read_file
from node.formats.owned_folder import OwnedFolder
from node.formats.removal import try_to_remove
from node.formats.run_folder_entries import foreign_entry
from reports import build


def make_baseline(folder: Path, tell: Callable[[str], None]) -> Baseline | None:
    """Run the schedule of a run folder and its baseline, and write `baseline.json` there. Return
    None if the system has no baseline. `tell` gets a sentence on the progress. Raises
    FloodmarkError if the schedule cannot be read or the file cannot be written."""
    schedule = load_schedule(folder / "schedule.json")
    try:
        about = read_file(folder / "run.json", RunInfo)
    except (OSError, Unreadable):
        about = RunInfo()
    # A third-party system has no simulated world, and our brokers prove nothing about it.
    if not about.system.simulated:
        return None
    other = setup_of(folder).find().baseline(schedule)
    if other is None:
        return None
    tell(f"Running the schedule of {folder} twice in the simulated world, for its baseline run ...")
    seed = schedule.workload.seed if about.seed is None else about.seed
    made = _simulated(schedule, other, seed, folder if about.world == "simulated" else None)
    text = msgspec.json.format(msgspec.json.encode(made), indent=1) + b"\n"
    write_whole(folder / FILE, text)
    return made


def _simulated(schedule: Schedule, other: Schedule, seed: int, like: Path | None) -> Baseline:
    """Run schedule and baseline; compare the first with the simulated run in `like`."""
    try:
        with OwnedFolder() as place:
            again = place / "run"
            first = simulate(schedule, seed=seed, stop_at="never", keep=again)
            same = None if like is None else _same(again, like)
        second = simulate(other, seed=seed, stop_at="never")
    except FloodmarkError as error:
        return Baseline(schedule=schedule.digest(), seed=seed, problem=str(error))
    return Baseline(
        schedule=schedule.digest(),
        seed=seed,
        as_it_is=_result(first),
        baseline=_result(second),
        same_again=same,
    )


def _result(result: SimResult) -> Side:
    cluster = result.schedule.cluster
    return Side(
        protocol=cluster.protocol,
        bugs=cluster.bugs,
        verdict=result.verdict.value,
        sentence=result.sentence,
        broken=result.broken,
    )


def _same(one: Path, other: Path) -> bool:
    """Return whether two simulated runs left equal operations, faults and traces."""
    names = ["history.jsonl", "faults.jsonl"]
    names += [f"trace/{file.name}" for file in sorted((one / "trace").iterdir())]
    try:
        return all(_read(one / name) == _read(other / name) for name in names)
    except (OSError, Unreadable):
        return False


def _read(file: Path) -> bytes:
    return read_bytes(file, MOST_FILE_BYTES)


BASELINE_LIMIT_S: Final = 15.0
"""The longest time that `floodmark run` spends on the baseline run of a failure."""


def page_of(run: Path, tell: Tell) -> Path:
    """Build the page of a run folder, with plots, and a baseline run if the run failed. Return its
    path. `tell` gets sentences on parts that are left out. Raises ReportError."""
    if is_invalid(run):
        _baseline(run, tell)
    return build(run, plots=True, program=program())


def page_after(run: Path, tell: Tell, *, baseline_too: bool = True) -> Path | None:
    """Build the page of a run just after its verdict. Return its path, None if it cannot be built.
    For a failed run it has plots as pictures, and a baseline run if that takes at most
    `BASELINE_LIMIT_S`. No error is raised, and Ctrl-C only skips the baseline run, because the
    verdict is printed already. Call it in the main thread."""
    failed = is_invalid(run)
    if failed and baseline_too:
        try:
            with at_most(BASELINE_LIMIT_S):
                _baseline(run, tell)
        except (TooLong, KeyboardInterrupt):
            tell(f"The baseline run is left out; to make it: {command_line('report', run)}")
    try:
        return build(run, plots=failed, program=program())
    except (Exception, KeyboardInterrupt) as error:
        tell(f"The page could not be built: {error or type(error).__name__}")
        return None


def _baseline(run: Path, tell: Tell) -> None:
    """Make the baseline run of a failure, if it has a schedule and no baseline yet."""
    if (run / FILE).exists() or not (run / SCHEDULE).exists():
        return
    try:
        make_baseline(run, tell)
    except Exception as error:
        tell(f"The baseline run of {run} could not be made: {error}")


class TooLong(BaseException):
    """The end of a baseline run's time, a BaseException, which no handler of errors catches."""


@contextlib.contextmanager
def at_most(limit_s: float) -> Iterator[None]:
    """Raise TooLong in the block when its time is up."""

    def up(number: int, frame: FrameType | None) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, up)
    # Again each second: an exception in a callback of the collector is only printed.
    signal.setitimer(signal.ITIMER_REAL, limit_s, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def page_of_finding(finding: Path, tell: Tell) -> Path:
    """Simulate the schedule of a finding, keep that run in its folder, and build its page. Return
    the page's path. Raises FloodmarkError."""
    run = finding / SIMULATED
    schedule = load_schedule(finding / SCHEDULE)
    try_to_remove(run)
    result = simulate(schedule, seed=schedule.workload.seed, stop_at="never", keep=run)
    write_story(run, result.judged)
    bring_finding(finding, run, tell)
    return page_of(run, tell)


def is_invalid(run: Path) -> bool:
    """Return whether a run was judged invalid. A folder without a readable verdict was not."""
    if foreign_entry(run):
        return False
    try:
        result = read_file(run / "results.json", RunResult)
    except (OSError, Unreadable):
        return False
    return result.verdict is Verdict.INVALID
