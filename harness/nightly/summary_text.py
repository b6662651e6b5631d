"""What a night says when it is over: a screen of text, JUnit XML, and the exit code. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from xml.etree import ElementTree

from harness.formats.nightly_run import Bucket, Night
from reports import wording
from reports.nightly_page import index_model

EXIT_GREEN: Final = 0
EXIT_RED: Final = 1
EXIT_UNFINISHED: Final = 2
EXIT_HARNESS: Final = 70
_MOST_LINES: Final = 8
_SENTENCE: Final = 160


def exit_code(night: Night) -> int:
    """1 when something is red, else 70 when disk or harness ended the night, 2 when it was stopped,
    its canary was never judged, or a bucket of earlier nights is still open; 0 when all is well."""
    if night.red:
        return EXIT_RED
    if night.state in ("disk-full", "failed"):
        return EXIT_HARNESS
    judged = bool(night.canary.result) or not night.real
    well = night.state == "finished" and judged and not night.open
    return EXIT_GREEN if well else EXIT_UNFINISHED


def summary(nights: Sequence[Night]) -> str:
    """The last of `nights` on one screen."""
    night, totals = nights[-1], nights[-1].totals
    new = index_model.new_buckets(nights)
    mark = "✗ RED" if night.red else "✓ GREEN" if exit_code(night) == EXIT_GREEN else "? OPEN"
    lines = [
        f"{mark}  night {night.number}, {night.state} after {_span(night.used_s)} of "
        f"{_span(night.budget_s)}; seeds from {night.seed:,}",
        *(f"  {_clip(reason)}" for reason in night.red[:_MOST_LINES]),
        *_more(night.red),
        f"  search      {totals.schedules:,} schedules, {totals.schedules_per_s:.1f}/s, "
        f"{totals.virtual_seconds:,.0f} virtual seconds; {totals.failures:,} failures",
        f"  museum      {_museum(night)}",
        f"  storms      {totals.storms} on real processes: {_storms(night)}",
        f"  replays     {totals.replays_met} of {totals.replays} as expected",
        f"  canary      {_canary(night)}",
        f"  twice       {totals.twice} schedules run twice, {len(night.differing)} differed",
        f"  buckets     {_buckets(night.buckets, new)}",
    ]
    if night.open:
        lines.append(
            f"  still open  {wording.count(len(night.open), 'bucket')} of earlier nights, not met "
            f"again and not seen mended; the first: {_clip(night.open[0])}"
        )
    if night.proved_nothing:
        lines.append(
            f"  no proof    {wording.count(len(night.proved_nothing), 'real run')}; the first: "
            f"{_clip(night.proved_nothing[0])}"
        )
    if night.problems:
        lines.append(f"  problems    {len(night.problems)}; the first: {_clip(night.problems[0])}")
    return "\n".join(lines)


def junit(nights: Sequence[Night]) -> bytes:
    """The last of `nights` as JUnit XML: a case for each protocol and kind of work, and for each
    bucket on a protocol that is expected to hold."""
    night = nights[-1]
    new = index_model.new_buckets(nights)
    suite = ElementTree.Element("testsuite", name=f"floodmark night {night.number}")
    for cell in night.cells:
        kind = "search" if cell.world == "simulated" else "storms and replays"
        broken = [
            b
            for b in night.buckets
            if not b.expected and (b.protocol, b.world) == (cell.protocol, cell.world)
        ]
        said = ", ".join(f"{number:,} {verdict}" for verdict, number in cell.verdicts.items())
        done = f"{wording.count(cell.runs, 'run')}: {said}"
        case = _case(suite, cell.protocol, f"{kind} ({cell.world})", done)
        if broken:
            names = "\n".join(b.name for b in broken)
            _failed(case, wording.count(len(broken), "unexpected bucket"), names)
    for bucket in night.buckets:
        if not bucket.expected:
            case = _case(suite, f"{bucket.protocol}.buckets", f"{bucket.key} {bucket.name}", "")
            age = "new tonight" if bucket.key in new else "known"
            where = f"{bucket.sentence}\n{bucket.replay}\n{bucket.page}"
            _failed(case, f"{age}, {wording.count(bucket.count, 'time')}: {bucket.property}", where)
    _case_of_the_canary(suite, night)
    if night.open:
        case = _case(suite, "night", "still open", "\n".join(night.open))
        left = wording.count(len(night.open), "bucket")
        ElementTree.SubElement(case, "skipped", message=f"{left} of earlier nights not met again")
    case = _case(suite, "night", "determinism", f"{night.totals.twice} schedules run twice")
    if night.differing:
        _failed(case, f"{len(night.differing)} differed", "\n".join(night.differing))
    case = _case(suite, "night", "corpus", f"{night.totals.replays} replays")
    unmet = [u for u in night.unmet if u.world == "simulated" and not u.is_finding]
    if unmet:
        _failed(case, f"{len(unmet)} not as expected", "\n".join(u.file for u in unmet))
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("skipped", str(len(suite.findall("testcase/skipped"))))
    suite.set("time", f"{night.used_s:.1f}")
    suite.set("timestamp", night.started)
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


def _case_of_the_canary(suite: ElementTree.Element, night: Night) -> None:
    case = _case(suite, "night", "canary", night.canary.sentence)
    if night.canary.result == "missed":
        _failed(case, "canary did not fail", night.canary.sentence)
    elif not night.canary.result:
        ElementTree.SubElement(case, "skipped", message="no canary was judged")


def _failed(case: ElementTree.Element, message: str, text: str) -> None:
    failure = ElementTree.SubElement(case, "failure", message=_printable(message))
    failure.text = _printable(text)


def _printable(text: str) -> str:
    """Without the control characters that XML cannot hold."""
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)


def _museum(night: Night) -> str:
    found = [hunt for hunt in night.museum if hunt.found]
    if not night.museum:
        return "no hunt"
    slowest = max(night.museum, key=lambda hunt: hunt.seconds)
    return (
        f"{len(found)} of {len(night.museum)} hunts found their bug; the longest, {slowest.code}, "
        f"{'took' if slowest.found else 'was given'} {slowest.seconds:.0f} s"
    )


def _storms(night: Night) -> str:
    counts: dict[str, int] = {}
    for cell in night.cells:
        for verdict, count in cell.verdicts.items() if cell.world == "real" else ():
            counts[verdict] = counts.get(verdict, 0) + count
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items()) or "none"


def _canary(night: Night) -> str:
    match night.canary.result:
        case "failed":
            return f"failed, as it must ({night.canary.bug})"
        case "missed":
            return "DID NOT FAIL: the night proves nothing"
    return "not judged" if night.real else "none was wanted"


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
    return text if len(text) <= _SENTENCE else text[: _SENTENCE - 1] + "…"


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
