"""The summary of a nightly run (`harness.formats.nightly_run`), computed from its journal; the
report as a screen of text and as JUnit XML, and the exit code. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from xml.etree import ElementTree

from msgspec.structs import replace

from checker.formats.verdict import Verdict
from harness.formats.journal import Lost, state_of
from harness.formats.nightly_journal import AnyRow, Began, Ran, Skipped
from harness.formats.nightly_run import (
    Bucket,
    NightlyRun,
    equal_reasons,
    in_words,
    label_of,
    never_met,
)
from harness.nightly import plan, rows
from harness.nightly.counting import Counting
from harness.nightly.kinds import KINDS
from harness.search.catalogue.known_bugs import correct_protocols
from harness.systems.disks import JOURNAL, kinds_on_disks
from harness.systems.floodmark.system import Floodmark
from nemesis.faults import storm_kinds
from reports import wording
from reports.nightly_page import index_model


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


EXIT_GREEN: Final = 0
EXIT_RED: Final = 1
EXIT_UNFINISHED: Final = 2
EXIT_HARNESS: Final = 70
_MOST_LINES: Final = 8
_SENTENCE: Final = 160
_MOST_PAIRS: Final = 6


def exit_code(nightly: NightlyRun) -> int:
    """Return the exit code: 1 if a result is red, else 70 if the disk or the harness ended the
    nightly run, 2 if it was stopped, a part of the plan has no result, or a bucket of earlier
    nightly runs is open, 0 otherwise."""
    if nightly.red:
        return EXIT_RED
    if nightly.state in ("disk-full", "failed"):
        return EXIT_HARNESS
    well = nightly.state == "finished" and not nightly.uncovered and not nightly.open
    return EXIT_GREEN if well else EXIT_UNFINISHED


def summary(nightly_runs: Sequence[NightlyRun]) -> str:
    """Return the summary of the last of `nightly_runs` as a screen of text."""
    nightly, new = nightly_runs[-1], index_model.new_buckets(nightly_runs)
    used, budget = (wording.span(s * 1e6) for s in (nightly.used_s, nightly.budget_s))
    mark = "✗ RED" if nightly.red else "✓ GREEN" if exit_code(nightly) == EXIT_GREEN else "? OPEN"
    lines = [
        f"{mark}  nightly run {nightly.number}, {nightly.state} after {used} of {budget}; "
        f"seeds from {nightly.seed:,}",
        *(f"  {_clip(reason)}" for reason in nightly.red[:_MOST_LINES]),
        *_more(nightly.red),
        *(f"  not covered {_clip(sentence)}" for sentence in nightly.uncovered),
        *_skipped(nightly),
        *_of_shares(nightly),
        *_systems(nightly_runs),
        *(f"  row         {_clip(str(row))}" for row in nightly.rows),
        f"  canary      {_canary(nightly)}",
        f"  buckets     {_buckets(nightly.buckets, new)}",
    ]
    if nightly.open:
        left = wording.count(len(nightly.open), "bucket")
        lines.append(
            f"  still open  {left} of earlier runs, not met again and not seen fixed; the first: "
            f"{_clip(nightly.open[0])}"
        )
    if nightly.proved_nothing:
        lines.append(
            f"  no proof    {wording.count(len(nightly.proved_nothing), 'real run')}; the first: "
            f"{_clip(nightly.proved_nothing[0])}"
        )
    if nightly.problems:
        lines.append(
            f"  problems    {len(nightly.problems)}; the first: {_clip(nightly.problems[0])}"
        )
    return "\n".join(lines)


def _of_shares(nightly: NightlyRun) -> list[str]:
    """Format what was done with the broker of floodmark, a line for each share of the plan."""
    totals = nightly.totals
    never = never_met(nightly.coverage, nightly.kinds)
    lines = [
        (
            "search",
            f"search      {totals.schedules:,} schedules, {totals.schedules_per_s:.1f}/s, "
            f"{totals.virtual_seconds:,.0f} virtual seconds; {totals.failures:,} failures",
        ),
        ("search", f"not tried   {in_words(never, _MOST_PAIRS) or 'nothing'}"),
        ("known-bug", f"known bugs  {_known_bugs(nightly)}"),
        ("storm", f"storms      {totals.storms} on real processes: {_storms(nightly)}"),
        ("replay", f"replays     {totals.replays_met} of {totals.replays} as expected"),
        (
            "determinism",
            f"determinism {totals.determinism_runs} schedules run twice, "
            f"{len(nightly.differing)} differed",
        ),
    ]
    return [f"  {line}" for share, line in lines if share in nightly.shares]


def _skipped(nightly: NightlyRun) -> list[str]:
    """Format the work that could not be done here, a line for each reason."""
    reasons = equal_reasons(nightly.skipped.items())
    lines = [f"  not run     {_clip(reason)}" for reason in reasons]
    return [*lines[:_MOST_LINES], *_more(lines)]


class _Case(NamedTuple):
    """A case of JUnit, and what is `said` of it. `failed` or `skipped` is its message, "" for both
    if it passed."""

    group: str
    name: str
    said: str = ""
    failed: str = ""
    skipped: str = ""


def junit(nightly_runs: Sequence[NightlyRun]) -> bytes:
    """Return the last of `nightly_runs` as JUnit XML. It has a case for each protocol and kind of
    work, and one for each class of failure of a protocol that is expected to hold."""
    nightly = nightly_runs[-1]
    cases = list(_cases(nightly, index_model.new_buckets(nightly_runs)))
    root = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(
        root,
        "testsuite",
        name=f"floodmark nightly run {nightly.number}",
        tests=str(len(cases)),
        failures=str(sum(bool(case.failed) for case in cases)),
        skipped=str(sum(bool(case.skipped) for case in cases)),
        time=f"{nightly.used_s:.1f}",
        timestamp=nightly.started,
    )
    for case in cases:
        tag = "failure" if case.failed else "skipped" if case.skipped else "system-out"
        about = {"classname": f"floodmark.{case.group}", "name": _printable(case.name)}
        result = ElementTree.SubElement(ElementTree.SubElement(suite, "testcase", about), tag)
        if message := case.failed or case.skipped:
            result.set("message", _printable(message))
        result.text = _printable(case.said)
    ElementTree.indent(root)
    made: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return made + b"\n"


def _cases(nightly: NightlyRun, new: set[str]) -> Iterator[_Case]:
    for cell in nightly.cells:
        kind = "search" if cell.world == "simulated" else "storms and replays"
        said = ", ".join(f"{number:,} {verdict}" for verdict, number in cell.verdicts.items())
        done = f"{wording.count(cell.runs, 'run')}: {said}"
        yield _Case(cell.protocol, f"{kind} ({cell.world})", done)
    for bucket in (bucket for bucket in nightly.buckets if not bucket.expected):
        age = "new in this run" if bucket.key in new else "known"
        failed = f"{age}, {wording.count(bucket.count, 'time')}: {bucket.property}"
        where = f"{bucket.sentence}\n{bucket.replay}\n{bucket.page}"
        yield _Case(f"{bucket.protocol}.buckets", f"{bucket.key} {bucket.name}", where, failed)
    canary = nightly.canary
    missed = "canary did not fail" if canary.result == "missed" else ""
    no_canary = "" if canary.result else "no canary was judged"
    yield _Case("nightly", "canary", canary.sentence, missed, no_canary)
    for row in nightly.rows:
        state = {False: {"failed": str(row)}, None: {"skipped": str(row)}}
        yield _Case("rows", row.name, str(row), **state.get(row.holds, {}))
    for work, sentence in nightly.skipped.items():
        yield _Case("skipped", work, skipped=sentence)
    twice = f"{nightly.totals.determinism_runs} schedules run twice"
    unmet = [u.file for u in nightly.unmet if u.world == "simulated" and not u.is_finding]
    for name, done, wrong in (
        ("coverage", "", nightly.uncovered),
        ("determinism", twice, nightly.differing),
        ("corpus", f"{nightly.totals.replays} replays", unmet),
    ):
        yield _Case("nightly", name, "\n".join(wrong) or done, *wrong[:1])
    if nightly.open:
        left = wording.count(len(nightly.open), "bucket")
        skipped = f"{left} of earlier nightly runs not met again"
        yield _Case("nightly", "still open", "\n".join(nightly.open), skipped=skipped)


def _printable(text: str) -> str:
    """Return a text without the control characters that XML cannot hold."""
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)


def _known_bugs(nightly: NightlyRun) -> str:
    found = [search for search in nightly.known_bugs if search.found]
    if not nightly.known_bugs:
        return "none was searched for"
    slowest = max(nightly.known_bugs, key=lambda search: search.seconds)
    return (
        f"{len(found)} of {len(nightly.known_bugs)} found; the longest search, {slowest.code}, "
        f"{'took' if slowest.found else 'was given'} {slowest.seconds:.0f} s"
    )


def _systems(nightly_runs: Sequence[NightlyRun]) -> list[str]:
    """Return a line for each version of a third-party system, and the differences between them."""
    lines = []
    for one in nightly_runs[-1].systems:
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in one.verdicts.items())
        failed = wording.rate(one.verdicts.get("invalid", 0), one.runs)
        storms = wording.count(one.runs, "storm")
        lines.append(f"  system      {one.name}: {storms}: {verdicts}; fails in {failed}")
    compared = index_model.versions_compared(nightly_runs) if lines else []
    lines += [f"  versions    {each.words}" for each in compared]
    return [*lines[:_MOST_LINES], *_more(lines)]


def _storms(nightly: NightlyRun) -> str:
    others = {one.name for one in nightly.systems}
    counts: dict[str, int] = {}
    for cell in nightly.cells:
        ours = cell.world == "real" and cell.protocol not in others
        for verdict, count in cell.verdicts.items() if ours else ():
            counts[verdict] = counts.get(verdict, 0) + count
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items()) or "none"


def _canary(nightly: NightlyRun) -> str:
    match nightly.canary.result:
        case "failed":
            return f"failed, as it must ({nightly.canary.bug})"
        case "missed":
            return "DID NOT FAIL: the nightly run proves nothing"
    return "not judged" if nightly.real else "none was wanted"


def _buckets(buckets: Sequence[Bucket], new: set[str]) -> str:
    if not buckets:
        return "none"
    unexpected = [b for b in buckets if not b.expected]
    fresh = [b for b in unexpected if b.key in new]
    return (
        f"{len(unexpected)} on protocols expected to hold, {len(fresh)} of them new; "
        f"{len(buckets) - len(unexpected)} expected, "
        f"{sum(b.key in new for b in buckets if b.expected)} of them new"
    )


def _more(lines: Sequence[str]) -> list[str]:
    left = len(lines) - _MOST_LINES
    return [f"  and {left} more"] if left > 0 else []


def _clip(text: str) -> str:
    return wording.clip(text, _SENTENCE)
