"""Runs storm after storm in one process, and says what grows meanwhile.

The harness is one process for all storms, so a leak in it shows from storm to storm, and so do
files left on the disk. A leak of brokers shows inside of a storm: they delete the heads of their
logs many times, and their memory and disk use late in a storm is compared with that in its
middle."""

from __future__ import annotations

import argparse
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import psutil
from msgspec.structs import replace

from checker.formats.verdict import Verdict
from harness.cli.common import print_table
from harness.formats.run_info import Phases
from harness.runs.clock import now_us
from harness.runs.interrupts import Interrupts
from harness.runs.once import run_and_judge
from harness.runs.options import requested
from harness.runs.progress import Progress
from harness.runs.requests import RunRequest
from harness.runs.run import Run, RunOrder
from tests.lab.usage import PeriodicThread, broker_memory, bytes_of, taken_by

EVERY_S: Final = 1.0
MOST_KEPT: Final = 3
"""How many runs that are not valid stay in the store."""
WARM_UP_SHARE: Final = 0.15
LEAST_STORMS: Final = 6
MOST_RATIO: Final = 1.15
"""What has grown no more is flat, and so is what has grown by less than its slack."""
SLACK_BYTES: Final = 16 << 20
SLACK_COUNT: Final = 8
SLACK_IN_A_STORM: Final = 2 << 20
STORM: Final = RunRequest(
    brokers=5, partitions=50, clients=8, rate=5.0, time_limit=45.0, retention_records=10
)
PAYLOAD_BYTES: Final = 1000


class StormSample(NamedTuple):
    """One storm: its verdict, and what was there after it, in bytes or as a count. `inside` has the
    medians of memory and disk of all brokers in the second and in the last third of the storm."""

    verdict: str
    measures: dict[str, float]
    inside: dict[str, tuple[float, float]]


class Growth(NamedTuple):
    """The growth of a measure from the first to the last third of the storms after the warm-up."""

    what: str
    first: float
    last: float
    is_flat: bool


def run_soak(
    request: RunRequest, budget_s: float, progress: Progress, interrupts: Interrupts
) -> Iterator[StormSample]:
    """Run storms until the time is over or the user interrupts; yield a sample of each."""
    ends_s, number = time.monotonic() + budget_s, 0
    assert request.seed is not None
    while not interrupts.asked and time.monotonic() < ends_s:
        seeded = replace(request, seed=request.seed + number)
        sample = one_storm(seeded, progress, interrupts)
        progress.note(f"storm {number}: {sample.verdict}, {sample.measures}")
        number += 1
        yield sample


def one_storm(request: RunRequest, progress: Progress, interrupts: Interrupts) -> StormSample:
    """Run one storm with all kinds of faults and judge it; a valid run is removed."""
    schedule, on = requested(request)
    payloads = replace(schedule.workload, payload_bytes=PAYLOAD_BYTES)
    order = RunOrder(replace(schedule, workload=payloads), on, "soak", request.store)
    run = Run(order, progress=progress, interrupts=interrupts)
    folder = run.folder.path
    with BrokerMonitor(folder / "data") as monitor:
        result = run_and_judge(run, progress, interrupts)
    interrupts.at_once = False
    run_bytes = bytes_of(folder)
    others = [each for each in folder.parent.iterdir() if each.is_dir() and not each.is_symlink()]
    if result.verdict is Verdict.VALID or len(others) > MOST_KEPT:
        shutil.rmtree(folder, ignore_errors=True)
    me = psutil.Process()
    after = {
        "harness: memory after a storm": me.memory_info().rss,
        "harness: descriptors after a storm": me.num_fds(),
        "harness: threads after a storm": me.num_threads(),
        "processes left after a storm": len(me.children(recursive=True)),
        "store after a storm": bytes_of(request.store),
        "run folder of a storm": run_bytes,
    }
    return StormSample(result.verdict, after, monitor.inside(run.info.phases))


class BrokerUse(NamedTuple):
    """The bytes of memory and of disk that all brokers together used at one time."""

    t_us: int
    memory: int
    disk: int


class BrokerMonitor(PeriodicThread):
    """A thread that looks in the context at memory and disk of brokers; their folders are in
    `data`."""

    def __init__(self, data: Path) -> None:
        super().__init__(self._note, EVERY_S, "soak")
        self.moments: list[BrokerUse] = []
        self._data = data

    def inside(self, phases: Phases) -> dict[str, tuple[float, float]]:
        """Return the medians in the middle and the last third of a storm, {} without a sample."""
        begin, end = phases.storm_us, phases.heal_us
        third = (end - begin) / 3
        middle = [m for m in self.moments if begin + third <= m.t_us < end - third]
        late = [m for m in self.moments if end - third <= m.t_us < end]
        if not middle or not late:
            return {}
        return {
            "memory": (median(m.memory for m in middle), median(m.memory for m in late)),
            "disk": (median(m.disk for m in middle), median(m.disk for m in late)),
        }

    def _note(self) -> None:
        disk = sum(taken_by(folder) for folder in self._data.glob("n*"))
        self.moments.append(BrokerUse(now_us(), broker_memory(), disk))


def growth(samples: Sequence[StormSample]) -> Iterator[Growth]:
    """Yield the growth of each measure, if LEAST_STORMS storms follow the warm-up."""
    warm = samples[round(len(samples) * WARM_UP_SHARE) :]
    if len(warm) < LEAST_STORMS:
        return
    for what in sorted({name for sample in warm for name in sample.inside}):
        pairs = [sample.inside.get(what, (0.0, 0.0)) for sample in warm]
        middle, late = (median(values) for values in zip(*pairs, strict=True))
        yield _growth(f"all brokers: {what} in a storm", middle, late, SLACK_IN_A_STORM)
    third = len(warm) // 3
    for what in warm[0].measures:
        values = [sample.measures[what] for sample in warm]
        slack = SLACK_BYTES if _is_bytes(what) else 1 if "processes" in what else SLACK_COUNT
        yield _growth(what, median(values[:third]), median(values[-third:]), slack)


def _growth(what: str, first: float, last: float, slack: float) -> Growth:
    return Growth(what, first, last, last <= first * MOST_RATIO or last - first <= slack)


def print_growth(grown: Sequence[Growth]) -> None:
    """Print the figures as a table."""
    if not grown:
        print(f"too few storms to say what grows: {LEAST_STORMS} after the warm-up are due")
        return
    rows = (
        (
            each.what,
            *(_amount(each.what, value) for value in (each.first, each.last)),
            f"{each.last / each.first if each.first else 1.0:.2f}",
            "" if each.is_flat else "grows",
        )
        for each in grown
    )
    title = "median of a third of the storms (in a storm: second, last third)"
    print_table((title, "first", "last", "ratio", ""), rows, json=False)


def _is_bytes(what: str) -> bool:
    """Return whether a measure is bytes, and no count."""
    return not any(name in what for name in ("descriptors", "threads", "processes"))


def _amount(what: str, value: float) -> str:
    return f"{value / (1 << 20):.1f} MB" if _is_bytes(what) else f"{value:.0f}"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the experiment."""
    parser.add_argument("--budget", type=float, default=3600.0, help="seconds of all storms")
    parser.add_argument("--seed", type=int, default=1, help="of the first storm")
    parser.add_argument("--store", type=Path, default=Path("store"))


def run(given: argparse.Namespace) -> int:
    """Soak. Return 1 if a storm was invalid, 2 if something grows."""
    request = replace(STORM, seed=given.seed, store=given.store)
    with Interrupts() as interrupts, Progress() as progress:
        samples = list(run_soak(request, given.budget, progress, interrupts))
    grown = list(growth(samples))
    verdicts = Counter(sample.verdict for sample in samples)
    print(f"{len(samples)} storms: {dict(verdicts)}")
    print_growth(grown)
    return 1 if Verdict.INVALID in verdicts else 0 if all(each.is_flat for each in grown) else 2
