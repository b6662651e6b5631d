"""The baseline run of a failing run: the same schedule once more where it should hold.

Two simulated runs of the schedule: as it is, and under the nearest protocol of the registry that is
expected to keep every promise, without bugs. A pair says more than its second half: where the
first does not fail, the schedule needs moments that only real processes have, and the baseline
proves nothing. Of a run that was simulated itself the first one is compared byte for byte.
"""

from __future__ import annotations

import tempfile
from dataclasses import fields
from pathlib import Path
from typing import Final

import msgspec

from harness.formats.baseline import FILE, Baseline, Side
from harness.formats.run_info import RunInfo
from harness.runs.options import load_schedule
from harness.sim.run import SimResult, simulate
from nemesis.faults import ElectUnclean
from nemesis.formats.schedule import Schedule
from node.core import protocol as protocols
from node.core.protocol import Protocol
from node.formats.errors import FloodmarkError
from node.formats.files import write_whole

_PROMISES: Final = ("name", "citation", "expected", "clean_only")


def nearest_correct(name: str, *, clean: bool = True) -> Protocol:
    """The protocol expected to hold every property that differs from `name` in fewest choices;
    of equally near ones the first in the registry. Unless all is `clean` (flush=sync and no unclean
    election) only one whose word covers that. Raises UsageError for an unknown name."""
    given = protocols.protocol(name)
    correct = [
        p
        for p in protocols.REGISTRY.values()
        if all(e == "holds" for _, e in p.expected) and (clean or not p.clean_only)
    ]
    choices = [f.name for f in fields(Protocol) if f.name not in _PROMISES]

    def distance(other: Protocol) -> int:
        return sum(getattr(given, choice) != getattr(other, choice) for choice in choices)

    return min(correct, key=distance)


def make_baseline(folder: Path) -> Baseline:
    """Run both and keep `baseline.json` in the run folder. Raises FloodmarkError if the schedule
    cannot be read or the file cannot be written."""
    schedule = load_schedule(folder / "schedule.json")
    try:
        about = msgspec.json.decode((folder / "run.json").read_bytes(), type=RunInfo)
    except (OSError, msgspec.DecodeError):
        about = RunInfo()
    seed = schedule.workload.seed if about.seed is None else about.seed
    made = _made(schedule, seed, folder if about.world == "simulated" else None)
    text = msgspec.json.format(msgspec.json.encode(made), indent=1) + b"\n"
    write_whole(folder / FILE, text)
    return made


def _made(schedule: Schedule, seed: int, like: Path | None) -> Baseline:
    cluster = schedule.cluster
    asked = any(isinstance(fault, ElectUnclean) for fault in schedule.faults)
    clean = cluster.flush == "sync" and not (cluster.unclean_election or asked)
    nearest = nearest_correct(cluster.protocol, clean=clean)
    replaced = msgspec.structs.replace(cluster, protocol=nearest.name, bugs=())
    other = msgspec.structs.replace(schedule, cluster=replaced)
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
        as_it_is=_side(first),
        baseline=_side(second),
        same_again=same,
    )


def _side(result: SimResult) -> Side:
    cluster = result.schedule.cluster
    return Side(
        protocol=cluster.protocol,
        bugs=cluster.bugs,
        verdict=result.verdict.value,
        sentence=result.sentence,
        broken=result.broken,
    )


def _same(one: Path, other: Path) -> bool:
    """Whether two simulated runs left the same operations, faults and traces, byte for byte."""
    names = ["history.jsonl", "faults.jsonl"]
    names += [f"trace/{file.name}" for file in sorted((one / "trace").iterdir())]
    try:
        return all((one / name).read_bytes() == (other / name).read_bytes() for name in names)
    except OSError:
        return False
