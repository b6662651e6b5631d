"""The report of a nightly run: a screen of text, JUnit XML, and the exit code. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from xml.etree import ElementTree

from harness.formats import not_tried
from harness.formats.nightly_run import Bucket, NightlyRun, equal_reasons
from reports import wording
from reports.nightly_page import index_model

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
    never = not_tried.never_met(nightly.coverage, nightly.kinds)
    lines = [
        (
            "search",
            f"search      {totals.schedules:,} schedules, {totals.schedules_per_s:.1f}/s, "
            f"{totals.virtual_seconds:,.0f} virtual seconds; {totals.failures:,} failures",
        ),
        ("search", f"not tried   {not_tried.in_words(never, _MOST_PAIRS) or 'nothing'}"),
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


def junit(nightly_runs: Sequence[NightlyRun]) -> bytes:
    """Return the last of `nightly_runs` as JUnit XML. It has a case for each protocol and kind of
    work, and one for each class of failure of a protocol that is expected to hold."""
    nightly = nightly_runs[-1]
    new = index_model.new_buckets(nightly_runs)
    suite = ElementTree.Element("testsuite", name=f"floodmark nightly run {nightly.number}")
    for cell in nightly.cells:
        kind = "search" if cell.world == "simulated" else "storms and replays"
        broken = [
            b
            for b in nightly.buckets
            if not b.expected and (b.protocol, b.world) == (cell.protocol, cell.world)
        ]
        said = ", ".join(f"{number:,} {verdict}" for verdict, number in cell.verdicts.items())
        done = f"{wording.count(cell.runs, 'run')}: {said}"
        case = _case(suite, cell.protocol, f"{kind} ({cell.world})", done)
        if broken:
            names = "\n".join(b.name for b in broken)
            _failed(case, wording.count(len(broken), "unexpected bucket"), names)
    for bucket in nightly.buckets:
        if not bucket.expected:
            case = _case(suite, f"{bucket.protocol}.buckets", f"{bucket.key} {bucket.name}", "")
            age = "new in this run" if bucket.key in new else "known"
            where = f"{bucket.sentence}\n{bucket.replay}\n{bucket.page}"
            _failed(case, f"{age}, {wording.count(bucket.count, 'time')}: {bucket.property}", where)
    _case_of_the_canary(suite, nightly)
    for row in nightly.rows:
        case = _case(suite, "rows", row.name, str(row))
        if row.holds is False:
            _failed(case, str(row), "")
        elif row.holds is None:
            _skipped_case(case, str(row))
    for work, sentence in nightly.skipped.items():
        _skipped_case(_case(suite, "skipped", work, ""), sentence)
    case = _case(suite, "nightly", "coverage", "\n".join(nightly.uncovered))
    if nightly.uncovered:
        _failed(case, nightly.uncovered[0], "\n".join(nightly.uncovered))
    if nightly.open:
        case = _case(suite, "nightly", "still open", "\n".join(nightly.open))
        left = wording.count(len(nightly.open), "bucket")
        _skipped_case(case, f"{left} of earlier nightly runs not met again")
    case = _case(
        suite, "nightly", "determinism", f"{nightly.totals.determinism_runs} schedules run twice"
    )
    if nightly.differing:
        _failed(case, f"{len(nightly.differing)} differed", "\n".join(nightly.differing))
    case = _case(suite, "nightly", "corpus", f"{nightly.totals.replays} replays")
    unmet = [u for u in nightly.unmet if u.world == "simulated" and not u.is_finding]
    if unmet:
        _failed(case, f"{len(unmet)} not as expected", "\n".join(u.file for u in unmet))
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("skipped", str(len(suite.findall("testcase/skipped"))))
    suite.set("time", f"{nightly.used_s:.1f}")
    suite.set("timestamp", nightly.started)
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    made: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return made + b"\n"


def _case(suite: ElementTree.Element, group: str, name: str, said: str) -> ElementTree.Element:
    case = ElementTree.SubElement(
        suite, "testcase", classname=f"floodmark.{group}", name=_printable(name)
    )
    if said:
        ElementTree.SubElement(case, "system-out").text = _printable(said)
    return case


def _case_of_the_canary(suite: ElementTree.Element, nightly: NightlyRun) -> None:
    case = _case(suite, "nightly", "canary", nightly.canary.sentence)
    if nightly.canary.result == "missed":
        _failed(case, "canary did not fail", nightly.canary.sentence)
    elif not nightly.canary.result:
        _skipped_case(case, "no canary was judged")


def _skipped_case(case: ElementTree.Element, why: str) -> None:
    ElementTree.SubElement(case, "skipped", message=_printable(why))


def _failed(case: ElementTree.Element, message: str, text: str) -> None:
    failure = ElementTree.SubElement(case, "failure", message=_printable(message))
    failure.text = _printable(text)


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
