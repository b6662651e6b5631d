"""The baseline run of a failure: the same schedule on a configuration that should hold.

The schedule is simulated as it is, and under the configuration that the system names (for our own
brokers: the nearest protocol that is expected to keep every promise, without bugs). If the first
run does not fail, the failure depends on real timing, and the pair proves nothing. If the failing
run was simulated itself, the first run must reproduce it byte for byte."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from harness.formats.baseline import FILE, Baseline, Side
from harness.formats.run_info import RunInfo
from harness.runs.options import load_schedule
from harness.sim.run import SimResult, simulate
from harness.systems.setup import setup_of
from nemesis.formats.schedule import Schedule
from node.formats.errors import FloodmarkError
from node.formats.files import write_whole
from node.formats.json_input import MOST_FILE_BYTES, Unreadable, read_bytes, read_file


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
        with tempfile.TemporaryDirectory(prefix="floodmark-") as place:
            again = Path(place) / "run"
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
