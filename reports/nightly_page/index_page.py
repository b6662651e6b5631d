"""`store/index.html`: the results of a store's nightly runs, as one self-contained page.

It shows buckets of failures, the new ones first, and has no script."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from markupsafe import Markup

from harness.formats import nightly_run
from harness.formats.nightly_run import FOLDER, PHASES, ROLES, NightlyRun, nightly_runs
from reports import theme, wording
from reports.nightly_page import index_model

INDEX: Final = "index.html"
MOST_BUCKETS: Final = 200
MOST_RUNS: Final = 60
_HEIGHT: Final = 20
_BAR: Final = 5
_STAMPS: Final = {
    "invalid": ("✗", "red"),
    "valid": ("✓", "green"),
    "unknown": ("?", "open"),
    "not-exercised": ("–", "no run"),
}
"""A mark and a word for each tone, for colour alone carries no meaning."""


def build_index(store: Path) -> Path:
    """Write the page of a store and return its path. Raises ReportError, StorageError."""
    return theme.write(store / INDEX, render_index(store).encode("utf-8", "replace"))


def render_index(store: Path) -> str:
    known, unread = nightly_runs(store)
    buckets = index_model.buckets(known)
    table = index_model.coverage(known)
    met = {f"{kind}/{where}": n for kind, row in table.items() for where, n in row.items()}
    last = known[-1] if known else None
    speeds = [nightly.totals.schedules_per_s for nightly in known[-index_model.TREND :]]
    canary_found, canary_age = index_model.canary_failed(known)
    return theme.template("nightly_page/index.html.j2").render(
        last=last,
        runs=list(reversed(known[-MOST_RUNS:])),
        all_nights=len(known),
        tone=_tone(last),
        stamp=_STAMPS[_tone(last)],
        sentence=_sentence(known),
        unread=unread,
        unexpected=[b for b in buckets if not b.shown.expected][:MOST_BUCKETS],
        foreseen=[b for b in buckets if b.shown.expected][:MOST_BUCKETS],
        squares=index_model.squares(known),
        known_bugs=index_model.known_bugs(known),
        canary_found=canary_found,
        canary_age=canary_age,
        systems=index_model.systems(known),
        compared=index_model.versions_compared(known),
        table=table,
        never_met=nightly_run.in_words(nightly_run.never_met(met, table)),
        roles=ROLES,
        phases=PHASES,
        most=max((count for row in table.values() for count in row.values()), default=1),
        bars=bars,
        speeds=bars(speeds, "schedules a second by nightly run"),
        there=lambda path: bool(path) and (store / path).is_file(),
        folder=FOLDER,
        css=theme.stylesheet("nightly_page/index.css"),
        count=wording.count,
        moment=lambda text: text.replace("T", " ").replace("+00:00", " UTC"),
        span=lambda seconds: wording.span(seconds * 1e6),
    )


def bars(values: Sequence[float], label: str) -> Markup:
    """Draw a sparkline: a bar for each value, the last one darker; a value below 0 is a hollow bar
    (a search that found nothing)."""
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


def _tone(last: NightlyRun | None) -> str:
    if last is None:
        return "not-exercised"
    if last.red:
        return "invalid"
    proven = last.canary.result == "failed" or not last.real
    left = last.uncovered or last.open
    return "valid" if last.state == "finished" and proven and not left else "unknown"


def _sentence(known: Sequence[NightlyRun]) -> str:
    if not known:
        return "This store has no nightly run yet."
    latest = known[-1]
    new = [b for b in index_model.buckets(known) if b.is_new and not b.shown.expected]
    if latest.red:
        news = f"{wording.count(len(new), 'new bucket')}; " if new else ""
        more = f" (and {len(latest.red) - 1} more)" if len(latest.red) > 1 else ""
        reason = wording.clip(latest.red[0].rstrip("."), 300)
        return f"Nightly run {latest.number}: {news}{reason}{more}."
    done = (
        f"{wording.count(latest.totals.schedules, 'schedule')} searched and "
        f"{wording.count(latest.totals.real_runs, 'run')} of real processes"
    )
    if _tone(latest) == "valid":
        canary = "the canary failed" if latest.real else "without a canary"
        return f"Nightly run {latest.number} found no unexpected failure: {done}; {canary}."
    if latest.state != "finished":
        why = "it was not finished"
    elif latest.open:
        left = wording.count(len(latest.open), "bucket")
        why = f"{left} of earlier runs {'is' if len(latest.open) == 1 else 'are'} still open"
    else:
        why = wording.clip([*latest.uncovered, "no canary was judged"][0].rstrip("."), 300)
    return f"Nightly run {latest.number} found no unexpected failure, but {why}: {done}."
