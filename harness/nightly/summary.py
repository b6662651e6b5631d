"""The summary of a nightly run (`harness.formats.nightly_run`), computed from its journal. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from checker.formats.verdict import Verdict
from harness.formats.journal import Finished, Lost, Searched, state_of
from harness.formats.nightly_journal import (
    AnyRow,
    Began,
    DeterminismChecked,
    Ran,
    Replayed,
    Skipped,
)
from harness.formats.nightly_run import (
    Bucket,
    Canary,
    NightlyRun,
    RowRuns,
    Storms,
    SystemStorms,
    TimeToBug,
    Totals,
    Unmet,
    VerdictCounts,
    bucket_of,
    equal_reasons,
    label_of,
)
from harness.nightly import corpus, plan, rows
from harness.replay.replay import has_failed
from harness.search import findings
from harness.search.catalogue.known_bugs import correct_protocols, search_targets
from harness.systems.disks import JOURNAL, kinds_on_disks
from harness.systems.floodmark.system import Floodmark
from nemesis.faults import storm_kinds
from reports import wording

CANARY: Final = "canary"
_CANARY_RESULTS: Final = {Verdict.INVALID.value: "failed", Verdict.UNKNOWN.value: ""}


def spent(lines: Iterable[AnyRow]) -> dict[str, float]:
    """Return the wall-clock seconds that each kind of work took."""
    found: dict[str, float] = {}
    for row in lines:
        if share := row.key.partition("/")[0]:
            found[share] = found.get(share, 0.0) + row.seconds
    return found


def summarise(lines: Sequence[AnyRow], past: Sequence[NightlyRun], store: Path) -> NightlyRun:
    """Return the summary of a nightly run's journal; `past` are the earlier runs of the store."""
    first = next(row for row in lines if isinstance(row, Began))
    last = [row for row in lines if isinstance(row, Began)][-1]
    nightly = NightlyRun(
        number=first.number,
        seed=first.seed,
        state=state_of(lines),
        started=first.started,
        budget_s=last.budget_s,
        used_s=max(row.worked_s for row in lines),
        cores=last.cores,
        machine=last.machine,
        real=last.real,
        shares=plan.shares(last.systems_share, last.rows_share),
        expected=plan.expected(),
        spent={name: round(seconds, 1) for name, seconds in spent(lines).items()},
        kinds=tuple(
            k for k in storm_kinds() if k in Floodmark.faults and k in kinds_on_disks(JOURNAL)
        ),
    )
    if last.rows_share:
        nightly.rows = [row.runs() for row in rows.table()]
    _Adding(nightly, lines, past, store).all()
    nightly.red = red(nightly)
    ran = [row for row in lines if isinstance(row, Ran)]
    proved = [row.key for row in ran if row.verdict in (Verdict.VALID, Verdict.INVALID)]
    stormed = {key.rpartition("/")[0].removeprefix(f"{plan.SYSTEM}/") for key in proved}
    open_systems = [label_of(each) for each in last.systems if each not in stormed]
    nightly.uncovered = uncovered(nightly, open_systems)
    return nightly


def red(nightly: NightlyRun) -> list[str]:
    """Return why a nightly run is red, one sentence each; an empty list if it is not."""
    found = [
        f"{b.protocol} broke {b.property}, which it is expected to hold: {b.name} "
        f"({wording.count(b.count, 'time')}, {b.world})"
        for b in nightly.buckets
        if not b.expected
    ]
    if nightly.canary.result == "missed":
        found.append(f"canary did not fail: {nightly.canary.sentence}")
    found += [f"not deterministic: {line}" for line in nightly.differing]
    found += [
        f"{u.file} is expected to be {u.expected} in the simulated world and was {u.verdict}"
        for u in nightly.unmet
        if u.world == "simulated" and not u.is_finding
    ]
    found += [f"row does not hold: {row}" for row in nightly.rows if row.holds is False]
    return found


def uncovered(nightly: NightlyRun, systems: Sequence[str]) -> list[str]:
    """Return the parts of the plan of a nightly run that have no result, one sentence each.
    `systems` are the third-party systems of which no storm has a verdict."""
    totals = nightly.totals
    parts = {
        "no schedule was searched": totals.schedules,
        "no known bug was searched for": len(nightly.known_bugs),
        "no schedule was run twice": totals.determinism_runs,
    }
    found = [sentence for sentence, count in parts.items() if not count]
    if left := [row for row in nightly.rows if row.holds is None]:
        more = f" (and {wording.count(len(left) - 1, 'more row')})" if left[1:] else ""
        found.append(f"row is open: {left[0]}{more}")
    if not nightly.real:
        return found
    proved = {
        cell.protocol
        for cell in nightly.cells
        if cell.world == "real"
        and (cell.verdicts.get(Verdict.VALID) or cell.verdicts.get(Verdict.INVALID))
    }
    stormed = {storms.protocol for storms in nightly.storms} & proved
    without = [name for name in correct_protocols() if name not in stormed]
    if without := [*without, *systems]:
        found.append(f"no storm on real processes proved anything about {', '.join(without)}")
    if nightly.canary.result == "":
        found.append("no canary was judged")
    return found


class _Adding:
    """Adds row after row to a nightly run."""

    def __init__(
        self, nightly: NightlyRun, lines: Sequence[AnyRow], past: Sequence[NightlyRun], store: Path
    ) -> None:
        self._store = store
        self._nightly = nightly
        self._lines = lines
        self._totals: Totals = nightly.totals
        self._cells: dict[tuple[str, str], VerdictCounts] = {}
        self._storms: dict[tuple[str, str], Storms] = {}
        self._systems: dict[str, SystemStorms] = {}
        self._buckets: dict[str, Bucket] = {}
        self._saved = {b.schedule: b for other in past for b in other.buckets if b.schedule}

    def all(self) -> None:
        """Add all rows, in the order of the journal."""
        lost = [(row.key, row.sentence) for row in self._lines if isinstance(row, Lost)]
        for row in self._lines:
            match row:
                case Searched() if row.key.startswith("known-bug/"):
                    self._known_bug_searched(row)
                case Searched():
                    self._searched(row)
                case Finished():
                    bucket = corpus.bucket_of(row.finding, row.folder, row.page, self._store)
                    self._saved[bucket.schedule] = bucket
                    self._bucket(bucket, 0)
                case DeterminismChecked():
                    self._determinism(row)
                case Replayed():
                    self._replayed(row)
                case Ran():
                    self._ran(row)
                case Lost():
                    self._totals.cut_off += 1
                case Skipped():
                    self._nightly.skipped[row.key] = row.sentence
                    if (about := self._row_of(row.key)) is not None:
                        about.missing = row.sentence
        self._nightly.problems += equal_reasons(lost)
        nightly = self._nightly
        nightly.cells, nightly.storms = list(self._cells.values()), list(self._storms.values())
        nightly.systems = list(self._systems.values())
        nightly.buckets = sorted(
            self._buckets.values(), key=lambda b: (b.expected, b.protocol, b.name, b.world)
        )

    def _cell(self, protocol: str, world: str) -> VerdictCounts:
        return self._cells.setdefault(
            (protocol, world), VerdictCounts(protocol=protocol, world=world)
        )

    def _searched(self, row: Searched) -> None:
        totals = self._totals
        totals.schedules += row.runs
        totals.search_seconds = round(totals.search_seconds + row.seconds, 2)
        totals.virtual_seconds = round(totals.virtual_seconds + row.virtual_us / 1e6, 1)
        totals.events += row.events
        totals.failures += row.failures
        cell = self._cell(row.protocol, "simulated")
        cell.runs += row.runs
        _count(cell.verdicts, "invalid", row.failures)
        _count(cell.verdicts, "not invalid", row.runs - row.failures)
        kept: dict[str, Bucket] = {}
        for finding in row.findings:
            folder = findings.folder_of(self._store, finding).relative_to(self._store)
            bucket = corpus.bucket_of(finding, str(folder), "", self._store)
            kept[bucket.name] = self._saved[bucket.schedule] = bucket
        for name, count in row.buckets.items():
            made = kept.get(name) or bucket_of(row.protocol, "simulated", name)
            _count(cell.broken, made.property, count)
            self._bucket(made, count)
        for name, count in row.fault_coverage.items():
            _count(self._nightly.coverage, name, count)
        self._nightly.problems += [f"{row.key}: {p}" for p in row.problems]

    def _bucket(self, bucket: Bucket, count: int) -> None:
        """Add failures to their bucket, which keeps the smaller description with a schedule."""
        known = self._buckets.get(bucket.key)
        shown = bucket
        if known is not None and _rank(known) <= _rank(bucket):
            shown = known
        total = count + (known.count if known else 0)
        self._buckets[bucket.key] = msgspec.structs.replace(shown, count=total)

    def _known_bug_searched(self, row: Searched) -> None:
        target = next((t for t in search_targets() if t.code == row.protocol), None)
        if target is None:
            return
        self._nightly.known_bugs.append(
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

    def _determinism(self, row: DeterminismChecked) -> None:
        self._totals.determinism_runs += row.runs
        self._nightly.differing += [
            f"{row.protocol}, schedule {schedule.digest()} of seed {row.seed} came out otherwise "
            "the second time"
            for schedule in row.differing
        ]

    def _replayed(self, row: Replayed) -> None:
        self._totals.replays += 1
        self._totals.replays_met += row.met
        bucket = self._finding(row)
        if not row.met:
            self._unmet(row, "simulated", is_finding=bucket is not None)
        elif bucket is not None:
            # It was found on a protocol that should hold, and it still fails.
            self._bucket(bucket, 1)

    def _finding(self, row: Replayed) -> Bucket | None:
        """Return the bucket of a replayed schedule that a protocol should hold, if any."""
        for schedule, bucket in self._saved.items():
            folder = schedule.rpartition("/")[0]
            if folder and row.file.endswith(folder):
                return None if bucket.expected else bucket
        about = [row.expectation.property] if row.expectation.property else []
        if not row.found or plan.is_expected(row.protocol, about, row.bugs):
            return None
        return corpus.found(row.file, row.protocol, row.found, row.faults, row.sentence)

    def _unmet(self, row: Replayed | Ran, world: str, *, is_finding: bool = False) -> None:
        about = f" ({row.expectation.property})" if row.expectation.property else ""
        self._nightly.unmet.append(
            Unmet(
                file=row.file,
                world=world,
                expected=f"{row.expectation.verdict}{about}",
                verdict=row.verdict,
                sentence=row.sentence,
                is_finding=is_finding,
            )
        )

    def _ran(self, run: Ran) -> None:
        self._totals.real_runs += 1
        for name, count in run.fault_coverage.items():
            _count(self._nightly.coverage, name, count)
        page = f"{run.kept}/report.html" if run.kept else ""
        if run.why == CANARY:
            self._nightly.canary = Canary(
                result=_CANARY_RESULTS.get(run.verdict, "missed"),
                bug=", ".join(run.bugs),
                sentence=run.sentence,
                seconds=run.seconds,
            )
            return
        if run.why == "storm":
            self._totals.storms += 1
            storm = self._storms.setdefault(
                (run.protocol, run.kinds), Storms(protocol=run.protocol, kinds=run.kinds)
            )
            storm.runs += 1
        elif run.why == plan.SYSTEM:
            self._system(run)
        elif run.why == plan.ROW:
            if (row := self._row_of(run.key.rpartition("/")[0])) is not None:
                row.add(run.verdict, run.lost, run.version)
            return
        else:
            self._totals.replays += 1
        failed = has_failed(run.expectation, Verdict(run.verdict), tuple(run.broken))
        met = (
            failed
            if run.expectation.verdict == "invalid"
            else (run.expectation.verdict in ("any", run.verdict))
        )
        if run.why == "replay":
            self._totals.replays_met += met
            if not met:
                self._unmet(run, "real")
        if not run.bugs:
            cell = self._cell(run.protocol, "real")
            cell.runs += 1
            _count(cell.verdicts, run.verdict, 1)
            for name in run.broken:
                _count(cell.broken, name, 1)
        if run.verdict == Verdict.INVALID:
            self._real_bucket(run, page)
        elif run.verdict != Verdict.VALID:
            self._nightly.proved_nothing.append(f"{run.key}: {run.sentence}")

    def _row_of(self, key: str) -> RowRuns | None:
        """Return the row that a key names, if it is still in the table."""
        share, _, name = key.partition("/")
        named = [row for row in self._nightly.rows if share == plan.ROW and row.name == name]
        return next(iter(named), None)

    def _system(self, run: Ran) -> None:
        """Count a storm on another system."""
        known = self._systems.setdefault(
            run.protocol, SystemStorms(system=run.system, version=run.version, given=run.given)
        )
        known.runs += 1
        _count(known.verdicts, run.verdict, 1)
        if run.verdict == Verdict.INVALID:
            _count(known.buckets, real_class(run).name, 1)

    def _real_bucket(self, run: Ran, page: str) -> None:
        under, _, name, news = real_class(run)
        bucket = bucket_of(
            under,
            "real",
            name,
            expected=not news,
            sentence=run.sentence,
            faults=run.faults if run.kept else -1,
            schedule=f"{run.kept}/schedule.json" if run.kept else "",
            replay=shlex.join(("floodmark", "run", *run.options, "--schedule", run.kept))
            if run.kept
            else "",
            page=page,
        )
        self._bucket(bucket, 1)


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


def _count(counts: dict[str, int], name: str, count: int) -> None:
    if count:
        counts[name] = counts.get(name, 0) + count
