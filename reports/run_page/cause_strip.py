"""The cause strip: faults, members of a group, leaders, the record on each replica, and the loss,
on one axis."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from checker.formats.anomalies import OF_GROUPS
from checker.formats.story import Span
from reports import svg
from reports.evidence import faults
from reports.evidence.model import RunFolder
from reports.svg import TrackRow

ROW: Final = 22
MOST_LANES: Final = 5
MOST_NODES: Final = 9


@dataclass(frozen=True)
class Strip:
    """The strip, ready for the template: `marks` are (kind, place, label) of cause and loss."""

    axis: svg.Axis
    rows: tuple[TrackRow, ...]
    marks: tuple[tuple[str, Markup, str], ...]
    title: str
    has_record: bool
    has_group: bool


def strip(folder: RunFolder) -> Strip | None:
    """Return the strip of the story; None if there is no story, or it is one moment."""
    story = folder.story
    if story is None or not story.steps:
        return None
    times = [s.t_us for s in story.steps] + [
        t for x in story.spans for t in (x.from_us, x.until_us)
    ]
    low, high = min(s.t_us for s in story.steps), max(s.t_us for s in story.steps)
    if low == high:
        return None
    pad = max(1_000, (high - low) // 20)
    axis = svg.Axis(max(min(times), low - pad), min(max(times), high + pad) or 1, folder.zero_us)
    rows = [
        *_fault_rows(story.spans, axis),
        *_group_rows(story.spans, axis),
        *_node_rows(story.spans, axis),
    ]
    if not rows:
        return None
    marks = []
    cause = folder.cause
    if cause is not None:
        marks.append(("cause", axis.place(cause.t_us), "cause"))
    if 0 <= story.loss < len(story.steps) and story.loss != story.cause:
        label = "broken" if story.property in OF_GROUPS else "loss"
        marks.append(("loss", axis.place(story.steps[story.loss].t_us), label))
    about = f"offset {story.offset:,} of {story.partition}" if story.offset >= 0 else "the failure"
    held = any(s.lane in ("holds", "other") for s in story.spans)
    of_group = any(s.lane in _OF_GROUP for s in story.spans)
    return Strip(axis, tuple(rows), tuple(marks), about, held, of_group)


def _fault_rows(spans: Iterable[Span], axis: svg.Axis) -> Iterator[TrackRow]:
    shown = [s for s in spans if s.lane == "fault"]
    lanes = svg.pack(shown, lambda s: (s.from_us, s.until_us), axis.length_us // 6)
    for i, lane in enumerate(lanes[:MOST_LANES]):
        body = Markup("").join(_fault(s, axis) for s in lane)
        yield TrackRow("" if i else "faults", body, ROW, "lane")


def _fault(s: Span, axis: svg.Axis) -> Markup:
    kind = f"fault f-{s.what}" + ("" if s.until_us > s.from_us else " instant")
    text = f"{s.what} {s.who}"
    shown = Markup("<b>{}</b> {}").format(faults.letter(s.what), text)
    place = axis.place(s.from_us, s.until_us, top=3)
    return svg.element("span", kind, place, shown, title=text)


def _node_rows(spans: Iterable[Span], axis: svg.Axis) -> Iterator[TrackRow]:
    """Draw one row a node: above, when it led or was down; below, whether it had the record."""
    by_node = _by_who(s for s in spans if s.lane != "fault" and s.lane not in _OF_GROUP)
    for node in sorted(by_node)[:MOST_NODES]:
        body = Markup("").join(_bar(s, axis) for s in by_node[node])
        yield TrackRow(node, body, ROW + 16, "lane life")


def _by_who(spans: Iterable[Span]) -> dict[str, list[Span]]:
    found: dict[str, list[Span]] = {}
    for s in spans:
        found.setdefault(s.who, []).append(s)
    return found


def _group_rows(spans: Iterable[Span], axis: svg.Axis) -> Iterator[TrackRow]:
    """Draw one row a member: when it had the record, and below, when it settled it; and one row for
    the position of the group."""
    for who, own in [*_by_who(s for s in spans if s.lane in _OF_GROUP).items()][:MOST_NODES]:
        body = Markup("").join(_held(s, axis) for s in own)
        yield TrackRow(who, body, ROW + 16 * any(s.lane == "settled" for s in own), "lane life")


def _held(s: Span, axis: svg.Axis) -> Markup:
    title = f"{s.who}: {s.what} at {axis.label(s.from_us)}"
    if s.lane == "settled":
        place = axis.place(s.from_us, top=21)
        return svg.element("span", "span settled", place, s.what, title=title)
    title = f"{s.who}: {s.lane} {s.what}, {axis.label(s.from_us)} to {axis.label(s.until_us)}"
    place = axis.place(s.from_us, s.until_us, top=3)
    shown = axis.fitting(s.from_us, s.until_us, s.what)
    return svg.element("span", f"span {s.lane}", place, shown, title=title)


_OF_GROUP: Final = ("delivered", "settled", "position")
_TEXT: Final = {"holds": "has the record", "other": "another record", "down": "down"}


def _bar(s: Span, axis: svg.Axis) -> Markup:
    text = f"leads e{s.epoch}" if s.epoch >= 0 else "leads"
    text = _TEXT.get(s.lane, text)
    times = f"{axis.label(s.from_us)} to {axis.label(s.until_us)}"
    top = 3 if s.lane in ("led", "down") else 21
    title = f"{s.who} {text}: {times}"
    shown: object = axis.fitting(s.from_us, s.until_us, text)
    shown = Markup("<b>{}</b>").format(shown) if shown and s.lane == "down" else shown
    place = axis.place(s.from_us, s.until_us, top=top)
    return svg.element("span", f"span {s.lane}", place, shown, title=title)
