"""`report.html`: one self-contained file from a run folder, written whole or not at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

import jinja2
from markupsafe import Markup

from checker.engine.folder_lock import locked
from node.formats.errors import FloodmarkError
from node.formats.run_folder_entries import foreign_entry
from reports import theme
from reports.evidence import faults, model
from reports.evidence.model import PROGRAM, Plot, RunFolder
from reports.run_page import cause_strip, first_screen, head, sections
from reports.run_page import plots as run_plots
from reports.theme import MOST_BYTES, ReportError

PAGE: Final = "report.html"


def build(run_dir: Path, *, plots: bool = False, program: str = PROGRAM) -> Path:
    """Build the page of a run folder and return its path.

    With `plots`, also save the plots as pictures and embed them. Command lines on the page begin
    with `program`. Damaged or missing files become notes on the page. Raises ReportError when the
    folder holds no run or the page is too large, StorageError when the page cannot be written; then
    no file is left or changed. Waits for a command that judges the run."""
    run_dir = Path(run_dir)
    if why := foreign_entry(run_dir):
        raise ReportError(f"{run_dir}: no page is built of this folder, since {why}")
    with locked([run_dir]):
        return _build(run_dir, plots, program)


def _build(run_dir: Path, plots: bool, program: str) -> Path:
    try:
        folder = model.read(run_dir, program)
        text = render(replace(folder, plots=_plots(folder)) if plots else folder)
        if len(text.encode("utf-8", "replace")) > MOST_BYTES * 0.95:
            text = render(replace(folder, lean=True))
    except FloodmarkError:
        raise
    except (jinja2.TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise ReportError(
            f"{run_dir}: the page could not be built ({type(error).__name__}: {error})"
        ) from error
    return theme.write(run_dir / PAGE, text.encode("utf-8", "replace"))


def _plots(folder: RunFolder) -> tuple[Plot, ...]:
    """Draw the plots and save them beside the page; an error with them costs only them."""
    try:
        made = run_plots.draw(folder)
        run_plots.save(folder, made)
    except (FloodmarkError, ImportError, ArithmeticError, LookupError, TypeError, ValueError) as e:
        folder.notes.add(f"The plots could not be drawn: {e}.")
        return ()
    return tuple(made)


def render(folder: RunFolder) -> str:
    found = [(section, section.data(folder)) for section in sections.SECTIONS]
    return theme.template("run_page/page.html.j2").render(
        folder=folder,
        sections=[(section, data) for section, data in found if data is not None],
        sentence=head.sentence(folder),
        headline=first_screen.headline(folder),
        lines=first_screen.lines(folder),
        strip=cause_strip.strip(folder),
        facts=head.facts(folder),
        badges=head.badges(folder),
        commands=head.commands(folder),
        css=theme.stylesheet("run_page/page.css") + faults.styles(),
        script=Markup(theme.asset("run_page/page.js")),
        script_hash=theme.script_hash("run_page/page.js"),
    )
