"""The jobs of a search: draw and run schedules, try a saved finding again, finish a finding."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from harness.formats.finding import Finding
from harness.formats.journal import FinishedRow, SearchedRow, add_to
from harness.search import findings
from harness.search.shrink.shrinker import shrink
from harness.search.worlds.outcome import ScheduleOutcome
from harness.search.worlds.subject import Drawn, RunFolders, Subject, deadline, drop
from harness.sim.run import batched_collections

MOST_BUCKETS: Final = 100
"""The largest number of buckets that a search shrinks: more means a plainly broken protocol."""


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
    place: RunFolders = RunFolders()

    def do(self) -> SearchedRow:
        subject, began_s = self.subject, time.process_time()
        row = _row(self.key, subject, self.seed, self.first)
        known, is_late = set(self.known), deadline(self.seconds)
        with batched_collections():
            for number in range(self.first, self.first + self.count):
                for drawn in subject.runs(self.seed, number, known, self.place):
                    bucket = subject.bucket(drawn.outcome)
                    count(row, drawn.outcome, bucket)
                    if bucket and bucket not in known and len(known) < MOST_BUCKETS:
                        known.add(bucket)
                        place = {"seed": self.seed, "number": number}
                        row.findings.append(replace(subject.finding(drawn), **place))
                    elif _is_unknown(drawn.outcome) and len(row.unknown_runs) < self.unknown:
                        row.unknown_runs.append(drawn.outcome.folder)
                    else:
                        drop(drawn.outcome.folder, self.place)
                row.schedules += 1
                if row.findings or is_late():
                    break
        row.core_s = round(time.process_time() - began_s, 2)
        return row


class SavedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that runs the smallest schedule of a saved finding until it fails again, to find what
    is known before anything is drawn."""

    key: str
    subject: Subject
    finding: Finding
    place: RunFolders

    def do(self) -> SearchedRow:
        saved = self.finding
        row = _row(self.key, self.subject, saved.seed, 0)
        for _ in range(self.subject.most_runs):
            outcome = self.subject.run(saved.smallest, self.place)
            bucket = self.subject.bucket(outcome)
            count(row, outcome, bucket)
            if bucket:
                shown = self.subject.finding(Drawn(saved.family, saved.smallest, outcome))
                about = {"run": shown.run, "sentence": shown.sentence, "version": shown.version}
                again = replace(saved, number=0, **about)
                row.findings.append(again if bucket == saved.bucket else shown)
                break
            drop(outcome.folder, self.place)
        return row


class FinishJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that shrinks and completes a finding, for at most `seconds` (0: no limit). The finding
    is saved in the store of its place meanwhile; without a store it is only shrunk. `form`
    asks for a form for real processes, `page` for a page."""

    key: str
    subject: Subject
    finding: Finding
    seconds: float = 0.0
    tries: int = 0
    place: RunFolders = RunFolders()
    form: bool = True
    page: bool = False

    def do(self) -> FinishedRow:
        subject, place, store = self.subject, self.place, Path(self.place.store)
        is_late = deadline(self.seconds)
        # Shrinking gets one half of the time, the rest what follows.
        until = deadline(self.seconds / 2)
        finding = self.finding
        if not finding.shrunk:
            finding = shrink(finding, subject, place, stop=until, tries=self.tries)
        if not place.store:
            return FinishedRow(key=self.key, finding=finding)
        folder = findings.keep(finding, store)
        finding = subject.complete(finding, folder, is_late, place, form=self.form)
        findings.keep(finding, store)
        page = findings.build_page(folder) if self.page else None
        return FinishedRow(
            key=self.key,
            finding=finding,
            folder=str(folder.relative_to(store)),
            page="" if page is None else str(page.relative_to(store)),
        )


AnySearchJob = SearchJob | SavedJob | FinishJob


def _row(key: str, subject: Subject, seed: int, first: int) -> SearchedRow:
    """Return the row of a job that has not run anything yet."""
    generator = subject.generator
    return SearchedRow(key=key, subject=subject.name, seed=seed, first=first, generator=generator)


def _is_unknown(outcome: ScheduleOutcome) -> bool:
    """Return whether a run left a folder and could not be judged."""
    return bool(outcome.folder) and not outcome.failed


def count(row: SearchedRow, outcome: ScheduleOutcome, bucket: str) -> None:
    """Add the result of one run to a row; `bucket` is "" if the run did not fail."""
    row.runs += 1
    row.virtual_us += outcome.virtual_us
    row.events += outcome.events
    row.run_seconds += outcome.seconds
    if outcome.verdict:
        add_to(row.verdicts, outcome.verdict)
    for name in outcome.fault_coverage:
        add_to(row.fault_coverage, name)
    if outcome.problem:
        row.add_problem(outcome.problem)
    if bucket:
        row.failures += 1
        add_to(row.buckets, bucket)
