"""A blind search on real processes: draws storms, keeps what fails, shrinks it by running it again.

A finding is on disk before anything else is done about it, and again each time when it became
smaller. The budget bounds the whole command, and it can be stopped at any moment: runs that have
not ended then are killed and leave nothing.

A run of real processes is not deterministic: a schedule fails if it does in the majority of
`RUNS` runs, which end as soon as that is decided.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from harness.formats.system_finding import (
    RunCounts,
    SafeRun,
    SystemFinding,
    WithoutFault,
    is_undelivered,
)
from harness.runs.run_folder import remove
from harness.search.deadline import Stop, never
from harness.search.real import saved
from harness.search.real.attempt import StormJob, StormOutcome
from harness.search.real.passes import REAL_PASSES
from harness.search.real.runner import StormRunner
from harness.search.real.storms import DrawnStorm, StormGenerator, StormSubject
from harness.search.shrink import Shrinking
from harness.search.shrink_passes import without_each_fault
from harness.systems.interface import System
from nemesis.faults import kind_of
from nemesis.formats.schedule import Schedule

RUNS: Final = 3
"""How often a schedule is run, at most, to see whether it fails."""
SAFE_RUNS: Final = 2
SHRINK_TRIES: Final = 60
LOOK_S: Final = 0.25
MOST_PROBLEMS: Final = 20
_DISKS: Final = {0: "", 1: "one disk"}
_PLAIN: Final = "processes only"
_UNDELIVERED: Final = ", undelivered only"


class SearchBudget(msgspec.Struct, frozen=True, kw_only=True):
    """When to draw no more storms: after so many seconds or storms (0: no such limit), or with the
    first finding. The share `reserve` of the seconds is kept for what follows a finding."""

    seconds: float = 0.0
    storms: int = 0
    until_failure: bool = False
    reserve: float = 0.4


class StormCounts(msgspec.Struct, kw_only=True):
    """What a search has done so far: storms by verdict, failures by bucket, runs that shrank."""

    storms: int = 0
    seconds: float = 0.0
    run_seconds: float = 0.0
    shrink_runs: int = 0
    verdicts: dict[str, int] = {}
    buckets: dict[str, int] = {}
    families: dict[str, int] = {}
    problems: list[str] = []


Wanted = Callable[[SystemFinding], bool]
"""Whether a finding shows what is looked for."""


def any_failure(finding: SystemFinding) -> bool:
    """Whatever fails is wanted."""
    return True


@dataclass
class Find:
    """A finding while it is worked on. A run of a smaller schedule counts only if what it came to
    is `wanted` too."""

    finding: SystemFinding
    drawn: Schedule
    smallest: Schedule
    folder: Path
    wanted: Wanted = any_failure
    counts: dict[str, RunCounts] = field(default_factory=dict)
    """By digest of the schedule."""
    runs: dict[str, str] = field(default_factory=dict)
    """By digest, the folder of a run that failed."""


class SystemSearch:
    """One search. `finds` has what was found, by bucket."""

    def __init__(
        self,
        subject: StormSubject,
        system: System,
        runner: StormRunner,
        store: Path,
        *,
        seed: int,
        jobs: int,
        stop: Stop,
        tell: Callable[[str], None] = lambda sentence: None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`system` is that of the subject; up to `jobs` storms run side by side. `tell` takes the
        present state in words. Raises UsageError for faults that the system cannot take."""
        self._subject = subject
        self._system = system
        self._generator = StormGenerator(subject, system, seed)
        self._runner = runner
        self._store = store
        self._seed = seed
        self._jobs = jobs
        self._stop = stop
        self._tell = tell
        self._clock_s = clock_s
        self._until: Stop = never
        self._began_s = clock_s()
        self._names: dict[int, str] = {}
        self._started = 0
        self._drawn = 0
        self.counts = StormCounts()
        self.finds: dict[str, Find] = {}

    # -- drawing

    def search(
        self, budget: SearchBudget, report: Callable[[Find], None], enough: Stop = never
    ) -> None:
        """Draw and run storms within the budget, until what was found is `enough`; `report` gets
        each find of a new bucket, which is on disk by then. Another call goes on with the storms
        after the last. Raises StorageError."""
        waiting: dict[int, DrawnStorm] = {}
        while not (self._is_over(budget) or enough()):
            while len(waiting) < self._jobs and (not budget.storms or self._drawn < budget.storms):
                storm = self._generator.draw(self._drawn)
                waiting[self._start(storm.schedule)] = storm
                self._drawn += 1
            if not waiting:
                break
            for ended in self._runner.ended(LOOK_S):
                self._names.pop(ended.number)
                self._take(waiting.pop(ended.number), ended.outcome, report)
            self._tell(self.state())
        self._kill()

    def _is_over(self, budget: SearchBudget) -> bool:
        self.counts.seconds = self.seconds()
        share = 1 - budget.reserve if self.finds else 1
        late = budget.seconds and self.counts.seconds >= budget.seconds * share
        return bool(late or self._stop() or (budget.until_failure and self.finds))

    def _take(
        self, storm: DrawnStorm, outcome: StormOutcome, report: Callable[[Find], None]
    ) -> None:
        counts = self.counts
        counts.storms += 1
        counts.run_seconds += outcome.seconds
        _add(counts.verdicts, outcome.verdict)
        _add(counts.families, storm.family)
        if outcome.problem and len(counts.problems) < MOST_PROBLEMS:
            counts.problems.append(f"storm {storm.number}: {outcome.problem}")
        if not outcome.failed:
            return
        name = bucket(outcome)
        _add(counts.buckets, name)
        if name in self.finds:
            remove(Path(outcome.folder))
            return
        self.finds[name] = find = self._found(name, storm, outcome)
        self._save(find)
        report(find)

    def adopt(self, schedule: Schedule, outcome: StormOutcome) -> Find:
        """Make a find of a run that failed outside this search. Raises StorageError."""
        name = bucket(outcome)
        storm = DrawnStorm(number=0, family="given", schedule=schedule)
        self.finds[name] = find = self._found(name, storm, outcome)
        self._save(find)
        return find

    def _found(self, name: str, storm: DrawnStorm, outcome: StormOutcome) -> Find:
        drawn = msgspec.structs.replace(storm.schedule, name=f"found-{storm.schedule.name}")
        digest, broken = drawn.digest(), next(iter(outcome.broken))
        finding = SystemFinding(
            system=self._system.name,
            version=self._system.version(),
            settings=self._system.settings,
            bucket=name,
            property=broken,
            anomaly=outcome.broken[broken],
            disks=len(outcome.lost_disks),
            on_links=outcome.on_links,
            sentence=outcome.sentence,
            seed=self._seed,
            storm=storm.number,
            family=storm.family,
            storms_before=self.counts.storms - 1,
            seconds_before=round(self.seconds(), 1),
            drawn_faults=len(drawn.faults),
            safe_settings=self._system.safe_settings,
        )
        return Find(
            finding=finding,
            drawn=drawn,
            smallest=drawn,
            folder=saved.folder_of(self._store, finding, drawn),
            counts={digest: RunCounts(failed=1, of=1)},
            runs={digest: outcome.folder},
        )

    # -- shrinking

    def shrink(self, find: Find, until: Stop = never) -> None:
        """Run it again until it is known whether it fails mostly, then look for the smallest
        schedule that does, until the search is to stop, or `until`. Raises StorageError."""
        self._until = until
        try:
            self._shrink(find)
        finally:
            self._until = never

    def _shrink(self, find: Find) -> None:

        def fails_alike(schedule: Schedule) -> bool:
            fails = self._fails(find, schedule)
            if fails:
                find.smallest = schedule
                self._save(find)
            return fails

        if not self._fails(find, find.drawn):
            self._save(find)
            return
        shrinking = Shrinking(
            find.drawn,
            fails_alike,
            max_tries=SHRINK_TRIES,
            passes=REAL_PASSES,
            last_passes=(),
            stop=self.is_late,
        )
        find.smallest = shrinking.run()
        done = not shrinking.exhausted
        find.finding = msgspec.structs.replace(find.finding, shrunk=done)
        self._save(find)

    def confirm(self, find: Find) -> None:
        """Run the smallest schedule until it was run `RUNS` times."""
        self._repeat(find, find.smallest, lambda counts: counts.of < RUNS)
        self._save(find)

    def _fails(self, find: Find, schedule: Schedule) -> bool:
        return _is_majority(self._repeat(find, schedule, _is_open))

    def _repeat(
        self, find: Find, schedule: Schedule, goes_on: Callable[[RunCounts], bool]
    ) -> RunCounts:
        """Run a schedule while `goes_on` says so of its counts. When the search is to stop, what is
        known by then."""
        digest = schedule.digest()
        for outcome in self._runs(
            schedule, self._subject, lambda: goes_on(find.counts.get(digest, RunCounts()))
        ):
            self.counts.shrink_runs += 1
            before = find.counts.get(digest, RunCounts())
            failed = _is_alike(find, outcome)
            find.counts[digest] = RunCounts(failed=before.failed + failed, of=before.of + 1)
            if failed and digest not in find.runs:
                find.runs[digest] = outcome.folder
            elif outcome.folder:
                remove(Path(outcome.folder))
            self._tell(f"{self.state()}; shrinking: {find.counts[digest]} of these runs failed")
        return find.counts.get(digest, RunCounts())

    def _runs(
        self, schedule: Schedule, subject: StormSubject, goes_on: Callable[[], bool]
    ) -> Iterator[StormOutcome]:
        """Runs of one schedule, side by side, while they are wanted."""
        while goes_on() and not self.is_late():
            while self._runner.running < min(self._jobs, RUNS):
                self._start(schedule, subject)
            for ended in self._runner.ended(LOOK_S):
                self._names.pop(ended.number)
                yield ended.outcome
        self._kill()

    # -- afterwards

    def pair(self, find: Find) -> None:
        """Run the smallest schedule on the configuration that is declared safe, where one is."""
        safe = find.finding.safe_settings
        if safe is None or safe == self._system.settings:
            return
        subject = msgspec.structs.replace(self._subject, settings=safe)
        made: list[SafeRun] = []
        for outcome in self._runs(find.smallest, subject, lambda: len(made) < SAFE_RUNS):
            sentence = outcome.sentence or outcome.problem
            made.append(SafeRun(verdict=outcome.verdict, sentence=sentence, folder=outcome.folder))
        find.finding = msgspec.structs.replace(find.finding, safe_runs=tuple(made))
        self._save(find)

    def seconds(self) -> float:
        """How long the search has gone on."""
        return self._clock_s() - self._began_s

    def run_s(self) -> float:
        """How long a run has taken on average, in seconds."""
        return self.counts.run_seconds / self.counts.storms if self.counts.storms else 0.0

    def state(self) -> str:
        """How things stand, in words."""
        counts = self.counts
        verdicts = ", ".join(f"{n} {verdict}" for verdict, n in sorted(counts.verdicts.items()))
        return f"{counts.storms} storms ({verdicts or 'none ended yet'})"

    def is_late(self) -> bool:
        """Whether the search is to stop."""
        return self._stop() or self._until()

    # -- inside

    def _start(self, schedule: Schedule, subject: StormSubject | None = None) -> int:
        """Begin a run in a folder of its own name, so that one that is killed can be removed."""
        name = self._free_name()
        job = StormJob(
            subject=subject or self._subject, schedule=schedule, store=str(self._store), name=name
        )
        number = self._runner.start(job)
        self._names[number] = name
        return number

    def _free_name(self) -> str:
        """The next name of a run that no earlier search of the store has: it keeps its runs."""
        short = self._system.short_name.lower()
        while True:
            self._started += 1
            name = f"search-{short}-{self._seed}-{self._started:04d}"
            if not (self._store / name).exists():
                return name

    def _kill(self) -> None:
        """End the runs that have not ended; they leave nothing."""
        self._runner.kill()
        for name in self._names.values():
            shutil.rmtree(self._store / name, ignore_errors=True)
        self._names.clear()

    def _save(self, find: Find) -> None:
        smallest, counts = find.smallest, find.counts
        digest = smallest.digest()
        find.finding = msgspec.structs.replace(
            find.finding,
            faults=saved.in_words(smallest),
            counts=counts.get(digest, RunCounts()),
            drawn_counts=counts.get(find.drawn.digest(), RunCounts()),
            without=tuple(_without(smallest, counts)),
            shrink_runs=sum(one.of for one in counts.values()) - 1,
            run=find.runs.get(digest, ""),
        )
        saved.write(find.folder, find.finding, smallest, find.drawn)
        kept = {digest, find.drawn.digest()}
        for other in [other for other in find.runs if other not in kept]:
            remove(Path(find.runs.pop(other)))


def bucket(outcome: StormOutcome) -> str:
    """The class of a failure: its first property, and what the faults did to disks and links. Which
    anomaly of a property comes first differs from run to run, but records that nobody gets to see
    are not the same as records that are gone."""
    name = next(iter(outcome.broken))
    disks = _DISKS.get(len(outcome.lost_disks), "several disks")
    links = "bad links" if outcome.on_links else ""
    under = " and ".join(filter(None, (disks, links))) or _PLAIN
    return f"{name}: {under}{_UNDELIVERED if is_undelivered(name, outcome.broken[name]) else ''}"


def _is_alike(find: Find, outcome: StormOutcome) -> bool:
    """Whether a run broke what the finding is about, in the same way."""
    finding = find.finding
    anomaly = outcome.broken.get(finding.property)
    if anomaly is None:
        return False
    shown = msgspec.structs.replace(
        finding,
        anomaly=anomaly,
        disks=len(outcome.lost_disks),
        on_links=outcome.on_links,
        run=outcome.folder,
    )
    undelivered = is_undelivered(finding.property, finding.anomaly)
    return is_undelivered(shown.property, shown.anomaly) == undelivered and find.wanted(shown)


def _is_open(counts: RunCounts) -> bool:
    """Whether it is not decided yet if the majority of `RUNS` runs fails."""
    return not _is_majority(counts) and counts.of - counts.failed <= RUNS // 2


def _is_majority(counts: RunCounts) -> bool:
    return counts.failed > RUNS // 2


def _without(schedule: Schedule, counts: dict[str, RunCounts]) -> Iterator[WithoutFault]:
    """What is known of the schedule without each of its faults."""
    for index, fewer in enumerate(without_each_fault(schedule)):
        known = counts.get(fewer.digest())
        if known is not None:
            yield WithoutFault(
                fault=index, words=kind_of(schedule.faults[index]).words(), counts=known
            )


def _add(counts: dict[str, int], name: str) -> None:
    counts[name] = counts.get(name, 0) + 1
