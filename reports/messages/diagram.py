"""The message diagram as inline SVG: a lifeline for each process, time going down, by rows.

Rows stand at equal distances, for their order matters; each says its time. The arrow of a dropped
message ends at two bars. The drawing has a fixed size and scrolls in its frame on a phone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from markupsafe import Markup, escape

from reports import wording
from reports.evidence.model import RunFolder
from reports.messages.message_events import MessageRow
from reports.messages.messages import Messages, messages

ROW: Final = 30
HEAD: Final = 34
TIMES: Final = 74
GAPS: Final = (130, 172)
SIDE: Final = 70
ROOM: Final = 1_020
"""Between the first and the last lifeline, where a wide screen is to show all of them."""
CHARACTER: Final = 6.7
LONGEST: Final = 84


@dataclass(frozen=True)
class Diagram:
    """The drawing in SVG, and the messages that it shows."""

    drawing: Markup
    shown: Messages


def diagram(folder: RunFolder) -> Diagram | None:
    """Draw the messages of the first finding; None if there are none."""
    shown = messages(folder)
    if shown is None:
        return None
    gap = max(GAPS[0], min(GAPS[1], ROOM // max(1, len(shown.lifelines) - 1)))
    at = {name: TIMES + 60 + i * gap for i, name in enumerate(shown.lifelines)}
    width = _width(shown, at)
    height = HEAD + ROW * len(shown.rows) + 12
    body = [*_lifelines(shown, at, height)]
    for i, row in enumerate(shown.rows):
        y = HEAD + ROW * i + ROW // 2 + 4
        when = f"{folder.seconds(row.t_us):.3f}"
        body.append(_text(TIMES - 8, y + 4, when, "when", "end"))
        body.append(_row(row, at, y, width, folder.seconds(row.t_us)))
    label = f"Messages about {shown.about}"
    drawing = Markup(
        f'<svg class="messages" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="{escape(label)}">{Markup("").join(body)}</svg>'
    )
    return Diagram(drawing, shown)


def _width(shown: Messages, at: dict[str, int]) -> int:
    """Return a width in which every remark beside its lifeline fits."""
    ends = [
        at[row.sender] + 16 + round(len(wording.clip(row.text, LONGEST)) * CHARACTER)
        for row in shown.rows
        if row.sender in at and row.receiver not in at and not _to_the_left(row, at)
    ]
    return max([max(at.values()) + SIDE, *ends])


def _to_the_left(row: MessageRow, at: dict[str, int]) -> bool:
    """Whether a remark stands to the left of its lifeline, where it has more room."""
    needed = TIMES + 16 + round(len(wording.clip(row.text, LONGEST)) * CHARACTER)
    return at[row.sender] > max(needed, max(at.values()) / 2)


def _lifelines(shown: Messages, at: dict[str, int], height: int) -> list[Markup]:
    """Names, and the line of each life: whole while its process lives, dotted while it is down."""
    made = []
    for name, x in at.items():
        made.append(
            Markup(f'<rect class="name" x="{x - 30}" y="4" width="60" height="22" rx="4"/>')
        )
        made.append(_text(x, 19, wording.clip(name, 9), "name", "middle"))
        alive, since = name not in shown.down_at_first, 26.0
        for i, row in enumerate(shown.rows):
            y = HEAD + ROW * i + ROW / 2 + 4
            if (row.down == name and alive) or (row.up == name and not alive):
                made.append(_line(x, since, x, y, "life" if alive else "dead"))
                alive, since = not alive, y
        made.append(_line(x, since, x, height - 6, "life" if alive else "dead"))
    return made


def _row(row: MessageRow, at: dict[str, int], y: int, width: int, at_s: float) -> Markup:
    """Draw an arrow, a remark, or a fault; its tooltip names the line it comes from."""
    tone = f"{row.tone}{' breaks' if row.breaks else ''}"
    if row.sender not in at:
        inside = Markup(
            f'<rect class="band" x="{TIMES}" y="{y - 10}" width="{width - TIMES - 8}" height="20"/>'
        ) + _label(TIMES + 8, y + 4, row.text, "start")
    elif row.receiver not in at or row.receiver == row.sender:
        x = at[row.sender]
        side, anchor = (-9, "end") if _to_the_left(row, at) else (9, "start")
        label = _label(x + side, y + 4, row.text, anchor)
        inside = Markup(f'<circle cx="{x}" cy="{y}" r="3.5"/>') + label
    else:
        inside = _arrow(at[row.sender], at[row.receiver], y, row)
    title = f"{row.text}{f' ({row.citation})' if row.citation else ''}"
    return Markup(
        f'<g class="{tone}" data-t="{at_s:.6f}"><title>{escape(title)}</title>{inside}</g>'
    )


def _arrow(a: int, b: int, y: int, row: MessageRow) -> Markup:
    """Draw an arrow from `a` to `b` with its text above; it ends at a bar if it was dropped."""
    way = 1 if b > a else -1
    end = (a + b) // 2 if row.tone == "lost" else b - way * 2
    head = Markup("")
    if row.tone == "lost":
        head = Markup(f'<path class="cross" d="M{end} {y - 3}v9M{end + way * 4} {y - 3}v9"/>')
    else:
        head = Markup(f'<path class="tip" d="M{end} {y}l{-way * 8} -4v8z"/>')
    text = _label((a + end) / 2, y - 4, row.text, "middle")
    return _line(a, y, end, y, "arrow") + text + head


def _label(x: float, y: float, text: str, anchor: str) -> Markup:
    """Text on a ground of its own, so that no lifeline runs through it."""
    shown = wording.clip(text, LONGEST)
    wide = len(shown) * CHARACTER
    left = x - 2 - wide * {"start": 0, "middle": 0.5, "end": 1}[anchor]
    ground = (
        f'<rect class="ground" x="{left:.0f}" y="{y - 10:.0f}" width="{wide:.0f}" height="13"/>'
    )
    return Markup(ground) + _text(x, y, shown, "label", anchor)


def _text(x: float, y: float, text: str, kind: str, anchor: str) -> Markup:
    return Markup(
        f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'
    )


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    return Markup(f'<line class="{kind}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>')
