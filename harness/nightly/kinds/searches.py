"""The searches of a nightly run: of the protocols that should hold, and for the known bugs."""

from __future__ import annotations

from collections import Counter
from typing import Final

from harness.formats.journal import FinishedRow, SearchedRow, add_to
from harness.formats.nightly_run import Bucket, TimeToBug, bucket_of
from harness.nightly import corpus
from harness.nightly.counting import Counting
from harness.nightly.night import Kind
from harness.search import findings
from harness.search.catalogue.known_bugs import correct_protocols, search_targets
from harness.search.jobs import Job
from harness.search.search_jobs import FinishJob, SearchJob
from harness.search.worlds.simulated import CHUNK, BugSubject, SimulatedSubject
from harness.search.worlds.subject import RunFolders

LEAST_FINISH_S: Final = 60.0
"""The time that shrinking and explaining a finding may take even after the budget."""


class Searches(Kind):
    """The search of protocols that should hold, alternately. Findings are shrunk first."""

    name = "search"

    def jobs(self) -> list[Job]:
        return self._finish_jobs() or self._search_jobs()

    def _search_jobs(self) -> list[Job]:
        night, held, known = self.night, correct_protocols(), self._known()
        return [
            SearchJob(
                key=f"{self.name}/{number}",
                subject=SimulatedSubject(protocol=protocol),
                seed=night.seed + number,
                first=0,
                count=night.request.job_schedules or CHUNK,
                known=tuple(sorted(known.get(protocol, ()))),
                seconds=min(night.request.job_s, night.left_s()),
            )
            for number in night.open_numbers(self.name, night.request.cores)
            for protocol in [held[number % len(held)]]
        ]

    def _finish_jobs(self) -> list[Job]:
        """Return the jobs that shrink and explain what was found, the first with a page."""
        night, done, rows = self.night, self.night.journal.done(), self.night.rows(self.name)
        pages = night.request.pages
        pages -= sum(bool(row.page) for row in rows if isinstance(row, FinishedRow))
        found: list[Job] = []
        for row in (row for row in rows if isinstance(row, SearchedRow)):
            for finding in row.findings:
                folder = findings.folder_of(night.store, finding)
                if (key := f"{self.name}/finding/{folder.name}") in done:
                    continue
                found.append(
                    FinishJob(
                        key=key,
                        subject=SimulatedSubject(protocol=row.subject),
                        finding=findings.latest(night.store, finding),
                        seconds=max(LEAST_FINISH_S, night.left_s()),
                        tries=night.request.shrink_tries,
                        place=RunFolders(str(night.store)),
                        page=len(found) < pages,
                    )
                )
        return found[: night.request.cores]

    def _known(self) -> dict[str, set[str]]:
        """Return by protocol the buckets that still have a schedule; others count as new."""
        known: dict[str, set[str]] = {}
        for bucket in (bucket for nightly in self.night.past for bucket in nightly.buckets):
            if bucket.schedule and (self.night.store / bucket.schedule).is_file():
                known.setdefault(bucket.protocol, set()).add(bucket.name)
        for row in self.night.rows(self.name):
            if isinstance(row, SearchedRow):
                known.setdefault(row.subject, set()).update(f.bucket for f in row.findings)
        return known

    def done(self, row: SearchedRow | FinishedRow) -> SearchedRow | FinishedRow:
        """Keep the new buckets among the findings of a search: two jobs may find the same one."""
        if isinstance(row, SearchedRow):
            known = self._known().get(row.subject, ())
            row.findings = [finding for finding in row.findings if finding.bucket not in known]
            for finding in row.findings:
                findings.keep(finding, self.night.store)
                self.night.environment.tell(f"{row.subject}: {finding.bucket}")
        return row

    @staticmethod
    def count(row: SearchedRow | FinishedRow, to: Counting) -> None:
        if isinstance(row, FinishedRow):
            bucket = corpus.bucket_of(row.finding, row.folder, row.page, to.store)
            to.bucket(bucket, 0)
            return
        totals = to.totals
        totals.schedules += row.runs
        totals.search_seconds = round(totals.search_seconds + row.seconds, 2)
        totals.virtual_seconds = round(totals.virtual_seconds + row.virtual_us / 1e6, 1)
        totals.events += row.events
        totals.failures += row.failures
        verdicts = {"invalid": row.failures, "not invalid": row.runs - row.failures}
        cell = to.cell(row.subject, "simulated", row.runs, verdicts)
        kept: dict[str, Bucket] = {}
        for finding in row.findings:
            folder = findings.folder_of(to.store, finding).relative_to(to.store)
            bucket = corpus.bucket_of(finding, str(folder), "", to.store)
            kept[bucket.name] = bucket
        for name, number in row.buckets.items():
            bucket = kept.get(name) or bucket_of(row.subject, "simulated", name)
            add_to(cell.broken, bucket.property, number)
            to.bucket(bucket, number)
        to.coverage(row.fault_coverage)
        to.nightly.problems += [f"{row.key}: {problem}" for problem in row.problems]


class KnownBugs(Kind):
    """The search for each known bug, those with the fewest searches in all nightly runs first."""

    name = "known-bug"

    def jobs(self) -> list[Job]:
        night = self.night
        counts = Counter(search.code for nightly in night.past for search in nightly.known_bugs)
        counts.update(r.subject for r in night.rows(self.name) if isinstance(r, SearchedRow))
        targets = sorted(search_targets(), key=lambda target: counts[target.code])
        numbers = night.open_numbers(self.name, night.request.cores)
        return [
            SearchJob(
                key=f"{self.name}/{number}",
                subject=BugSubject.of(target),
                seed=night.seed + number,
                first=0,
                count=CHUNK,
                seconds=min(night.request.known_bug_s, night.left_s()),
            )
            for number, target in zip(numbers, targets, strict=False)
        ]

    @staticmethod
    def count(row: SearchedRow, to: Counting) -> None:
        for target in (t for t in search_targets() if t.code == row.subject):
            to.nightly.known_bugs.append(
                TimeToBug(
                    code=target.code,
                    name=target.name,
                    protocol=target.protocol,
                    breaks=target.breaks,
                    found=bool(row.findings),
                    schedules=row.schedules,
                    seconds=row.core_s,
                )
            )
