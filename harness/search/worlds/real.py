"""A system of real processes as the subject of a search: it is run under storms and judged.

Runs of real processes are not deterministic: a schedule fails if it fails in the majority of `RUNS`
runs, which end as soon as that is decided."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import ClassVar, Final

import msgspec
from msgspec.structs import replace

from checker.formats.verdict import RunResult, Verdict
from harness.formats.finding import Finding, RunCounts, SafeRun, is_undelivered
from harness.runs.judge import build_page
from harness.runs.program import called
from harness.runs.run import RunOrder, run_once
from harness.runs.run_folder import readable_lines, remove
from harness.search.catalogue.known_bugs import row_of
from harness.search.draw.families import STORMS_VERSION, Disks
from harness.search.draw.storms import StormGenerator
from harness.search.findings import in_words
from harness.search.jobs import JobProcesses, do_one
from harness.search.search_jobs import AnySearchJob, SearchJob
from harness.search.shrink.passes import REAL_PASSES
from harness.search.worlds.outcome import ScheduleOutcome
from harness.search.worlds.subject import Drawn, RunFolders, Shrinks, Stop, drop, never
from harness.systems.setup import Setup
from nemesis.faults import KINDS
from nemesis.formats.fault_log import FaultLine, took_effect
from nemesis.formats.schedule import Cluster, Schedule
from node.formats.errors import FloodmarkError, StorageError

RUNS: Final = 3
"""The largest number of runs in which it is decided whether a schedule fails."""
SAFE_RUNS: Final = 2
SHRINK_TRIES: Final = 60
BESIDE_THE_STORM_S: Final = 600.0
"""The longest time of a run besides storm and recovery. A run that takes longer is killed."""
OUTPUT: Final = "search-output.txt"
_DISKS: Final = {0: "", 1: "one disk"}
_PLAIN: Final = "processes only"
VALID_STORM: Final = "valid-storm"
"""The folder in a store of the first valid run of a search."""
_UNDELIVERED: Final = ", undelivered only"


class StormSubject(Setup, frozen=True, kw_only=True):
    """A system to search on real processes. `kinds` are the kinds of faults (empty: all that it can
    take), `disks` is how many nodes may lose data (none, one, any), `consumers` how many clients
    read during a storm. With `loss`, the code of a known loss, only failures that show it count as
    alike."""

    kinds: tuple[str, ...] = ()
    disks: Disks = "any"
    loss: str = ""
    consumers: int = 1
    generator: ClassVar[int] = STORMS_VERSION
    chunk: ClassVar[int] = 1
    most_runs: ClassVar[int] = RUNS
    shrinks: ClassVar[Shrinks] = Shrinks(passes=REAL_PASSES, tries=SHRINK_TRIES, save_every_s=0.0)

    @property
    def name(self) -> str:
        return self.system

    @property
    def identity(self) -> str:
        """The system and its settings as `--systems` names them: `nats+sync=always`."""
        return "+".join((self.system, *(f"{name}={v}" for name, v in self.settings.items())))

    def longest_s(self, job: AnySearchJob) -> float:
        """Return after how many seconds a job is killed; others than a storm limit each run."""
        if not isinstance(job, SearchJob):
            return math.inf
        storm = StormGenerator(self, self.find(), job.seed).draw(job.first)
        return self.longest_run_s(storm.schedule)

    def longest_run_s(self, schedule: Schedule) -> float:
        """Return the longest time in seconds that a run of the schedule can take."""
        system = self.find()
        recovery_ms = system.limits(system.complete(Cluster())).recovery_ms
        return BESIDE_THE_STORM_S + (schedule.workload.duration_ms + recovery_ms) / 1000

    def runs(
        self, seed: int, number: int, known: Collection[str], at: RunFolders
    ) -> Iterator[Drawn]:
        """Draw a storm and run it, as `Subject` says."""
        storm = StormGenerator(self, self.find(), seed).draw(number)
        yield Drawn(storm.family, storm.schedule, self._job(storm.schedule, at).do())

    def run(self, schedule: Schedule, at: RunFolders) -> ScheduleOutcome:
        """Run a schedule once (see `Subject`), in a process that is killed if it hangs."""
        return self.in_process(schedule, never, at)

    def _job(self, schedule: Schedule, at: RunFolders) -> StormJob:
        return StormJob(subject=self, schedule=schedule, store=at.store, name=at.run_name)

    def in_process(self, schedule: Schedule, stop: Stop, at: RunFolders) -> ScheduleOutcome:
        """Run a schedule in a process of its own; it is killed when `stop` returns True."""
        job, began_s = self._job(schedule, at), time.monotonic()
        with closing(JobProcesses(1, Path(at.store) / OUTPUT)) as pool:
            try:
                outcome: ScheduleOutcome = do_one(job, pool, stop, self.longest_run_s(schedule))
            except FloodmarkError as error:
                return _unknown(str(error), time.monotonic() - began_s)
        return outcome

    def bucket(self, outcome: ScheduleOutcome) -> str:
        """Return the class of a failure: the first broken property, how many disks lost data, and
        whether links were faulty. Anomalies differ from run to run, so they are left out, except
        that records never delivered are another class than records that are gone."""
        if not outcome.failed:
            return ""
        name = outcome.property
        disks = _DISKS.get(len(outcome.lost_disks), "several disks")
        links = "bad links" if outcome.on_links else ""
        under = " and ".join(filter(None, (disks, links))) or _PLAIN
        undelivered = is_undelivered(name, outcome.broken[name])
        return f"{name}: {under}{_UNDELIVERED if undelivered else ''}"

    def finding(self, drawn: Drawn) -> Finding:
        outcome, once, system = drawn.outcome, RunCounts(failed=1, of=1), self.find()
        schedule = replace(drawn.schedule, name=f"found-{drawn.schedule.name}")
        safe = system.safe_settings
        if self.loss and row_of(self.loss).safe is not None:
            safe = row_of(self.loss).safe or None
        return Finding(
            world="real",
            subject=system.name,
            version=system.version(),
            settings=dict(system.settings),
            links=self.links,
            disk=self.disk,
            bucket=self.bucket(outcome),
            property=outcome.property,
            anomaly=outcome.broken[outcome.property],
            sentence=outcome.sentence,
            family=drawn.family,
            drawn=schedule,
            smallest=schedule,
            faults=in_words(schedule),
            counts=once,
            drawn_counts=once,
            disks=len(outcome.lost_disks),
            on_links=outcome.on_links,
            run=outcome.folder,
            safe_settings=safe,
        )

    def is_alike(self, finding: Finding, outcome: ScheduleOutcome) -> bool:
        anomaly = outcome.broken.get(finding.property)
        if not outcome.failed or anomaly is None:
            return False
        undelivered = is_undelivered(finding.property, finding.anomaly)
        if is_undelivered(finding.property, anomaly) != undelivered:
            return False
        shown = replace(
            finding,
            anomaly=anomaly,
            disks=len(outcome.lost_disks),
            on_links=outcome.on_links,
            run=outcome.folder,
        )
        return not self.loss or row_of(self.loss).shows(shown)

    def complete(
        self, finding: Finding, folder: Path, stop: Stop, at: RunFolders, *, form: bool = True
    ) -> Finding:
        """Run the finding on the safe configuration, and build its page (see `Subject`)."""
        finding = replace(finding, safe_runs=tuple(self._safe_runs(finding, stop, at)))
        if finding.run and not stop():
            build_page(Path(finding.run), lambda sentence: None)
        return finding

    def _safe_runs(self, finding: Finding, stop: Stop, at: RunFolders) -> Iterator[SafeRun]:
        safe = finding.safe_settings
        if safe is None or safe == finding.settings:
            return
        subject = replace(self, settings=safe)
        for _ in range(SAFE_RUNS):
            outcome = subject.in_process(finding.smallest, stop, at)
            if outcome.problem and stop():
                drop(outcome.folder, at)
                return
            sentence = outcome.sentence or outcome.problem
            yield SafeRun(verdict=outcome.verdict, sentence=sentence, folder=outcome.folder)


class StormJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that runs a schedule once on a system; the run folder is `store`/`name`."""

    subject: StormSubject
    schedule: Schedule
    store: str
    name: str
    key: str = "storm"

    def do(self) -> ScheduleOutcome:
        """Run the schedule, and judge it here. Call it in the main thread."""
        on = self.subject.resolved(self.schedule)
        run = run_once(RunOrder(self.schedule, on, self.name, Path(self.store), called()))
        if isinstance(run.error, StorageError):
            remove(run.folder, Path(self.store))
            raise run.error
        if run.verdict is None:
            return _unknown(str(run.error), run.seconds, run.folder)
        outcome = outcome_in(run.folder, run.verdict, run.seconds)
        if not outcome.folder:
            self._keep_first(run.folder, outcome)
            remove(run.folder, Path(self.store))
        return outcome

    def _keep_first(self, folder: Path, outcome: ScheduleOutcome) -> None:
        """Keep the first valid run of the store, from which a person sees what storms do."""
        kept = Path(self.store) / VALID_STORM
        if outcome.verdict == Verdict.VALID.value and not kept.exists():
            with suppress(OSError):
                folder.rename(kept)


def _unknown(problem: str, seconds: float, folder: Path | None = None) -> ScheduleOutcome:
    """Return the outcome of a run that could not be made."""
    return ScheduleOutcome(
        verdict=Verdict.UNKNOWN.value,
        problem=problem,
        seconds=seconds,
        folder="" if folder is None else str(folder),
    )


def outcome_in(folder: Path, result: RunResult, seconds: float) -> ScheduleOutcome:
    """Return the result of a judged run folder as a search needs it."""
    failed, unknown = result.verdict is Verdict.INVALID, result.verdict is Verdict.UNKNOWN
    lost, on_links = effects(folder)
    broken = result.broken
    return ScheduleOutcome(
        failed=failed,
        property=next(iter(broken), "") if failed else "",
        broken=broken,
        sentence=result.sentence,
        problem=result.sentence if unknown else "",
        verdict=result.verdict.value,
        seconds=seconds,
        lost_disks=lost,
        on_links=on_links,
        folder=str(folder) if failed or unknown else "",
    )


def effects(folder: Path) -> tuple[tuple[str, ...], bool]:
    """Return the nodes that lost unsynced writes, and whether a fault on links took effect."""
    lost: set[str] = set()
    on_links = False
    known = readable_lines(folder / "faults.jsonl", FaultLine)
    for number in {line.fault for line in known}:
        lines = [line for line in known if line.fault == number]
        kind = KINDS.get(lines[0].what)
        if kind is None or not took_effect((line.action, line.affected) for line in lines):
            continue
        on_links |= kind.on_links
        if kind.loss:
            lost.update(node for line in lines if line.action == "inject" for node in line.nodes)
    return tuple(sorted(lost)), on_links
