"""`floodmark bench soak`: storm after storm in one process, and what grows meanwhile.

The harness is one process for all storms, so what it does not give back shows from storm to
storm, and so does what is left on the disk. All other processes are new in each storm. Their peaks
are compared between storms too. The brokers delete the heads of their logs, many times a storm, so
that a leak inside of one storm shows: their memory and their disks late in a storm are compared
with those of its middle.
"""

from __future__ import annotations

import contextlib
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import psutil
from msgspec.structs import replace

from checker.formats.verdict import Verdict
from harness.bench.frame import as_table
from harness.bench.requests import SoakRequest
from harness.bench.usage import bytes_of, held, taken_by
from harness.formats.run_info import Phases
from harness.runs.clock import PeriodicThread
from harness.runs.interrupts import Interrupts
from harness.runs.judge import run_and_judge
from harness.runs.options import to_schedule
from harness.runs.progress import Progress
from harness.runs.requests import RunRequest
from harness.runs.run import Run, RunSettings
from harness.systems import registry
from node.formats.errors import FloodmarkError, UsageError
from node.formats.files import AppendOnlyFile
from node.formats.json_input import decode
from node.formats.trace import DELETED

EVERY_S: Final = 1.0
MOST_KEPT: Final = 3
"""How many runs that are not valid stay in the store."""
WARM_UP_SHARE: Final = 0.15
LEAST_STORMS: Final = 6
MOST_UNSTARTED: Final = 5
"""So many clusters in a row that do not start end a soak."""
DELETED_MARK: Final = DELETED.encode()


class _Deletion(msgspec.Struct, frozen=True):
    """The fields of a trace event that count deletions."""

    event: str
    start: int = 0
    from_start: int = 0


class Peak(msgspec.Struct, frozen=True):
    """The most that a kind of process held: bytes of memory, open descriptors."""

    rss: int = 0
    descriptors: int = 0

    def with_more(self, rss: int, descriptors: int) -> Peak:
        """Return the higher of each."""
        return Peak(max(self.rss, rss), max(self.descriptors, descriptors))


class Inside(msgspec.Struct, frozen=True, kw_only=True):
    """Medians over one storm of all brokers together, for the second and for the last third of its
    time: bytes of memory and of data on the disk."""

    rss_middle: float = 0
    rss_late: float = 0
    disk_middle: float = 0
    disk_late: float = 0


class StormSample(msgspec.Struct, frozen=True, kw_only=True):
    """One storm: its verdict, when it was over, the peak of each kind of process, what brokers held
    inside of it, how often a log head was deleted and how many records with it (of all replicas),
    the bytes of its run folder, and after it what this process holds and what is left in the store.
    """

    number: int
    verdict: str
    sentence: str
    ended_s: float
    operations: int
    peaks: dict[str, Peak]
    inside: Inside = Inside()
    deletions: int = 0
    deleted_records: int = 0
    run_bytes: int
    rss: int
    descriptors: int
    threads: int
    processes: int
    store_bytes: int


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """One measure: its median in the first and in the last third of the storms after the warm-up,
    and whether it is flat."""

    what: str
    first: float
    last: float
    is_flat: bool

    @property
    def ratio(self) -> float:
        """The last third to the first."""
        return self.last / self.first if self.first else 1.0


class Soaked(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a soak."""

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
        """Return whether nothing grows."""
        return all(each.is_flat for each in self.growth)


def run_soak(settings: SoakRequest, progress: Progress, interrupts: Interrupts) -> Soaked:
    """Storm until the time is over or somebody interrupts. Each sample becomes a line of
    `settings.samples`.

    A cluster that does not start, as on a machine that is too busy for it, is counted and not the
    end. Raises its FloodmarkError when MOST_UNSTARTED in a row do not, and UsageError for too short
    a time.
    """
    if settings.budget_s < settings.storm_s:
        raise UsageError("--budget must be as long as one storm at least")
    keep = None if settings.samples is None else AppendOnlyFile(settings.samples)
    began_s = time.monotonic()
    found: list[StormSample] = []
    unstarted, in_a_row = 0, 0
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
    if keep is not None:
        keep.close()
    return replace(summed_up(settings, found), unstarted=unstarted)


def one_storm(
    settings: SoakRequest, number: int, progress: Progress, interrupts: Interrupts, began_s: float
) -> StormSample:
    """Make one storm with all kinds of faults and judge it here; a valid run is removed."""
    request = RunRequest(
        seed=settings.seed + number,
        brokers=settings.brokers,
        partitions=settings.partitions,
        clients=settings.clients,
        rate=settings.rate,
        time_limit=settings.storm_s,
        retention_records=settings.retention_records,
    )
    schedule = to_schedule(request)
    payloads = replace(schedule.workload, payload_bytes=settings.payload_bytes)
    run = Run(
        replace(schedule, workload=payloads),
        RunSettings(name="soak", seed=settings.seed + number, store=settings.store),
        registry.find(registry.DEFAULT),
        progress=progress,
        interrupts=interrupts,
    )
    folder = run.folder.path
    with PeakMonitor(folder / "data") as monitor:
        result = run_and_judge(run, progress, interrupts)
    interrupts.at_once = False
    deletions, deleted_records = deletions_in(folder / "trace")
    run_bytes, operations = bytes_of(folder), operations_in(folder)
    others = [each for each in folder.parent.iterdir() if each.is_dir() and not each.is_symlink()]
    if result.verdict is Verdict.VALID or len(others) > MOST_KEPT:
        shutil.rmtree(folder, ignore_errors=True)
    me = psutil.Process()
    return StormSample(
        number=number,
        verdict=result.verdict,
        sentence=result.sentence,
        ended_s=round(time.monotonic() - began_s, 1),
        operations=operations,
        peaks=monitor.peaks,
        inside=monitor.inside(run.info.phases),
        deletions=deletions,
        deleted_records=deleted_records,
        run_bytes=run_bytes,
        rss=me.memory_info().rss,
        descriptors=me.num_fds(),
        threads=me.num_threads(),
        processes=len(me.children(recursive=True)),
        store_bytes=bytes_of(settings.store),
    )


class BrokerUse(NamedTuple):
    """The bytes of memory and on the disk that all brokers together used at a time."""

    t_us: int
    rss: int
    disk: int


class PeakMonitor(PeriodicThread):
    """Watches this process and all that it started while it is entered: the peaks by kind, and
    what the brokers hold from second to second; their folders are in `data`."""

    def __init__(self, data: Path) -> None:
        super().__init__(self._note, EVERY_S, "soak")
        self.peaks: dict[str, Peak] = {}
        self.moments: list[BrokerUse] = []
        self._data = data

    def inside(self, phases: Phases) -> Inside:
        """Return what brokers held in the middle and late in the storm; nothing of a storm of fewer
        than three moments."""
        begin, end = phases.storm_us, phases.heal_us
        third = (end - begin) / 3
        middle = [m for m in self.moments if begin + third <= m.t_us < end - third]
        late = [m for m in self.moments if end - third <= m.t_us < end]
        if not middle or not late:
            return Inside()
        return Inside(
            rss_middle=statistics.median(m.rss for m in middle),
            rss_late=statistics.median(m.rss for m in late),
            disk_middle=statistics.median(m.disk for m in middle),
            disk_late=statistics.median(m.disk for m in late),
        )

    def _note(self) -> None:
        brokers = 0
        for kind, rss, descriptors in held():
            self.peaks[kind] = self.peaks.get(kind, Peak()).with_more(rss, descriptors)
            brokers += rss if kind == "broker" else 0
        disk = sum(taken_by(folder) for folder in self._data.glob("n*"))
        self.moments.append(BrokerUse(time.monotonic_ns() // 1000, brokers, disk))


def operations_in(run: Path) -> int:
    """Return the operations in the history of a run; none where it ended before there was one."""
    with contextlib.suppress(FileNotFoundError), (run / "history.jsonl").open("rb") as history:
        return sum(1 for _ in history) // 2
    return 0


def deletions_in(traces: Path) -> tuple[int, int]:
    """Return how often a replica deleted the head of a log, by the traces of a run, and how many
    records in all. A replica that starts over at the start of its leader counts as one deletion."""
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
    verdicts: dict[str, int] = {}
    for sample in samples:
        verdicts[sample.verdict] = verdicts.get(sample.verdict, 0) + 1
    return Soaked(
        settings=settings,
        storms=len(samples),
        verdicts=verdicts,
        minutes=round(samples[-1].ended_s / 60, 1) if samples else 0.0,
        growth=tuple(growth(settings, samples)),
        deletions=tuple(sample.deletions for sample in samples),
        deleted_records=sum(sample.deleted_records for sample in samples),
    )


def growth(settings: SoakRequest, samples: Sequence[StormSample]) -> Iterator[Growth]:
    """Yield the growth of each measure; nothing of fewer than LEAST_STORMS storms after the
    warm-up."""
    warm = samples[round(len(samples) * WARM_UP_SHARE) :]
    if len(warm) < LEAST_STORMS:
        return
    slack_bytes = settings.slack_mb * (1 << 20)
    measures: list[tuple[str, Callable[[StormSample], float], float]] = [
        ("harness: memory after a storm", lambda s: s.rss, slack_bytes),
        ("harness: descriptors after a storm", lambda s: s.descriptors, settings.slack_descriptors),
        ("harness: threads after a storm", lambda s: s.threads, settings.slack_descriptors),
        ("processes left after a storm", lambda s: s.processes, 1),
        ("store after a storm", lambda s: s.store_bytes, slack_bytes),
        ("run folder of a storm", lambda s: s.run_bytes, slack_bytes),
    ]
    for kind in sorted({kind for sample in warm for kind in sample.peaks}):
        measures += [
            (f"{kind}: most memory", _peak_of(kind, "rss"), slack_bytes),
            (
                f"{kind}: most descriptors",
                _peak_of(kind, "descriptors"),
                settings.slack_descriptors,
            ),
        ]
    third = len(warm) // 3
    yield from _growth_inside(settings, warm)
    for what, value, slack in measures:
        first = statistics.median(value(sample) for sample in warm[:third])
        last = statistics.median(value(sample) for sample in warm[-third:])
        is_flat = last <= first * settings.most_ratio or last - first <= slack
        yield Growth(what=what, first=first, last=last, is_flat=is_flat)


def _growth_inside(settings: SoakRequest, warm: Sequence[StormSample]) -> Iterator[Growth]:
    """Yield the growth of what brokers hold inside of a storm: its second third to its last."""
    slack = settings.slack_in_storm_mb * (1 << 20)
    for what in ("memory", "disk"):
        name = "rss" if what == "memory" else what
        middle = statistics.median(getattr(s.inside, f"{name}_middle") for s in warm)
        late = statistics.median(getattr(s.inside, f"{name}_late") for s in warm)
        is_flat = late <= middle * settings.most_ratio or late - middle <= slack
        yield Growth(
            what=f"all brokers: {what} in a storm", first=middle, last=late, is_flat=is_flat
        )


def _peak_of(kind: str, field: str) -> Callable[[StormSample], float]:
    def value(sample: StormSample) -> float:
        return float(getattr(sample.peaks.get(kind, Peak()), field))

    return value


def table(soaked: Soaked) -> str:
    """Return the figures for a person."""
    settings = soaked.settings
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in soaked.verdicts.items())
    lines = [
        f"{soaked.storms} storms of {settings.storm_s:g} s in {soaked.minutes:g} minutes, "
        f"{settings.brokers} brokers, {settings.partitions} partitions: {verdicts}"
    ]
    if soaked.unstarted:
        lines[0] += f"; {soaked.unstarted} more did not start"
    if any(soaked.deletions):
        fewest, middle = min(soaked.deletions), statistics.median(soaked.deletions)
        lines.insert(
            1,
            f"log heads deleted in a storm: {fewest:,} at least, {middle:,.0f} in the middle; "
            f"{soaked.deleted_records:,} records in all ('in a storm': second third, last third)",
        )
    lines += as_table(
        ("median of a third of the storms", "first", "last", "ratio", ""),
        (
            (
                each.what,
                _amount(each, each.first),
                _amount(each, each.last),
                f"{each.ratio:.2f}",
                "" if each.is_flat else "grows",
            )
            for each in soaked.growth
        ),
    )
    if not soaked.growth:
        lines.append(f"too few storms to say what grows: {LEAST_STORMS} after the warm-up are due")
    return "\n".join(lines)


def _amount(each: Growth, value: float) -> str:
    is_bytes = "memory" in each.what or each.what.startswith(("store", "run folder", "all brokers"))
    return f"{value / (1 << 20):.1f} MB" if is_bytes else f"{value:.0f}"


def _line(sample: StormSample) -> str:
    return (
        f"storm {sample.number}: {sample.verdict}, {sample.rss >> 20} MB, "
        f"{sample.descriptors} descriptors, run of {sample.run_bytes >> 20} MB, "
        f"{sample.deletions} log heads deleted"
    )
