"""The list of a store's runs, as a page: what `floodmark serve` shows first."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import quote

from checker.formats.verdict import Verdict
from reports import theme, wording
from reports.nightly_page.index_page import INDEX
from reports.nightly_page.store_listing import UNJUDGED, Store, Wanted

MOST_ROWS: Final = 500


def render_list(store: Store, wanted: Wanted) -> str:
    """The runs that are wanted, the latest first, with a form to want others."""
    rows = store.listed(wanted)
    everything = store.runs()
    return theme.template("nightly_page/store.html.j2").render(
        rows=rows[:MOST_ROWS],
        more=max(0, len(rows) - MOST_ROWS),
        found=len(rows),
        total=len(everything),
        wanted=wanted,
        verdicts=[*map(str, Verdict), UNJUDGED],
        protocols=sorted({row.protocol for row in everything}),
        stories=store.stories(),
        marks={**{verdict.value: mark for verdict, mark in theme.MARKS.items()}, UNJUDGED: "…"},
        index=(store.path / INDEX).is_file(),
        INDEX=INDEX,
        quote=quote,
        name=_name(store.path),
        css=theme.stylesheet("nightly_page/index.css"),
        count=wording.count,
    )


def _name(path: Path) -> str:
    return path.absolute().name
