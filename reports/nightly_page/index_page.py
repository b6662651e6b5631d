"""`store/index.html`: what the nights of a store found, as one self-contained page without scripts.

Buckets and not runs, what is new first. It says nothing that no night has shown: where there is no
night yet, it says just that.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from markupsafe import Markup

from harness.formats.nightly_run import FOLDER, PHASES, ROLES, Night, nights
from reports import theme, wording
from reports.nightly_page import index_model

INDEX: Final = "index.html"
MOST_BUCKETS: Final = 200
MOST_NIGHTS: Final = 60
_HEIGHT: Final = 20
_BAR: Final = 5


def build_index(store: Path) -> Path:
    """Write the page of a store and return its path. Raises ReportError."""
    return theme.write(store / INDEX, render_index(store).encode("utf-8", "replace"))


def render_index(store: Path) -> str:
    """The page of all nights of a store."""
    known, unread = nights(store)
    stories = index_model.buckets(known)
    table = index_model.coverage(known)
    last = known[-1] if known else None
    return theme.template("nightly_page/index.html.j2").render(
        last=last,
        nights=list(reversed(known[-MOST_NIGHTS:])),
        all_nights=len(known),
        tone=_tone(last),
        stamp=_stamp(last),
        sentence=_sentence(known),
        unread=unread,
        unexpected=[s for s in stories if not s.shown.expected][:MOST_BUCKETS],
        foreseen=[s for s in stories if s.shown.expected][:MOST_BUCKETS],
        squares=index_model.squares(known),
        league=index_model.league(known),
        canary=index_model.canary(known),
        table=table,
        never=index_model.never(table),
        roles=ROLES,
        phases=PHASES,
        most=_most(table),
        bars=bars,
        trend=_trend(known),
        there=lambda path: bool(path) and (store / path).is_file(),
        folder=FOLDER,
        css=theme.stylesheet("nightly_page/index.css"),
        count=wording.count,
        moment=_moment,
        span=lambda seconds: wording.span(seconds * 1e6),
    )


def bars(values: Sequence[float], label: str) -> Markup:
    """A sparkline: one bar a night, the last one darker; a value below 0 is a hollow bar (a hunt
    that found nothing)."""
    top = max([*values, 0.0]) or 1.0
    made = []
    for at, value in enumerate(values):
        height = max(1.5 if value else 0.5, value / top * _HEIGHT) if value >= 0 else _HEIGHT
        kind = "open" if value < 0 else "last" if at == len(values) - 1 else "bar"
        made.append(
            f'<rect class="{kind}" x="{at * _BAR + 0.5:g}" y="{_HEIGHT - height + 0.5:.1f}" '
            f'width="{_BAR - 1.5:g}" height="{height:.1f}"/>'
        )
    width = max(1, len(values)) * _BAR
    return Markup(
        f'<svg class="spark" role="img" aria-label="{Markup.escape(label)}" width="{width}" '
        f'height="{_HEIGHT + 1}" viewBox="0 0 {width} {_HEIGHT + 1}">{"".join(made)}</svg>'
    )


def _moment(text: str) -> str:
    """A moment of the journal for a person."""
    return text.replace("T", " ").replace("+00:00", " UTC")


def _tone(last: Night | None) -> str:
    if last is None:
        return "not-exercised"
    if last.red:
        return "invalid"
    proven = last.canary.result == "failed" or not last.real
    return "valid" if last.state == "finished" and proven and not last.open else "unknown"


def _stamp(last: Night | None) -> tuple[str, str]:
    """A mark and a word for it, so that colour is not all that tells."""
    return {
        "invalid": ("✗", "red"),
        "valid": ("✓", "green"),
        "unknown": ("?", "open"),
        "not-exercised": ("–", "no night"),
    }[_tone(last)]


def _sentence(known: Sequence[Night]) -> str:
    if not known:
        return "No night has been recorded in this store yet."
    night = known[-1]
    new = [b for b in index_model.buckets(known) if b.is_new and not b.shown.expected]
    if night.red:
        told = f"{wording.count(len(new), 'new bucket')}; " if new else ""
        more = f" (and {len(night.red) - 1} more)" if len(night.red) > 1 else ""
        return f"Night {night.number}: {told}{wording.clip(night.red[0], 300)}{more}."
    done = (
        f"{wording.count(night.totals.schedules, 'schedule')} searched and "
        f"{wording.count(night.totals.real_runs, 'run')} of real processes"
    )
    if _tone(night) == "valid":
        canary = "the canary failed" if night.real else "no canary was wanted"
        return f"Night {night.number} found nothing that it should not: {done}; {canary}."
    if night.state != "finished":
        why = "it was not finished"
    elif night.open:
        left = wording.count(len(night.open), "bucket")
        why = f"{left} of earlier nights {'is' if len(night.open) == 1 else 'are'} still open"
    else:
        why = "no canary was judged"
    return f"Night {night.number} has found nothing so far, but {why}: {done}."


def _most(table: dict[str, dict[str, int]]) -> int:
    return max((count for row in table.values() for count in row.values()), default=1)


def _trend(known: Sequence[Night]) -> Markup:
    speeds = [speed for _, speed in index_model.speeds(known)]
    return bars(speeds, "schedules a second by night")
