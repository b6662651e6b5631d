"""`report.html`: one self-contained file from a run folder, written whole or not at all."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import jinja2
import msgspec
from markupsafe import Markup

from checker.formats.verdict import Anomaly, Witness
from harness.formats.history import show_value
from node.formats.errors import FloodmarkError
from reports import theme, wording
from reports.charts import still_plots
from reports.messages import diagram, messages
from reports.run_page import (
    citations,
    faults,
    head,
    log_grid,
    log_steps,
    model,
    operation_timeline,
    provenance,
    time_view,
)
from reports.run_page.model import RunFolder
from reports.theme import MOST_BYTES, ReportError

PAGE: Final = "report.html"
MOST_ANOMALIES: Final = 60
MOST_WITNESSES: Final = 32
FINDINGS_IN_FULL: Final = 10
MOST_FAULT_ROWS: Final = 250
FIRST_WITNESSES: Final = 6
"""Of the first finding, shown at once; the others unfold."""
MOST_FILES: Final = 80


@dataclass(frozen=True)
class WitnessRow:
    """One witness as a row of text; "" where a field says nothing."""

    what: str
    at: str
    op: str
    client: str
    node: str
    offset: str
    value: str
    epoch: str
    link: str = ""
    raw: tuple[citations.Line, ...] = ()


@dataclass(frozen=True)
class Column:
    """One column of a witness table; those that say nothing anywhere are left out."""

    field: str
    title: str
    number: bool = False


COLUMNS: Final = (
    Column("what", "witness"),
    Column("at", "time, s", True),
    Column("op", "operation"),
    Column("client", "client / process"),
    Column("node", "node"),
    Column("offset", "offset", True),
    Column("value", "value", True),
    Column("epoch", "epoch", True),
    Column("raw", "in the files"),
)


@dataclass(frozen=True)
class Finding:
    """One anomaly as the page shows it."""

    number: int
    anomaly: Anomaly
    message: str
    when: str
    witnesses: tuple[WitnessRow, ...]
    more: int
    grid: int
    timed: bool
    columns: tuple[Column, ...] = ()


def build(run_dir: Path, *, plots: bool = False) -> Path:
    """Build the page of a run folder and return its path.

    With `plots`, still plots too, beside the page and in it. Damaged or missing files become notes
    on the page. Raises ReportError (one sentence) when the folder holds no run or the page cannot
    be written; then no file is left or changed.
    """
    run_dir = Path(run_dir)
    try:
        folder = model.read(run_dir)
        made = _plots(folder) if plots else []
        text = render(folder, plots=made)
        if len(text.encode("utf-8", "replace")) > MOST_BYTES * 0.95:
            text = render(folder, lean=True)
    except FloodmarkError:
        raise
    except (jinja2.TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise ReportError(
            f"{run_dir}: the page could not be built ({type(error).__name__}: {error})"
        ) from error
    return theme.write(run_dir / PAGE, text.encode("utf-8", "replace"))


def _plots(folder: RunFolder) -> list[still_plots.Still]:
    """Still plots, saved beside the page; what goes wrong with them costs only them."""
    try:
        made = still_plots.draw(folder)
        still_plots.save(folder, made)
    except (FloodmarkError, ImportError, ArithmeticError, LookupError, TypeError, ValueError) as e:
        folder.notes.add(f"The still plots could not be drawn: {e}.")
        return []
    return made


def render(
    folder: RunFolder, *, lean: bool = False, plots: Sequence[still_plots.Still] = ()
) -> str:
    """The page of a run folder as text; `lean` leaves out most of what may be left out."""
    most = MOST_ANOMALIES // 6 if lean else MOST_ANOMALIES
    views = time_view.views(folder)
    if lean and len(views) > 1:
        views = views[:1]
        folder.notes.add("The view of the whole run is left out to keep this page small.")
    made_grids = log_grid.grids(folder)
    recorded = {int(folder.operations.op[row]) for row in operation_timeline.witness_rows(folder)}
    shown = folder.anomalies[:most]
    cited = citations.of_witnesses(
        folder, [(a.partition, w) for a in shown for w in a.witnesses[:MOST_WITNESSES]]
    )
    findings = [
        _finding(folder, number, anomaly, made_grids, recorded, cited)
        for number, anomaly in enumerate(shown, 1)
    ]
    if len(folder.anomalies) > most:
        folder.notes.add(
            f"{len(folder.anomalies):,} findings; the {most} that matter most are shown, "
            "all are in results.json."
        )
    replays = {} if lean else log_steps.replays(folder)
    told = messages.exchange(folder)
    fault_rows = _fault_rows(folder)
    info = folder.info
    problems = [*info.problems, *(folder.result.problems if folder.result else ())]
    script = theme.asset("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return theme.template("page.html.j2").render(
        folder=folder,
        verdict=folder.verdict,
        mark=theme.MARKS[folder.verdict],
        sentence=head.sentence(folder),
        cause=head.cause(folder),
        facts=head.facts(folder),
        badges=head.badges(folder),
        commands=head.commands(folder),
        properties=head.properties(folder),
        findings=findings,
        origin=folder.origin,
        plans=provenance.plans(folder.origin) if folder.origin else [],
        story=citations.of_story(folder),
        messages=diagram.diagram(folder, told) if told else None,
        total_findings=len(folder.anomalies),
        views=views,
        grids=made_grids,
        replays={key: _as_data(replay) for key, replay in replays.items()},
        stills=[(s, base64.b64encode(s.png).decode()) for s in plots],
        fault_rows=fault_rows,
        problems=[wording.clip(p) for p in problems[:50]],
        notes=folder.notes.sentences,
        files=folder.files[:MOST_FILES],
        marks=theme.MARKS,
        FIRST_WITNESSES=FIRST_WITNESSES,
        more_files=max(0, len(folder.files) - MOST_FILES),
        environment=_environment(folder),
        css=theme.stylesheet("page.css"),
        script=Markup(script),
        script_hash=digest,
    )


def _as_data(replay: log_steps.Replay) -> Markup:
    """JSON for a script element: nothing in it can end the element."""
    text = msgspec.json.encode(replay).decode()
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _finding(
    folder: RunFolder,
    number: int,
    anomaly: Anomaly,
    made_grids: list[log_grid.Grid],
    recorded: set[int],
    cited: dict[Witness, tuple[citations.Line, ...]],
) -> Finding:
    """One anomaly with its witnesses in words, and where else on the page it shows."""
    # The first few findings in full; of later ones enough to see what they are.
    most = MOST_WITNESSES if number <= FINDINGS_IN_FULL else MOST_WITNESSES // 6
    shown = tuple(_witness(folder, w, recorded, cited.get(w, ())) for w in anomaly.witnesses[:most])
    at = anomaly.offset
    number_of_grid = next(
        (
            i
            for i, g in enumerate(made_grids, 1)
            if g.partition == anomaly.partition and (at < 0 or g.offsets[0] <= at <= g.offsets[-1])
        ),
        0,
    )
    return Finding(
        number=number,
        anomaly=anomaly,
        message=wording.clip(anomaly.message),
        when=f"{folder.seconds(anomaly.t_us):.3f} s" if anomaly.t_us >= 0 else "",
        witnesses=shown,
        more=len(anomaly.witnesses) - len(shown),
        grid=number_of_grid,
        timed=anomaly.t_us >= 0,
        columns=tuple(c for c in COLUMNS if any(getattr(w, c.field) for w in shown)),
    )


def _witness(
    folder: RunFolder, w: Witness, recorded: set[int], lines: tuple[citations.Line, ...]
) -> WitnessRow:
    client = w.client + (f" / {w.process}" if w.process >= 0 else "")
    return WitnessRow(
        what=wording.clip(w.what, 300),
        client=wording.clip(client, 60),
        node=wording.clip(w.node, 60),
        at=f"{folder.seconds(w.t_us):.3f}" if w.t_us >= 0 else "",
        op=f"#{w.op}" if w.op >= 0 else "",
        offset=f"{w.offset:,}" if w.offset >= 0 else "",
        value=show_value(w.value) if w.value >= 0 else "",
        epoch=str(w.epoch) if w.epoch >= 0 else "",
        link=f"op-{w.op}" if w.op in recorded else "",
        raw=lines,
    )


def _fault_rows(folder: RunFolder) -> list[tuple[faults.Executed, str]]:
    """Each fault in a sentence; of very many, those nearest to the first finding."""
    chosen = list(folder.faults)
    if len(chosen) > MOST_FAULT_ROWS:
        found = time_view.first_finding(folder)
        centre = found.t_us if found is not None and found.t_us >= 0 else folder.last_us
        chosen.sort(key=lambda f: abs(f.start_us - centre))
        chosen = sorted(chosen[:MOST_FAULT_ROWS], key=lambda f: f.index)
        folder.notes.add(
            f"The schedule's table holds the {MOST_FAULT_ROWS} of {len(folder.faults):,} faults "
            f"nearest to {'the first finding' if found else 'the end of the run'}."
        )
    return [(f, wording.clip(faults.sentence(f, folder.zero_us), 600)) for f in chosen]


def _environment(folder: RunFolder) -> list[tuple[str, str]]:
    """Versions, host, promise and what else the run recorded about itself."""
    info = folder.info

    def said(values: dict[str, object]) -> str:
        pairs = (f"{k} {_plain(v)}" for k, v in values.items())
        return wording.clip(", ".join(pairs), 600)

    made = [
        ("versions", said(info.versions)),
        ("host", said(info.host)),
        ("promise", said(info.promise)),
        ("world", info.world),
        ("capabilities", wording.listing(info.capabilities)),
        ("state", info.state),
        ("command", wording.clip(" ".join(info.command), 600)),
        ("measures", said(folder.result.measures) if folder.result else ""),
    ]
    return [(name, value) for name, value in made if value]


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str | int | float):
        return str(value)
    return msgspec.json.encode(value).decode()
