"""The loop of every search: draw a schedule, run it, try worse endings, save what fails, shrink it.

A `SearchWorld` says how a schedule is drawn and run. Simulated world and real processes differ only
in one number: a schedule fails if it fails in the majority of `most_runs` runs (simulated: one).

A search is a policy over jobs (`harness.search.jobs`). A finding is saved before it is shrunk. Each
finished job is a row of the search's journal, so a search that was stopped can be continued."""

from __future__ import annotations

import hashlib
import heapq
import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from harness.formats.finding import Finding, RunCounts, WithoutFault
from harness.formats.journal import (
    FINISHED,
    STOPPED,
    Ended,
    Finished,
    JobJournal,
    Lost,
    SearchBegan,
    Searched,
    SearchRow,
    state_of,
)
from harness.search import deadline, findings
from harness.search.deadline import Stop
from harness.search.jobs import MOST_LOSSES_IN_A_ROW, EndedJob, Job, Pool, work_through
from harness.search.shrink.passes import without_each_fault
from harness.search.shrink.real_schedule import MOST_RUNS
from harness.search.shrink.shrinker import Pass, Rerun, Shrinking
from harness.search.worlds.attempt import Attempt
from harness.sim.run import batched_collections
from nemesis.faults import kind_of
from nemesis.formats.schedule import Schedule
from node.formats.errors import FloodmarkError

FOLDER: Final = "searches"
"""The journals of searches, in the store."""
GRACE_S: Final = 10.0
"""The time after the end of the budget for which a job may continue before it is killed."""
MOST_BUCKETS: Final = 100
"""The largest number of buckets that a search shrinks: more means a plainly broken protocol."""
MOST_PROBLEMS: Final = 20
MOST_UNKNOWN: Final = 3
"""The largest number of folders that a search keeps of runs that could not be judged."""
SHARED: Final = "storm {} failed on a cluster that others had before: {} "
NOT_AGAIN: Final = f"{SHARED}On {{}} new ones it did not"
UNDECIDED: Final = f"{SHARED}It was not run on a new one"
GIVEN: Final = "a run that failed"
"""The family of a schedule that was not drawn."""


class Drawn(NamedTuple):
    """A schedule that a search drew, or one with a worse ending, and the result of its run.
    `family` is the kind of storm, "" in simulated worlds."""

    family: str
    schedule: Schedule
    outcome: Attempt


class Shrinks(NamedTuple):
    """The way in which a world shrinks schedules. `passes` propose smaller schedules and are
    repeated until none helps, `last_passes` are tried then. `rerun` proposes other triggers, None
    for none. `tries` is the largest number of runs. A smaller schedule is saved at most every
    `save_every_s` seconds."""

    passes: Sequence[Pass]
    last_passes: Sequence[Pass]
    rerun: Rerun | None
    tries: int
    save_every_s: float


class SearchWorld(Protocol):
    """A world in which a search runs schedules."""

    most_runs: int

    @property
    def shrinks(self) -> Shrinks:
        """The way in which schedules of this world are shrunk."""
        ...

    def runs(self, seed: int, number: int, known: Collection[str]) -> Iterator[Drawn]:
        """Draw the schedule of this number and run it; then worse endings. Yield each run. `known`
        are the buckets of which the search has a finding. A failure of another bucket on a cluster
        that is not new (`Attempt.shared`) counts only if the schedule fails on a new one."""
        ...

    def attempt(self, schedule: Schedule) -> Attempt:
        """Run a schedule once; return the result."""
        ...

    def bucket(self, outcome: Attempt) -> str:
        """Return the class of the failure, "" if the run did not fail."""
        ...

    def found(self, drawn: Drawn) -> Finding:
        """Return a finding for a failed run, without its number in the search."""
        ...

    def is_alike(self, finding: Finding, outcome: Attempt) -> bool:
        """Return whether a run fails in the same way as a finding."""
        ...

    def as_file(self, smallest: Schedule, finding: Finding) -> Schedule:
        """Return the smallest schedule of a finding in the form in which it is saved."""
        ...

    def complete(self, finding: Finding, folder: Path, form_runs: int, stop: Stop) -> Finding:
        """Do what follows the shrinking of a finding, until `stop` returns True: explain it, run it
        on a safe configuration, or find a form for real processes in `form_runs` runs."""
        ...

    def drop(self, outcome: Attempt) -> None:
        """Remove the run folder of a result that is not kept."""
        ...


class Subject(Protocol):
    """The protocol or system that a search tries to break. It can be pickled."""

    @property
    def name(self) -> str:
        """The name of the protocol or system."""
        ...

    @property
    def chunk(self) -> int:
        """The number of schedules in one job."""
        ...

    @property
    def generator(self) -> int:
        """The version of the generator; under another one a seed draws another schedule."""
        ...

    def world(self, store: str, run_name: str) -> SearchWorld:
        """Return a world, whose run folders in `store` have names that begin with `run_name`."""
        ...

    def longest_s(self, job: AnySearchJob) -> float:
        """Return after how many seconds a job counts as hung and is killed."""
        ...


# -- jobs


class SearchJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that runs up to `count` schedules of a seed from number `first` on, for at most
    `seconds` (0: no limit), until one fails in a way whose bucket is not in `known`. Up to
    `unknown` folders of runs that cannot be judged are kept."""

    key: str
    subject: Subject
    seed: int
    first: int
    count: int
    known: tuple[str, ...] = ()
    unknown: int = 0
    seconds: float = 0.0
    store: str = ""
    run_name: str = ""

    def do(self) -> Searched:
        world = self.subject.world(self.store, self.run_name)
        began_s = time.process_time()
        row = Searched(
            key=self.key,
            protocol=self.subject.name,
            seed=self.seed,
            first=self.first,
            generator=self.subject.generator,
        )
        known, is_late = set(self.known), deadline.after(self.seconds)
        with batched_collections():
            for number in range(self.first, self.first + self.count):
                for drawn in world.runs(self.seed, number, known):
                    bucket = world.bucket(drawn.outcome)
                    count(row, drawn.outcome, "" if drawn.outcome.shared else bucket)
                    if bucket and bucket not in known and len(known) < MOST_BUCKETS:
                        known.add(bucket)
                        place = {"seed": self.seed, "number": number}
                        row.findings.append(replace(world.found(drawn), **place))
                    elif _is_unknown(drawn.outcome) and len(row.unknown_runs) < self.unknown:
                        row.unknown_runs.append(drawn.outcome.folder)
                    else:
                        world.drop(drawn.outcome)
                row.schedules += 1
                if row.findings or is_late():
                    break
        row.core_s = round(time.process_time() - began_s, 2)
        return row


class DecideJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that runs an undecided finding on new clusters until it fails on one. If it never does,
    its first run is one that could not be judged."""

    key: str
    subject: Subject
    finding: Finding
    store: str
    run_name: str

    def do(self) -> Searched:
        world, finding = self.subject.world(self.store, self.run_name), self.finding
        place = {"seed": finding.seed, "number": finding.number}
        row = Searched(
            key=self.key,
            protocol=self.subject.name,
            seed=finding.seed,
            first=finding.number,
            generator=self.subject.generator,
        )
        for _ in range(world.most_runs):
            outcome = world.attempt(finding.drawn)
            bucket = world.bucket(outcome)
            count(row, outcome, bucket)
            if bucket:
                shown = world.found(Drawn(finding.family, finding.drawn, outcome))
                row.findings.append(replace(shown, **place))
                return row
            world.drop(outcome)
        row.unknown_runs.append(finding.run)
        _add_problem(row, NOT_AGAIN.format(finding.number, finding.sentence, row.runs))
        return row


class FinishJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that shrinks and completes a finding, for at most `seconds` (0: no limit). The finding
    is saved in `store` meanwhile; if that is "", it is only shrunk. `form_runs` limits the search
    for a form for real processes, `page` asks for a page."""

    key: str
    subject: Subject
    finding: Finding
    seconds: float = 0.0
    tries: int = 0
    store: str = ""
    run_name: str = ""
    form_runs: int = MOST_RUNS
    page: bool = False

    def do(self) -> Finished:
        world = self.subject.world(self.store, self.run_name)
        is_late = deadline.after(self.seconds)
        save = _Saver(Path(self.store), world.shrinks.save_every_s) if self.store else None
        # Shrinking gets one half of the time, the rest what follows.
        until = deadline.after(self.seconds / 2)
        finding = self.finding
        if not finding.shrunk:
            finding = shrink(finding, world, stop=until, save=save, tries=self.tries)
        if not self.store:
            return Finished(key=self.key, finding=finding)
        folder = findings.keep(finding, Path(self.store))
        finding = world.complete(finding, folder, self.form_runs, is_late)
        findings.keep(finding, Path(self.store))
        page = findings.build_page(folder) if self.page else None
        return Finished(
            key=self.key,
            finding=finding,
            folder=str(folder.relative_to(self.store)),
            page="" if page is None else str(page.relative_to(self.store)),
        )


AnySearchJob = SearchJob | DecideJob | FinishJob


def _is_unknown(outcome: Attempt) -> bool:
    """Return whether a run left a folder and could not be judged."""
    return bool(outcome.folder) and not outcome.failed


def count(row: Searched, outcome: Attempt, bucket: str) -> None:
    """Add the result of one run to a row; `bucket` is "" if the run did not fail."""
    row.runs += 1
    row.virtual_us += outcome.virtual_us
    row.events += outcome.events
    row.run_seconds += outcome.seconds
    if outcome.verdict:
        _add(row.verdicts, outcome.verdict)
    for name in outcome.fault_coverage:
        _add(row.fault_coverage, name)
    if outcome.problem:
        _add_problem(row, outcome.problem)
    if bucket:
        row.failures += 1
        _add(row.buckets, bucket)


def add(total: Searched, row: Searched) -> None:
    numbers = ("schedules", "runs", "virtual_us", "events", "failures", "core_s", "run_seconds")
    for name in numbers:
        setattr(total, name, getattr(total, name) + getattr(row, name))
    for name in ("verdicts", "buckets", "fault_coverage"):
        for what, number in getattr(row, name).items():
            _add(getattr(total, name), what, number)
    for problem in row.problems:
        _add_problem(total, problem)
    total.unknown_runs += row.unknown_runs


def _add_problem(row: Searched, problem: str) -> None:
    if len(row.problems) < MOST_PROBLEMS and problem not in row.problems:
        row.problems.append(problem)


def _add(counts: dict[str, int], name: str, number: int = 1) -> None:
    counts[name] = counts.get(name, 0) + number


class _Saver:
    """Keeps a finding while it shrinks, at most every so many seconds."""

    def __init__(self, store: Path, every_s: float) -> None:
        self._store = store
        self._every_s = every_s
        self._saved_s = -math.inf

    def __call__(self, finding: Callable[[], Finding]) -> None:
        if time.monotonic() - self._saved_s >= self._every_s:
            findings.keep(finding(), self._store)
            self._saved_s = time.monotonic()


# -- shrinking


def shrink(
    finding: Finding,
    world: SearchWorld,
    *,
    stop: Stop,
    save: Callable[[Callable[[], Finding]], None] | None = None,
    tries: int = 0,
) -> Finding:
    """Return the finding with the smallest schedule that fails in the same way in the majority of
    its runs. If the schedule does not fail again in most runs, it is not shrunk. `save` is called
    with each smaller finding; `tries` replaces the world's limit of runs (0: it does not)."""
    trials = _Trials(finding, world, stop, save)
    if not trials.fails_alike(finding.smallest):
        return trials.finding(shrunk=False)
    how = world.shrinks
    shrinking = Shrinking(
        finding.smallest,
        trials.fails_alike,
        max_tries=tries or how.tries,
        rerun=how.rerun,
        passes=tuple(how.passes),
        last_passes=tuple(how.last_passes),
        stop=stop,
    )
    trials.smallest = shrinking.run()
    done = not (shrinking.stopped if world.most_runs == 1 else shrinking.exhausted)
    return trials.finding(shrunk=done)


class _Trials:
    """The runs that shrink a finding: of each schedule, in how many of how many runs it failed."""

    def __init__(
        self,
        finding: Finding,
        world: SearchWorld,
        stop: Stop,
        save: Callable[[Callable[[], Finding]], None] | None,
    ) -> None:
        self.smallest = finding.smallest
        self._finding = finding
        self._world = world
        self._stop = stop
        self._save = save
        self._counts = {
            finding.drawn.digest(): finding.drawn_counts,
            finding.smallest.digest(): finding.counts,
        }
        self._runs = {finding.smallest.digest(): finding.run} if finding.run else {}
        self._last: dict[str, Attempt] = {}

    def fails_alike(self, schedule: Schedule) -> bool:
        """Run a schedule until it is decided whether it fails in most runs; return whether."""
        most, digest = self._world.most_runs, schedule.digest()
        known = self._counts.get(digest, RunCounts())
        while not _is_decided(known, most) and not self._stop():
            outcome = self._world.attempt(schedule)
            failed = self._world.is_alike(self._finding, outcome)
            known = RunCounts(failed=known.failed + failed, of=known.of + 1)
            self._counts[digest] = known
            if failed:
                self._last[digest] = outcome
            if failed and outcome.folder and digest not in self._runs:
                self._runs[digest] = outcome.folder
            else:
                self._world.drop(outcome)
        fails = 2 * known.failed > most
        if fails:
            self.smallest = schedule
            if self._save is not None:
                self._save(lambda: self.finding(shrunk=False))
                self._drop_others()
        return fails

    def _drop_others(self) -> None:
        """Drop the runs of schedules that are not shown; that of the drawn one stays to the end."""
        shown = (self.smallest.digest(), self._finding.drawn.digest())
        for other in [digest for digest in self._runs if digest not in shown]:
            self._world.drop(Attempt(folder=self._runs.pop(other)))

    def finding(self, *, shrunk: bool) -> Finding:
        smallest, digest = self.smallest, self.smallest.digest()
        drawn = self._finding.drawn.digest()
        last = self._last.get(digest)
        return replace(
            self._finding,
            sentence=last.sentence if last is not None else self._finding.sentence,
            smallest=self._world.as_file(smallest, self._finding),
            faults=findings.in_words(smallest),
            shrunk=shrunk,
            shrink_runs=sum(one.of for one in self._counts.values()) - 1,
            counts=self._counts.get(digest, RunCounts()),
            drawn_counts=self._counts[drawn],
            without=tuple(self._without(smallest)),
            run=self._runs.get(digest, ""),
        )

    def _without(self, schedule: Schedule) -> Iterator[WithoutFault]:
        """Return for each fault whether the schedule still fails without it, as far as known."""
        for index, fewer in enumerate(without_each_fault(schedule)):
            known = self._counts.get(fewer.digest())
            if known is not None:
                words = kind_of(schedule.faults[index]).words()
                yield WithoutFault(fault=index, words=words, counts=known)


def _is_decided(counts: RunCounts, most: int) -> bool:
    """Return whether it is known if more than half of `most` runs fail."""
    return 2 * counts.failed > most or 2 * (counts.of - counts.failed) >= most


# -- the policy


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a search: `seconds` or `schedules` (0: no such limit), or the first finding.
    The share `reserve` of the seconds is kept for shrinking and completing a finding, which takes
    up to `finish_s` even if less is left."""

    seconds: float = 0.0
    schedules: int = 0
    until_failure: bool = False
    reserve: float = 0.3
    finish_s: float = 0.0


class Search:
    """One search. `kept` has the findings by bucket, `total` the sums over all jobs."""

    def __init__(
        self,
        subject: Subject,
        journal: JobJournal[SearchRow],
        store: Path,
        *,
        seed: int,
        budget: Budget,
        shrinks: bool = True,
        wanted: Callable[[Finding], bool] = lambda finding: True,
        settled: Callable[[Finding], bool] = lambda finding: True,
        report: Callable[[Finding, Path], None] = lambda finding, folder: None,
        finished: Callable[[Finding, Path], None] = lambda finding, folder: None,
        local: bool = True,
        slice_s: float = 0.0,
        form_runs: int = MOST_RUNS,
        goes_on: bool = False,
        version: str = "",
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin a search, or continue it if the journal has one that was not finished. `report` is
        called with each finding of a new bucket, `finished` when it is shrunk. A finding for which
        `wanted` returns False is dropped. If `settled` returns False for a shrunk finding, another
        one of the same bucket is looked for. Without `local`, jobs run on machines that cannot
        write to the store. A job searches for at most `slice_s` seconds (0: no limit). With
        `goes_on`, a search that was finished is continued too."""
        self.subject = subject
        self._lost_in_a_row = 0
        self.total = Searched(protocol=subject.name, seed=seed)
        self.kept: dict[str, Finding] = {}
        self.done: set[str] = set()
        """The buckets of the findings that were shrunk."""
        self.first: Finding | None = None
        self._journal = journal
        self._store = store
        self._seed = seed
        self._budget = budget
        self._shrinks = shrinks
        self._wanted = wanted
        self._settled = settled
        self._report = report
        self._finished = finished
        self._local = local
        self._slice_s = slice_s
        self._form_runs = form_runs
        self._clock_s = clock_s
        self._next = 0
        self._left: list[tuple[int, int]] = []
        """Ranges of schedules below `_next` that are not done, as (first, count)."""
        self._started: set[str] = set()
        """The buckets that are being shrunk, and the undecided findings that are being decided."""
        self._undecided: dict[str, Finding] = {}
        """By the key of the job that decides."""
        if state_of(journal.rows) == FINISHED and not goes_on:
            journal.clear()
        self._before_s = journal.worked_s()
        self._began_s = clock_s()
        self.resumed = bool(journal.rows)
        self._resume()
        began = SearchBegan(subject=subject.name, seed=seed, worked_s=self._before_s)
        began.budget_s = budget.seconds
        began.version = version
        journal.add(began)

    @property
    def run_name(self) -> str:
        """The prefix of the names of this search's run folders."""
        return f"search-{self._journal.path.stem}"

    def seconds(self) -> float:
        """Return for how many seconds the search has run, over all its sessions."""
        return self._before_s + self._clock_s() - self._began_s

    def left_s(self) -> float:
        """Return how many seconds of the budget are left, 0 if it has no time limit."""
        seconds = self._budget.seconds
        return max(seconds - self.seconds(), 1e-3) if seconds else 0.0

    def work(self, pool: Pool, stop: Stop) -> None:
        """Search until the budget is used up or `stop` returns True. Raises StorageError."""
        limit_s = self._budget.seconds + GRACE_S if self._budget.seconds else math.inf
        work_through(self, pool, lambda: stop() or self.seconds() >= limit_s)
        self.end(STOPPED if stop() else FINISHED)

    def end(self, state: str) -> None:
        """Note in the journal how the search ended, and remove the runs that were cut off."""
        for bucket, finding in self.kept.items():
            self.kept[bucket] = findings.latest(self._store, finding)
        self._sweep()
        for finding in self._undecided.values():
            self.total.unknown_runs.append(finding.run)
            _add_problem(self.total, UNDECIDED.format(finding.number, finding.sentence))
        self._add(Ended(state=state), 0.0)

    def _resume(self) -> None:
        """Take over the rows of the journal."""
        stretches = []
        for row in self._journal.rows:
            if isinstance(row, Searched):
                add(self.total, row)
                if row.generator == self.subject.generator:
                    stretches.append((row.first, row.schedules))
                self._undecided.pop(row.key, None)
                for finding in row.findings:
                    if finding.undecided:
                        self._undecided[_decides(finding)] = finding
                    elif finding.bucket not in self.kept:
                        self._keep(findings.latest(self._store, finding))
            elif isinstance(row, Finished):
                self._finish(row.finding)
        for first, number in sorted(stretches):
            if first > self._next:
                self._left.append((self._next, first - self._next))
            self._next = max(self._next, first + number)
        heapq.heapify(self._left)
        self._started |= self._undecided.keys() & self._journal.done()
        if self._journal.rows:
            self._sweep()

    def _sweep(self) -> None:
        """Remove the runs that were cut off, while no job runs."""
        kept = (*self.total.unknown_runs, *(one.run for one in self._undecided.values()))
        findings.sweep(self._store, self.run_name, kept)

    # -- which job is next

    def next_job(self) -> Job | None:
        for key, finding in self._undecided.items():
            if key not in self._started:
                self._started.add(key)
                return self._decide_job(key, finding)
        for bucket, finding in self.kept.items() if self._shrinks else ():
            if bucket not in self.done and bucket not in self._started:
                self._started.add(bucket)
                return self._finish_job(finding)
        if self._is_over():
            return None
        return self._search_job()

    def _is_over(self) -> bool:
        """Return whether to draw no further schedule."""
        budget = self._budget
        found = bool(self.kept or self._undecided)
        seconds = budget.seconds * (1 - budget.reserve if found else 1)
        return (
            (budget.seconds > 0 and self.seconds() >= seconds)
            or (budget.until_failure and bool(self.kept))
            or (budget.schedules > 0 and not self._left and self._next >= budget.schedules)
        )

    def _search_job(self) -> SearchJob:
        if self._left:
            first, number = heapq.heappop(self._left)
        else:
            first, number = self._next, self.subject.chunk
            if self._budget.schedules:
                number = min(number, self._budget.schedules - first)
            self._next = first + number
        return SearchJob(
            key=f"search/{first}",
            subject=self.subject,
            seed=self._seed,
            first=first,
            count=number,
            known=tuple(self.kept),
            unknown=max(0, MOST_UNKNOWN - len(self.total.unknown_runs)),
            seconds=min(filter(None, (self.left_s(), self._slice_s)), default=0.0),
            store=str(self._store),
            run_name=f"{self.run_name}-{first:04d}",
        )

    def _decide_job(self, key: str, finding: Finding) -> DecideJob:
        return DecideJob(
            key=key,
            subject=self.subject,
            finding=finding,
            store=str(self._store),
            run_name=f"{self.run_name}-{finding.number:04d}-new",
        )

    def _finish_job(self, finding: Finding) -> FinishJob:
        left_s = self.left_s()
        return FinishJob(
            key=f"finding/{findings.folder_of(self._store, finding).name}",
            subject=self.subject,
            finding=finding,
            seconds=max(left_s, self._budget.finish_s) if left_s else 0.0,
            form_runs=self._form_runs,
            store=str(self._store) if self._local else "",
            run_name=f"{self.run_name}-{finding.number:04d}-smaller",
        )

    def longest_s(self, job: Job) -> float:
        assert isinstance(job, AnySearchJob)
        return self.subject.longest_s(job)

    # -- what came of it

    def take(self, ended: EndedJob) -> None:
        job, row = ended.job, ended.row
        if row is None:
            row = Lost(key=job.key, sentence=ended.sentence)
            _add_problem(self.total, f"{job.key}: {ended.sentence}")
            self._lost_in_a_row += 1
            if self._lost_in_a_row == MOST_LOSSES_IN_A_ROW:
                raise FloodmarkError(
                    f"the search ends, because {MOST_LOSSES_IN_A_ROW} jobs were lost in a row; "
                    f"the last one: {ended.sentence}"
                )
        else:
            self._lost_in_a_row = 0
        if isinstance(row, Searched):
            self._searched(job, row, ended.seconds)
            return
        self._add(row, ended.seconds)
        if isinstance(row, Finished):
            finding, folder = row.finding, findings.keep(row.finding, self._store)
            if not self._local:
                is_late = deadline.after(self.left_s())
                world = self.subject.world(str(self._store), self.run_name)
                finding = world.complete(finding, folder, MOST_RUNS, is_late)
                findings.keep(finding, self._store)
            self._finish(finding)
            self._finished(finding, folder)

    def _keep(self, finding: Finding) -> Path:
        """Write a finding to the store. It may not have been before the command was killed."""
        self.first = self.first or finding
        self.kept[finding.bucket] = finding
        return findings.keep_unless_smaller(finding, self._store)

    def _finish(self, finding: Finding) -> None:
        """Take note that nothing is left to do with a finding."""
        self.kept[finding.bucket] = finding
        self.done.add(finding.bucket)
        if not self._settled(finding):
            del self.kept[finding.bucket]
            self.done.discard(finding.bucket)
            self._started.discard(finding.bucket)

    def _searched(self, job: Job, row: Searched, seconds: float) -> None:
        decided = self._undecided.pop(job.key, None)
        before, spent = self.total.schedules, round(self.seconds(), 1)
        found: list[Finding] = []
        for finding in row.findings:
            # Another job may have found this bucket before; and if this failure is not wanted,
            # a later one of the same bucket may be.
            if finding.bucket in self.kept or not self._wanted(finding):
                findings.discard(finding, self._store)
                continue
            if finding.undecided:
                self._undecided[_decides(finding)] = finding
            number = before + finding.number - row.first
            found.append(replace(finding, schedules_before=number, seconds_before=spent))
        row.findings = found
        self._add(row, seconds)
        if decided is not None and decided.run not in row.unknown_runs:
            findings.discard(decided, self._store)
        add(self.total, row)
        if isinstance(job, SearchJob) and row.schedules < job.count:
            rest = (row.first + row.schedules, job.count - row.schedules)
            heapq.heappush(self._left, rest)
        for finding in found:
            if finding.undecided:
                continue
            self._report(finding, self._keep(finding))

    def cut_off(self, job: Job) -> None:
        """Leave the files of a killed job; they are removed at the end of the search."""

    def _add(self, row: SearchRow, seconds: float) -> None:
        row.seconds, row.worked_s = round(seconds, 2), round(self.seconds(), 2)
        self._journal.add(row)


def _decides(finding: Finding) -> str:
    """Return the key of the job that decides a finding."""
    return f"decide/{finding.number}"


def journal_of(store: Path, subject: Subject, seed: int) -> Path:
    """Return the path of the journal of the search of a subject with a seed."""
    digest = hashlib.sha256(msgspec.json.encode(subject)).hexdigest()[:8]
    name = findings.subject_in_names(subject.name)
    return store / FOLDER / f"{name}-{seed}-{digest}.jsonl"
