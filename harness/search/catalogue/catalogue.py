"""`floodmark bugs find`: a blind search for each entry of a catalogue, with each seed.

An entry is a known bug, a promise that a faulty protocol breaks, or a known loss of a third-party
system. Each search is one of `harness.search.loop` with a
journal of its own, so it continues when the command is called again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.formats.finding import Finding
from harness.formats.journal import (
    FINISHED,
    STOPPED,
    FinishedRow,
    JobJournal,
    SearchBegan,
    SearchedRow,
    SearchRow,
    read_rows,
    state_of,
)
from harness.runs.interrupts import Interrupts
from harness.runs.judge import Tell
from harness.runs.progress import Progress
from harness.search.catalogue.known_bugs import (
    ALL,
    KnownLoss,
    SearchTarget,
    wanted_losses,
    wanted_targets,
)
from harness.search.jobs import EndedJob, Job, Pool, work_through
from harness.search.loop import Budget, Search
from harness.search.requests import BugSearchRequest
from harness.search.run import simulated_pool, storm_pool, storm_subject
from harness.search.search_jobs import AnySearchJob
from harness.search.worlds.real import StormSubject
from harness.search.worlds.simulated import BugSubject
from harness.search.worlds.subject import Subject
from node.formats.errors import FloodmarkError, UsageError

FOLDER: Final = "known-bugs"
"""The journals, in the store."""
SLICE_S: Final = 20.0
"""The longest time in which one job searches for one bug; most need less."""
FINISH_SHARE: Final = 0.5
"""The share of the time of a search that shrinking gets at least."""
Entry = SearchTarget | KnownLoss


def subject_of(entry: Entry) -> Subject:
    """Return the protocol or system to search. Raises UsageError if it is not installed."""
    if isinstance(entry, KnownLoss):
        subject = storm_subject(entry.system, entry.settings, disks=entry.disks)
        return msgspec.structs.replace(subject, loss=entry.code)
    return BugSubject.of(entry)


def version_of(entry: Entry) -> str:
    """Return the version of the system, "" for a protocol. Raises UsageError likewise."""
    subject = subject_of(entry)
    return subject.find().version() if isinstance(subject, StormSubject) else ""


def entries(request: BugSearchRequest) -> list[Entry]:
    """Return the entries that a request asks for. Raises UsageError for an unknown one."""
    if request.system is not None:
        return [*wanted_losses(request.system, request.only)]
    return [*wanted_targets(request.only)]


class EntryResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one search for an entry: in how many seconds (of one core, in the simulated
    world) and schedules it was found, and the finding."""

    code: str
    seed: int
    budget_s: float
    found: bool
    seconds: float
    schedules: int
    finding: Finding | None = None
    version: str = ""
    state: str = ""


class SearchedBugs(msgspec.Struct, frozen=True, kw_only=True):
    """The results of all searches in a store, earlier ones too, and the entries asked for that are
    still open."""

    results: list[EntryResult]
    open: list[str]


def find(
    request: BugSearchRequest,
    interrupts: Interrupts,
    progress: Progress,
    output: Tell,
    pool: Pool | None = None,
) -> SearchedBugs:
    """Search for the entries of a request, and shrink and explain what is found. Skip searches
    that are done. Raises UsageError, and StorageError when the store cannot be written."""
    wanted = entries(request)
    progress.phase("searching for known bugs")
    if pool is None:
        pool_of = simulated_pool if request.system is None else storm_pool
        pool = pool_of(request.jobs, request.store)
    with closing(pool):
        policy = Catalogue(request, wanted, output)

        def stop() -> bool:
            progress.tell(policy.status())
            return interrupts.asked

        try:
            work_through(policy, pool, stop)
        finally:
            policy.close(STOPPED)
    results = [result for entry in wanted for result in results_of(request.store, entry)]
    shown = {result.code for result in results if result.found}
    open_ = [entry.code for entry in wanted if entry.code not in shown]
    return SearchedBugs(results=results, open=open_)


@dataclass(eq=False)
class _OpenSearch:
    """A search that is under way, how many of its jobs run, and how long the others took: in the
    simulated world, of one core."""

    entry: Entry
    seed: int
    running: int = 0
    spent_s: float = 0.0
    journal: JobJournal[SearchRow] = field(init=False)
    search: Search = field(init=False)

    @property
    def name(self) -> str:
        """The entry and the seed."""
        return f"{self.entry.code}, seed {self.seed}"


class Catalogue:
    """The policy of `floodmark bugs find`. Simulated searches take turns, one job each: next is the
    one that has worked least. Those on real processes follow each other."""

    def __init__(self, request: BugSearchRequest, wanted: Sequence[Entry], output: Tell) -> None:
        """Plan the searches that are not done. Raises UsageError for one that cannot be made."""
        self._request = request
        self._output = output
        self._takes_turns = request.system is None
        self._all = 0
        self._found = 0
        self._waiting: list[_OpenSearch] = []
        self._open: list[_OpenSearch] = []
        self._of: dict[int, _OpenSearch] = {}
        missing: set[str] = set()
        for seed in range(request.seeds):
            for entry in wanted:
                if entry.code in missing:
                    continue
                try:
                    version_of(entry)
                except UsageError as error:
                    if request.system != ALL:
                        raise
                    output(f"{entry.code}: not searched: {error}")
                    missing.add(entry.code)
                    continue
                self._plan(entry, seed)

    def _plan(self, entry: Entry, seed: int) -> None:
        self._all += 1
        result = result_of(self._request.store, entry, seed)
        if result is not None and self._is_done(result):
            self._found += result.found
            return
        self._waiting.append(_OpenSearch(entry, seed))

    def _is_done(self, result: EntryResult) -> bool:
        if result.state != FINISHED:
            return False
        return result.found or result.budget_s >= self._request.search_s

    def _begin(self, one: _OpenSearch) -> None:
        request, entry, limit_s = self._request, one.entry, self._request.search_s
        budget = Budget(seconds=limit_s, until_failure=True, finish_s=FINISH_SHARE * limit_s)
        # Third-party systems take long to shrink on: one finding of each loss is enough.
        before = [] if self._takes_turns else results_of(request.store, entry)
        shown = [result.finding for result in before if result.finding is not None]
        one.journal = JobJournal[SearchRow](_file(request.store, entry, one.seed), SearchRow)
        one.search = Search(
            subject_of(entry),
            one.journal,
            request.store,
            seed=one.seed,
            budget=budget,
            shrinks=not any(map(entry.is_complete, shown)),
            wanted=entry.shows,
            settled=entry.settles,
            report=lambda finding, folder: self._tell(one, finding, folder),
            finished=lambda finding, folder: self._tell_shrunk(one, finding, folder),
            slice_s=SLICE_S if self._takes_turns else 0.0,
            forms=False,
            goes_on=True,
            version=version_of(entry),
            clock_s=(lambda: one.spent_s) if self._takes_turns else time.monotonic,
        )

    # -- the policy

    def next_job(self) -> Job | None:
        while (one := self._next()) is not None:
            job = one.search.next_job()
            if job is not None:
                self._of[id(job)] = one
                one.running += 1
                return job
            if one.running:
                return None
            self._end(one, FINISHED)
        return None

    def _next(self) -> _OpenSearch | None:
        """Return the search whose turn it is."""
        at_once = len(self._waiting) if self._takes_turns else 1 - len(self._open)
        for one in self._waiting[: max(at_once, 0)]:
            self._waiting.remove(one)
            self._begin(one)
            self._open.append(one)
        if not self._takes_turns:
            return self._open[0] if self._open else None
        idle = (one for one in self._open if not one.running)
        return min(idle, key=lambda one: one.search.seconds(), default=None)

    def longest_s(self, job: Job) -> float:
        assert isinstance(job, AnySearchJob)
        return job.subject.longest_s(job)

    def take(self, ended: EndedJob) -> None:
        one, row = self._of.pop(id(ended.job)), ended.row
        one.running -= 1
        one.spent_s += row.core_s if isinstance(row, SearchedRow) else ended.seconds
        try:
            one.search.take(ended)
        except FloodmarkError as error:
            if ended.row is not None:
                raise
            self._output(f"{one.name}: {error}")
            self._end(one, STOPPED)

    def _end(self, one: _OpenSearch, state: str) -> None:
        self._open.remove(one)
        with closing(one.journal):
            one.search.end(state)

    def close(self, state: str) -> None:
        """End the searches that are open."""
        for one in list(self._open):
            self._end(one, state)

    # -- what is printed

    def status(self) -> str:
        """Return a line on the progress."""
        return f"{self._found} of {self._all} searches found their bug"

    def _tell(self, one: _OpenSearch, finding: Finding, folder: Path) -> None:
        self._found += 1
        self._output(
            f"{one.name}: found after {finding.schedules_before + 1:,} schedules, "
            f"{finding.seconds_before:.0f} s: {finding.bucket}, kept in {folder}"
        )

    def _tell_shrunk(self, one: _OpenSearch, finding: Finding, folder: Path) -> None:
        before, after = len(finding.drawn.faults), len(finding.faults)
        self._output(f"{one.name}: {before} faults shrunk to {after}; kept in {folder}")


# -- what is in the store


def results_of(store: Path, entry: Entry) -> list[EntryResult]:
    """Return the results of all searches for an entry in a store, by seed."""
    files = (store / FOLDER).glob(f"{entry.code}-*.jsonl")
    seeds = (file.stem.removeprefix(f"{entry.code}-") for file in files)
    numbers = sorted(int(seed) for seed in seeds if seed.isdigit())
    return [result for n in numbers if (result := result_of(store, entry, n)) is not None]


def result_of(store: Path, entry: Entry, seed: int) -> EntryResult | None:
    """Return the result of the search for an entry with a seed, if any. Raises StorageError."""
    return result_in(_file(store, entry, seed), entry, seed)


def result_in(file: Path, entry: Entry, seed: int) -> EntryResult | None:
    """Return the result of the search with this journal, if any. Raises StorageError."""
    rows: list[Any] = read_rows(file, SearchRow)
    began = [row for row in rows if isinstance(row, SearchBegan)]
    if not began:
        return None
    total = SearchedRow(subject=entry.code, seed=seed)
    first: Finding | None = None
    shown: Finding | None = None
    for row in rows:
        if isinstance(row, SearchedRow):
            total.add(row)
            first = first or next(iter(row.findings), None)
        elif isinstance(row, FinishedRow) and (shown is None or not entry.settles(shown)):
            shown = row.finding
    shown = shown or first
    worked_s = total.core_s if total.virtual_us else max(row.worked_s for row in rows)
    return EntryResult(
        code=entry.code,
        seed=seed,
        budget_s=began[-1].budget_s,
        found=first is not None,
        seconds=round(worked_s if first is None else first.seconds_before, 1),
        schedules=total.schedules if first is None else first.schedules_before + 1,
        finding=shown,
        version=(shown is not None and shown.version) or began[-1].version,
        state=state_of(rows),
    )


def _file(store: Path, entry: Entry, seed: int) -> Path:
    return store / FOLDER / f"{entry.code}-{seed}.jsonl"
