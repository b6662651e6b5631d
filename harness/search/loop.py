"""The loop of every search: draw a schedule, run it, try worse endings, save what fails, shrink it.

A search is a policy over jobs (`harness.search.jobs`). A finding is saved before it is shrunk. Each
finished job is a row of the search's journal, so a search that was stopped can be continued."""

from __future__ import annotations

import hashlib
import heapq
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from harness.formats.finding import Finding
from harness.formats.journal import (
    FINISHED,
    STOPPED,
    Ended,
    FinishedRow,
    JobJournal,
    Lost,
    SearchBegan,
    SearchedRow,
    SearchRow,
    state_of,
)
from harness.search import findings
from harness.search.jobs import MOST_LOSSES_IN_A_ROW, EndedJob, Job, Pool, work_through
from harness.search.search_jobs import AnySearchJob, FinishJob, SavedJob, SearchJob
from harness.search.worlds.subject import RunFolders, Stop, Subject, deadline, drop
from node.formats.errors import FloodmarkError

FOLDER: Final = "searches"
"""The journals of searches, in the store."""
GRACE_S: Final = 10.0
"""The time after the end of the budget for which a job may continue before it is killed."""
MOST_UNKNOWN: Final = 3
"""The largest number of folders that a search keeps of runs that could not be judged."""


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a search: `seconds` or `schedules` (0: no such limit), or the first finding.
    The share `reserve` of the seconds is kept for shrinking and completing a finding, which takes
    up to `finish_s` even if less is left."""

    seconds: float = 0.0
    schedules: int = 0
    until_failure: bool = False
    reserve: float = 0.3
    finish_s: float = 0.0


@dataclass(eq=False)
class Search:
    """One search. `kept` has the findings by bucket, `total` the sums over all jobs.

    It continues if the journal has one that was not finished. `report` is called with each finding
    of a new bucket, `finished` when it is shrunk. A finding for which `wanted` returns False is
    dropped. If `settled` returns False for a shrunk finding, another one of the same bucket is
    looked for. Without `local`, jobs run on machines that cannot write to the store. A job searches
    for at most `slice_s` seconds (0: no limit). `forms`: forms of findings for real processes are
    looked for. With `goes_on`, a search that was finished is continued too. The `saved` findings
    are tried before anything is drawn; `report` gets each that fails again."""

    subject: Subject
    journal: JobJournal[SearchRow]
    store: Path
    _: KW_ONLY
    seed: int
    budget: Budget
    shrinks: bool = True
    wanted: Callable[[Finding], bool] = lambda finding: True
    settled: Callable[[Finding], bool] = lambda finding: True
    report: Callable[[Finding, Path], None] = lambda finding, folder: None
    finished: Callable[[Finding, Path], None] = lambda finding, folder: None
    local: bool = True
    slice_s: float = 0.0
    forms: bool = True
    goes_on: bool = False
    saved: Sequence[Finding] = ()
    version: str = ""
    clock_s: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._lost_in_a_row = 0
        self.total = SearchedRow(subject=self.subject.name, seed=self.seed)
        self.kept: dict[str, Finding] = {}
        self.done: set[str] = set()
        """The buckets of the findings that were shrunk."""
        self._next = 0
        self._left: list[tuple[int, int]] = []
        """Ranges of schedules below `_next` that are not done, as (first, count)."""
        self._started: set[str] = set()
        """The buckets that are being shrunk."""
        journal = self.journal
        if state_of(journal.rows) == FINISHED and not self.goes_on:
            journal.clear()
        self._before_s = journal.worked_s()
        self._began_s = self.clock_s()
        self.resumed = bool(journal.rows)
        self._resume()
        done = journal.done()
        keys = {_tries(self.store, finding): finding for finding in reversed(self.saved)}
        self._saved = {key: finding for key, finding in keys.items() if key not in done}
        began = SearchBegan(subject=self.subject.name, seed=self.seed, worked_s=self._before_s)
        began.budget_s = self.budget.seconds
        began.version = self.version
        journal.add(began)

    @property
    def run_name(self) -> str:
        """The prefix of the names of this search's run folders."""
        return f"search-{self.journal.path.stem}"

    def seconds(self) -> float:
        """Return for how many seconds the search has run, over all its sessions."""
        return self._before_s + self.clock_s() - self._began_s

    def shrinking(self) -> Iterator[Finding]:
        """Yield the findings that are being shrunk, as far as the store has them."""
        for bucket in sorted(self._started & self.kept.keys() - self.done):
            yield findings.latest(self.store, self.kept[bucket])

    def left_s(self) -> float:
        """Return how many seconds of the budget are left, 0 if it has no time limit."""
        seconds = self.budget.seconds
        return max(seconds - self.seconds(), 1e-3) if seconds else 0.0

    def work(self, pool: Pool, stop: Stop) -> None:
        """Search until the budget is used up or `stop` returns True. Raises StorageError."""
        limit_s = self.budget.seconds + GRACE_S if self.budget.seconds else math.inf
        work_through(self, pool, lambda: stop() or self.seconds() >= limit_s)
        self.end(STOPPED if stop() else FINISHED)

    def end(self, state: str) -> None:
        """Note in the journal how the search ended, and remove the runs that were cut off."""
        for bucket, finding in self.kept.items():
            self.kept[bucket] = findings.latest(self.store, finding)
        findings.sweep(self.store, self.run_name, self.total.unknown_runs)
        self._add(Ended(state=state), 0.0)

    def _resume(self) -> None:
        """Take over the rows of the journal."""
        stretches = []
        for row in self.journal.rows:
            if isinstance(row, SearchedRow):
                self.total.add(row)
                if row.generator == self.subject.generator:
                    stretches.append((row.first, row.schedules))
                for finding in row.findings:
                    if finding.bucket not in self.kept:
                        self._keep(findings.latest(self.store, finding))
                        # A saved finding, which fails again, was shrunk before.
                        self.done |= {finding.bucket} if finding.shrunk else set()
            elif isinstance(row, FinishedRow):
                self._finish(row.finding)
        for first, number in sorted(stretches):
            if first > self._next:
                self._left.append((self._next, first - self._next))
            self._next = max(self._next, first + number)
        heapq.heapify(self._left)
        if self.journal.rows:
            findings.sweep(self.store, self.run_name, self.total.unknown_runs)

    # -- which job is next

    def next_job(self) -> Job | None:
        if self._saved and not self._is_over():
            key, finding = self._saved.popitem()
            place = self._place(f"saved-{finding.drawn.digest()}")
            return SavedJob(key=key, subject=self.subject, finding=finding, place=place)
        for bucket, finding in self.kept.items() if self.shrinks else ():
            if bucket not in self.done and bucket not in self._started:
                self._started.add(bucket)
                return self._finish_job(finding)
        if self._is_over():
            return None
        return self._search_job()

    def _is_over(self) -> bool:
        """Return whether to draw no further schedule."""
        budget = self.budget
        seconds = budget.seconds * (1 - budget.reserve if self.kept else 1)
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
            if self.budget.schedules:
                number = min(number, self.budget.schedules - first)
            self._next = first + number
        return SearchJob(
            key=f"search/{first}",
            subject=self.subject,
            seed=self.seed,
            first=first,
            count=number,
            known=tuple(self.kept),
            unknown=max(0, MOST_UNKNOWN - len(self.total.unknown_runs)),
            seconds=min(filter(None, (self.left_s(), self.slice_s)), default=0.0),
            place=self._place(f"{first:04d}"),
        )

    def _finish_job(self, finding: Finding) -> FinishJob:
        left_s = self.left_s()
        return FinishJob(
            key=f"finding/{findings.folder_of(self.store, finding).name}",
            subject=self.subject,
            finding=finding,
            seconds=max(left_s, self.budget.finish_s) if left_s else 0.0,
            form=self.forms,
            place=self._place(f"{finding.number:04d}-smaller") if self.local else RunFolders(),
        )

    def _place(self, name: str) -> RunFolders:
        return RunFolders(str(self.store), f"{self.run_name}-{name}")

    def longest_s(self, job: Job) -> float:
        assert isinstance(job, AnySearchJob)
        return self.subject.longest_s(job)

    # -- what came of it

    def take(self, ended: EndedJob) -> None:
        job, row = ended.job, ended.row
        if row is None:
            row = Lost(key=job.key, sentence=ended.sentence)
            self.total.add_problem(f"{job.key}: {ended.sentence}")
            self._lost_in_a_row += 1
            if self._lost_in_a_row == MOST_LOSSES_IN_A_ROW:
                raise FloodmarkError(
                    f"the search ends, because {MOST_LOSSES_IN_A_ROW} jobs were lost in a row; "
                    f"the last one: {ended.sentence}"
                )
        else:
            self._lost_in_a_row = 0
        if isinstance(row, SearchedRow):
            self._searched(job, row, ended.seconds)
            return
        self._add(row, ended.seconds)
        if isinstance(row, FinishedRow):
            finding, folder = row.finding, findings.keep(row.finding, self.store)
            if not self.local:
                late, place = (deadline(self.left_s()), RunFolders(str(self.store), self.run_name))
                finding = self.subject.complete(finding, folder, late, place)
                findings.keep(finding, self.store)
            self._finish(finding)
            self.finished(finding, folder)

    def _keep(self, finding: Finding) -> Path:
        """Write a finding to the store. It may not have been before the command was killed."""
        self.kept[finding.bucket] = finding
        return findings.keep_unless_smaller(finding, self.store)

    def _finish(self, finding: Finding) -> None:
        """Take note that nothing is left to do with a finding."""
        self.kept[finding.bucket] = finding
        self.done.add(finding.bucket)
        if not self.settled(finding):
            del self.kept[finding.bucket]
            self.done.discard(finding.bucket)
            self._started.discard(finding.bucket)

    def _searched(self, job: Job, row: SearchedRow, seconds: float) -> None:
        before, spent = self.total.schedules, round(self.seconds(), 1)
        found: list[Finding] = []
        for finding in row.findings:
            # Another job may have found this bucket before; and if this failure is not wanted,
            # a later one of the same bucket may be.
            if finding.bucket in self.kept or not self.wanted(finding):
                drop(finding.run, self._place(""))
                continue
            number = before + finding.number - row.first
            found.append(replace(finding, schedules_before=number, seconds_before=spent))
        row.findings = found
        self._add(row, seconds)
        self.total.add(row)
        if isinstance(job, SearchJob) and row.schedules < job.count:
            rest = (row.first + row.schedules, job.count - row.schedules)
            heapq.heappush(self._left, rest)
        for finding in found:
            folder = self._keep(finding)
            if finding.shrunk:
                self.done.add(finding.bucket)
            self.report(finding, folder)

    def _add(self, row: SearchRow, seconds: float) -> None:
        row.seconds, row.worked_s = round(seconds, 2), round(self.seconds(), 2)
        self.journal.add(row)


def _tries(store: Path, finding: Finding) -> str:
    """Return the key of the job that tries a saved finding."""
    return f"saved/{findings.folder_of(store, finding).name}"


def journal_of(store: Path, subject: Subject, seed: int) -> Path:
    """Return the path of the journal of the search of a subject with a seed."""
    digest = hashlib.sha256(msgspec.json.encode(subject)).hexdigest()[:8]
    name = findings.subject_in_names(subject.name)
    return store / FOLDER / f"{name}-{seed}-{digest}.jsonl"
