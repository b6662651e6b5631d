"""The summary of a nightly run (`harness.formats.nightly_run`), computed from its journal. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from msgspec.structs import replace

from checker.formats.verdict import Verdict
from harness.formats.journal import Lost, state_of
from harness.formats.nightly_journal import AnyRow, Began, Ran, Skipped
from harness.formats.nightly_run import NightlyRun, equal_reasons, label_of
from harness.nightly import plan, rows
from harness.nightly.counting import Counting
from harness.nightly.kinds import KINDS
from harness.search.catalogue.known_bugs import correct_protocols
from harness.systems.disks import JOURNAL, kinds_on_disks
from harness.systems.floodmark.system import Floodmark
from nemesis.faults import storm_kinds
from reports import wording


def spent(lines: Iterable[AnyRow]) -> dict[str, float]:
    """Return the wall-clock seconds that each kind of work took."""
    found: dict[str, float] = {}
    for row in lines:
        if share := row.key.partition("/")[0]:
            found[share] = found.get(share, 0.0) + row.seconds
    return found


def summarise(lines: Sequence[AnyRow], store: Path, accepted: Collection[str] = ()) -> NightlyRun:
    """Return the summary of a nightly run's journal. Failures of the buckets whose keys are
    `accepted` are expected."""
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
    _count(nightly, lines, store)
    nightly.buckets = [
        replace(bucket, expected=bucket.expected or bucket.key in accepted)
        for bucket in nightly.buckets
    ]
    nightly.red = red(nightly)
    ran = [row for row in lines if isinstance(row, Ran)]
    proved = [row.key for row in ran if row.verdict in (Verdict.VALID, Verdict.INVALID)]
    stormed = {key.rpartition("/")[0].removeprefix(f"{plan.SYSTEM}/") for key in proved}
    open_systems = [label_of(each) for each in last.systems if each not in stormed]
    nightly.uncovered = uncovered(nightly, open_systems)
    return nightly


def _count(nightly: NightlyRun, lines: Sequence[AnyRow], store: Path) -> None:
    """Add all rows, in the order of the journal."""
    to = Counting(nightly, store)
    lost = [(row.key, row.sentence) for row in lines if isinstance(row, Lost)]
    nightly.totals.cut_off = len(lost)
    nightly.skipped = {row.key: row.sentence for row in lines if isinstance(row, Skipped)}
    for row in lines:
        kind = KINDS.get(row.key.partition("/")[0])
        if kind is None or isinstance(row, Lost | Skipped):
            continue
        if isinstance(row, Ran):
            nightly.totals.real_runs += 1
            to.coverage(row.fault_coverage)
        kind.count(row, to)
    to.end()
    nightly.problems += equal_reasons(lost)
    for runs in nightly.rows:
        runs.missing = nightly.skipped.get(f"{plan.ROW}/{runs.name}", "")


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
        "search": ("no schedule was searched", totals.schedules),
        "known-bug": ("no known bug was searched for", len(nightly.known_bugs)),
        "determinism": ("no schedule was run twice", totals.determinism_runs),
    }
    found = [
        sentence
        for share, (sentence, count) in parts.items()
        if share in nightly.shares and not count
    ]
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
    ours = correct_protocols() if "storm" in nightly.shares else []
    without = [name for name in ours if name not in stormed]
    if without := [*without, *systems]:
        found.append(f"no storm on real processes proved anything about {', '.join(without)}")
    if nightly.canary.result == "":
        found.append("no canary was judged")
    return found
