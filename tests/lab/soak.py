"""Runs storm after storm in one process, and says what grows meanwhile.

The harness is one process for all storms, so a leak in it shows from storm to storm, and so do
files left on the disk. All other processes are new in each storm; their peaks are compared between
storms. A leak inside of one storm shows too: the brokers delete the heads of their logs many times
a storm, and their memory and disk use late in a storm is compared with that in its middle."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import msgspec
import psutil
from msgspec.structs import replace

from checker.formats.verdict import Verdict
from harness.formats.run_info import Phases
from harness.runs.clock import PeriodicThread
from harness.runs.interrupts import Interrupts
from harness.runs.once import run_and_judge
from harness.runs.options import requested
from harness.runs.progress import Progress
from harness.runs.requests import RunRequest
from harness.runs.run import Run, RunOrder
from node.formats.errors import FloodmarkError, UsageError
from node.formats.files import AppendOnlyFile
from node.formats.json_input import decode
from node.formats.trace import DELETED
from tests.lab.text_table import as_table
from tests.lab.usage import bytes_of, held, taken_by

EVERY_S: Final = 1.0
MOST_KEPT: Final = 3
"""How many runs that are not valid stay in the store."""
WARM_UP_SHARE: Final = 0.15
LEAST_STORMS: Final = 6
MOST_UNSTARTED: Final = 5
"""So many clusters in a row that do not start end a soak."""
MOST_RATIO: Final = 1.15
"""What has grown no more is flat, and so is what has grown by less than its slack."""
SLACK_BYTES: Final = 16 << 20
SLACK_COUNT: Final = 8
SLACK_IN_A_STORM: Final = 2 << 20
CLIENTS: Final = 8
RATE: Final = 5.0
RETENTION_RECORDS: Final = 10
PAYLOAD_BYTES: Final = 1000
DELETED_MARK: Final = DELETED.encode()


class SoakRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The length and size of a soak. Storms that are not valid stay in the store; `samples`, if
    given, is a file to which each storm appends a line of figures."""

    store: Path
    budget_s: float = 3600.0
    storm_s: float = 45.0
    brokers: int = 5
    partitions: int = 50
    seed: int = 1
    samples: Path | None = None


class _Deletion(msgspec.Struct, frozen=True):
    """The fields of a trace event that count deletions."""

    event: str
    start: int = 0
    from_start: int = 0


class StormSample(msgspec.Struct, frozen=True, kw_only=True):
    """One storm: its verdict and the time of its end.

    `measures` has the peaks by name: bytes, or a count (`descriptors`, `threads`, `processes`).
    `inside` has the medians of memory and disk of all brokers in the second and in the last third
    of the storm. `deletions` counts the deletions of log heads and `deleted_records` their records,
    over all replicas."""

    number: int
    verdict: str
    ended_s: float
    measures: dict[str, float]
    inside: dict[str, tuple[float, float]] = {}
    deletions: int = 0
    deleted_records: int = 0


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """The growth of a measure from the first to the last third of the storms after the warm-up."""

    what: str
    first: float
    last: float
    is_flat: bool


class Soaked(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a soak; `unstarted` counts the clusters that did not start."""

    settings: SoakRequest
    storms: int
    verdicts: dict[str, int]
    minutes: float
    growth: tuple[Growth, ...]
    unstarted: int = 0
    deletions: tuple[int, ...] = ()
    deleted_records: int = 0

    @property
    def is_flat(self) -> bool:
        """Return whether no measure grows."""
        return all(each.is_flat for each in self.growth)


def run_soak(settings: SoakRequest, progress: Progress, interrupts: Interrupts) -> Soaked:
    """Run storms until the time is over or the user interrupts; write each sample to
    `settings.samples`.

    A cluster that does not start, because the machine is too busy, is only counted. Raises its
    FloodmarkError after MOST_UNSTARTED of them in a row, and UsageError for too short a time."""
    if settings.budget_s < settings.storm_s:
        raise UsageError("--budget must be as long as one storm at least")
    began_s = time.monotonic()
    found: list[StormSample] = []
    unstarted, in_a_row = 0, 0
    with contextlib.ExitStack() as stack:
        keep = AppendOnlyFile(settings.samples) if settings.samples is not None else None
        stack.callback(keep.close if keep is not None else int)
        while not interrupts.asked and time.monotonic() - began_s < settings.budget_s:
            number = len(found) + unstarted
            try:
                sample = one_storm(settings, number, progress, interrupts, began_s)
            except UsageError:
                raise
            except FloodmarkError as error:
                unstarted, in_a_row = unstarted + 1, in_a_row + 1
                if in_a_row == MOST_UNSTARTED:
                    raise
                progress.note(f"storm {number}: its cluster did not start: {error}")
                continue
            in_a_row = 0
            found.append(sample)
            if keep is not None:
                keep.write(msgspec.json.encode(sample) + b"\n")
            progress.note(_line(sample))
    return replace(summed_up(settings, found), unstarted=unstarted)


def one_storm(
    settings: SoakRequest, number: int, progress: Progress, interrupts: Interrupts, began_s: float
) -> StormSample:
    """Run one storm with all kinds of faults and judge it; a valid run is removed."""
    request = RunRequest(
        seed=settings.seed + number,
        brokers=settings.brokers,
        partitions=settings.partitions,
        clients=CLIENTS,
        rate=RATE,
        time_limit=settings.storm_s,
        retention_records=RETENTION_RECORDS,
    )
    schedule, on = requested(request)
    payloads = replace(schedule.workload, payload_bytes=PAYLOAD_BYTES)
    order = RunOrder(replace(schedule, workload=payloads), on, "soak", settings.store)
    run = Run(order, progress=progress, interrupts=interrupts)
    folder = run.folder.path
    with PeakMonitor(folder / "data") as monitor:
        result = run_and_judge(run, progress, interrupts)
    interrupts.at_once = False
    deletions, deleted_records = deletions_in(folder / "trace")
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
        "store after a storm": bytes_of(settings.store),
        "run folder of a storm": run_bytes,
    }
    return StormSample(
        number=number,
        verdict=result.verdict,
        ended_s=round(time.monotonic() - began_s, 1),
        measures={**after, **monitor.peaks},
        inside=monitor.inside(run.info.phases),
        deletions=deletions,
        deleted_records=deleted_records,
    )


class BrokerUse(NamedTuple):
    """The bytes of memory and of disk that all brokers together used at one time."""

    t_us: int
    memory: int
    disk: int


class PeakMonitor(PeriodicThread):
    """A thread that watches this process and its descendants in the context. It records peaks by
    kind of process, and over time the memory and disk of brokers, whose folders are in `data`."""

    def __init__(self, data: Path) -> None:
        super().__init__(self._note, EVERY_S, "soak")
        self.peaks: dict[str, float] = {}
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
        brokers = 0
        for kind, rss, descriptors in held():
            for what, now in (("memory", rss), ("descriptors", descriptors)):
                name = f"{kind}: most {what}"
                self.peaks[name] = max(now, self.peaks.get(name, 0))
            brokers += rss if kind == "broker" else 0
        disk = sum(taken_by(folder) for folder in self._data.glob("n*"))
        self.moments.append(BrokerUse(time.monotonic_ns() // 1000, brokers, disk))


def deletions_in(traces: Path) -> tuple[int, int]:
    """Return how often replicas deleted the head of a log, and how many records in all, by the
    traces. A log that is discarded to start where its leader's begins counts once."""
    times, records = 0, 0
    for file in sorted(traces.glob("*.jsonl")):
        with file.open("rb") as lines:
            for line in lines:
                if DELETED_MARK in line and (event := decode(line, _Deletion)).event == DELETED:
                    times += 1
                    records += max(0, event.start - event.from_start)
    return times, records


def summed_up(settings: SoakRequest, samples: Sequence[StormSample]) -> Soaked:
    """Return the verdicts, and how each measure has grown."""
    return Soaked(
        settings=settings,
        storms=len(samples),
        verdicts=Counter(sample.verdict for sample in samples),
        minutes=round(samples[-1].ended_s / 60, 1) if samples else 0.0,
        growth=tuple(growth(samples)),
        deletions=tuple(sample.deletions for sample in samples),
        deleted_records=sum(sample.deleted_records for sample in samples),
    )


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
    for what in dict.fromkeys(name for sample in warm for name in sample.measures):
        values = [sample.measures.get(what, 0.0) for sample in warm]
        slack = SLACK_BYTES if _is_bytes(what) else 1 if "processes" in what else SLACK_COUNT
        yield _growth(what, median(values[:third]), median(values[-third:]), slack)


def _growth(what: str, first: float, last: float, slack: float) -> Growth:
    is_flat = last <= first * MOST_RATIO or last - first <= slack
    return Growth(what=what, first=first, last=last, is_flat=is_flat)


def table(soaked: Soaked) -> str:
    """Format the figures as a text table."""
    settings = soaked.settings
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in soaked.verdicts.items())
    lines = [
        f"{soaked.storms} storms of {settings.storm_s:g} s in {soaked.minutes:g} minutes, "
        f"{settings.brokers} brokers, {settings.partitions} partitions: {verdicts}"
    ]
    if soaked.unstarted:
        lines[0] += f"; {soaked.unstarted} more did not start"
    if any(soaked.deletions):
        lines.append(
            f"log heads deleted in a storm: {min(soaked.deletions):,} at least, "
            f"{median(soaked.deletions):,.0f} in the middle; {soaked.deleted_records:,} records "
            "in all ('in a storm': second third, last third)"
        )
    rows = [
        (
            each.what,
            *(_amount(each.what, value) for value in (each.first, each.last)),
            f"{each.last / each.first if each.first else 1.0:.2f}",
            "" if each.is_flat else "grows",
        )
        for each in soaked.growth
    ]
    lines += as_table(("median of a third of the storms", "first", "last", "ratio", ""), rows)
    if not rows:
        lines.append(f"too few storms to say what grows: {LEAST_STORMS} after the warm-up are due")
    return "\n".join(lines)


def _is_bytes(what: str) -> bool:
    """Return whether a measure is bytes, and no count."""
    return not any(name in what for name in ("descriptors", "threads", "processes"))


def _amount(what: str, value: float) -> str:
    return f"{value / (1 << 20):.1f} MB" if _is_bytes(what) else f"{value:.0f}"


def _line(sample: StormSample) -> str:
    about = sample.measures
    return (
        f"storm {sample.number}: {sample.verdict}, "
        f"{int(about['harness: memory after a storm']) >> 20} MB, "
        f"{about['harness: descriptors after a storm']} descriptors, run of "
        f"{int(about['run folder of a storm']) >> 20} MB, {sample.deletions} log heads deleted"
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the experiment."""
    parser.add_argument("--budget", type=float, default=3600.0, help="seconds of all storms")
    parser.add_argument("--storm", type=float, default=45.0, help="seconds of each storm")
    parser.add_argument("--brokers", type=int, default=5)
    parser.add_argument("--partitions", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1, help="of the first storm")
    parser.add_argument("--store", type=Path, default=Path("store"))
    parser.add_argument("--samples", type=Path, help="file for a line of figures of each storm")


def run(given: argparse.Namespace) -> int:
    """Soak. Return 1 if a storm was invalid, 2 if something grows."""
    request = SoakRequest(
        store=given.store,
        budget_s=given.budget,
        storm_s=given.storm,
        brokers=given.brokers,
        partitions=given.partitions,
        seed=given.seed,
        samples=given.samples,
    )
    with Interrupts() as interrupts, Progress() as progress:
        soaked = run_soak(request, progress, interrupts)
    print(table(soaked))
    if Verdict.INVALID in soaked.verdicts:
        return 1
    return 0 if soaked.is_flat else 2
