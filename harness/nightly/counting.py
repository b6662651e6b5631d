"""The counts of a nightly run, to which each kind of work adds the rows of its jobs, and the choice
of the run folders that are kept over all nightly runs.

The journal has the row of every run. A folder (tens of megabytes) is kept only if the run failed,
and only a few for each class of failure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from checker.formats.verdict import Verdict
from harness.formats.journal import add_to
from harness.formats.nightly_journal import Ran, Replayed, journal_of, numbers, read
from harness.formats.nightly_run import Bucket, NightlyRun, Unmet, VerdictCounts, bucket_of
from harness.nightly import plan
from harness.nightly.plan import CANARY
from harness.runs.run_folder import remove
from node.formats.errors import StorageError

OURS = "nightly-"
"""The prefix of the names of nightly runs' run folders."""


def prune(store: Path, most: int) -> None:
    """Remove folders of real runs until at most `most` of each class of failure are left: one with
    the fewest faults, and the newest. Unreadable journals keep theirs."""
    of_class: dict[tuple[str, ...], list[Ran]] = {}
    for number in reversed(numbers(store)):
        try:
            rows = [row for row in read(journal_of(store, number)) if isinstance(row, Ran)]
        except StorageError:
            continue
        for row in reversed(rows):
            if row.kept.startswith(OURS) and (store / row.kept).is_dir():
                of_class.setdefault(_class(row), []).append(row)
    for newest in of_class.values():
        # The index shows this one.
        newest.remove(smallest := min(newest, key=lambda row: row.faults))
        for row in [smallest, *newest][most:]:
            remove(store / row.kept, store)


def _class(run: Ran) -> tuple[str, ...]:
    if run.why == CANARY:
        return (CANARY,)
    if run.verdict == Verdict.INVALID:
        return real_class(run)[:3]
    return (run.protocol, run.verdict)


class Counting:
    """A nightly run whose rows are being counted."""

    def __init__(self, nightly: NightlyRun, store: Path) -> None:
        self.nightly = nightly
        self.totals = nightly.totals
        self.store = store
        self._cells: dict[tuple[str, str], VerdictCounts] = {}
        self._buckets: dict[str, Bucket] = {}

    def end(self) -> None:
        """Complete the nightly run after the last row."""
        order = [(b.expected, b.protocol, b.name, b.world, b) for b in self._buckets.values()]
        self.nightly.cells = list(self._cells.values())
        self.nightly.buckets = [bucket for *_, bucket in sorted(order, key=lambda one: one[:4])]

    def cell(
        self, protocol: str, world: str, runs: int, verdicts: Mapping[str, int]
    ) -> VerdictCounts:
        """Count runs of a protocol in a world; return all of them."""
        cell = self._cells.setdefault(
            (protocol, world), VerdictCounts(protocol=protocol, world=world)
        )
        cell.runs += runs
        for verdict, count in verdicts.items():
            add_to(cell.verdicts, verdict, count)
        return cell

    def coverage(self, counts: Mapping[str, int]) -> None:
        """Count which faults met which states."""
        for name, count in counts.items():
            add_to(self.nightly.coverage, name, count)

    def bucket(self, bucket: Bucket, count: int) -> None:
        """Add failures to their bucket, which keeps the smaller description with a schedule."""
        known = self._buckets.get(bucket.key)
        shown = bucket
        if known is not None and _rank(known) <= _rank(bucket):
            shown = known
        total = count + (known.count if known else 0)
        self._buckets[bucket.key] = msgspec.structs.replace(shown, count=total)

    def unmet(self, row: Replayed | Ran, world: str, *, is_finding: bool = False) -> None:
        """Add a replay that did not do what its schedule expects."""
        about = f" ({row.expectation.property})" if row.expectation.property else ""
        self.nightly.unmet.append(
            Unmet(
                file=row.file,
                world=world,
                expected=f"{row.expectation.verdict}{about}",
                verdict=row.verdict,
                sentence=row.sentence,
                is_finding=is_finding,
            )
        )

    def real_run(self, run: Ran) -> None:
        """Count the verdict of a run of real processes."""
        if not run.bugs:
            cell = self.cell(run.protocol, "real", 1, {run.verdict: 1})
            for name in run.broken:
                add_to(cell.broken, name)
        if run.verdict == Verdict.INVALID:
            self._real_bucket(run)
        elif run.verdict != Verdict.VALID:
            self.nightly.proved_nothing.append(f"{run.key}: {run.sentence}")

    def _real_bucket(self, run: Ran) -> None:
        under, _, name, news = real_class(run)
        about: dict[str, Any] = {"expected": not news, "sentence": run.sentence}
        if run.kept:
            command = ("floodmark", "run", *run.options, "--schedule", run.kept)
            about |= {
                "faults": run.faults,
                "schedule": f"{run.kept}/schedule.json",
                "replay": shlex.join(command),
                "page": f"{run.kept}/report.html",
            }
        self.bucket(bucket_of(under, "real", name, **about), 1)


class RealClass(NamedTuple):
    """The class of failure of a real run. `news`: it was not expected."""

    protocol: str
    property: str
    name: str
    news: bool


def real_class(run: Ran) -> RealClass:
    """Return the class of a failed real run: an unexpected broken property comes first."""
    # If it breaks an expected and an unexpected property, the unexpected one counts.
    news = [p for p in run.broken if not plan.is_expected_of(run, [p])]
    about = next(iter([*news, *run.broken]), "?")
    under = "+".join((run.protocol, *run.bugs))
    return RealClass(under, about, f"{about}: {run.broken.get(about, '?')}", bool(news))


def _rank(bucket: Bucket) -> tuple[bool, bool, int]:
    """Rank buckets; the first is shown: with a schedule, with a page, and of few faults."""
    return (not bucket.schedule, not bucket.page, bucket.faults)
