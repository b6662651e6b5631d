"""The table of known losses in other people's systems: as text, and as Markdown in a document.
Pure."""

from __future__ import annotations

import re
import statistics
import textwrap
from collections.abc import Sequence
from typing import Final

from harness.formats.system_finding import SystemFinding
from harness.search.real.known_losses import KnownLoss, LossSearch, is_complete, is_steady

HEADINGS: Final = (
    "system",
    "configuration",
    "loss",
    "found",
    "blind time",
    "faults",
    "fails in",
    "safe runs",
)
BEGIN: Final = "<!-- known losses: written by `floodmark bugs find --system all --page` -->"
END: Final = "<!-- end of known losses -->"
WIDTH: Final = 118
_NONE: Final = "none"


def cells(row: KnownLoss, made: Sequence[LossSearch]) -> tuple[str, ...]:
    """A row as words, in the order of `HEADINGS`. A search that found nothing counts with all of
    its time."""
    shown = best(made)
    version = next((one.version for one in made if one.version), "")
    return (
        f"{row.system} {version}".rstrip(),
        _settings(row.settings) or "default",
        row.loss,
        f"{sum(one.found for one in made)} of {len(made)}" if made else "",
        _span([one.seconds for one in made]),
        "" if shown is None else str(len(shown.faults)),
        "" if shown is None else str(shown.counts),
        "" if shown is None else _safe_runs(shown),
    )


def details(row: KnownLoss, made: Sequence[LossSearch]) -> str:
    """The schedule of a row in words, and what else there is to say of it; "" where it was not
    found."""
    shown = best(made)
    if shown is None:
        return ""
    storms = [one.storms for one in made]
    words = [re.sub(r"^\s*[\d.]+ s:?\s+", "", line) for line in shown.faults]
    told = [f"{'; '.join(words)}{'' if shown.shrink_runs else ' (as drawn)'}"]
    told.append(f"Storms: {statistics.median(storms):.0f}")
    if shown.safe_settings is not None:
        told.append(f"Safe: {_settings(shown.safe_settings)}")
    return f"**{row.code}**: {'. '.join(told)}."


def best(made: Sequence[LossSearch]) -> SystemFinding | None:
    """The finding to show: one that fails in most of several runs, then one that was run on the
    safe configuration, then of few faults."""
    found = [one.finding for one in made if one.finding is not None]
    return min(
        found,
        key=lambda one: (not is_steady(one), not is_complete(one), len(one.faults)),
        default=None,
    )


def as_text(rows: Sequence[KnownLoss], made: Sequence[LossSearch]) -> str:
    """A few lines for each row."""
    lines = []
    for row in rows:
        mine = _of(row, made)
        told = zip(HEADINGS, cells(row, mine), strict=True)
        lines.append(f"{row.code}:")
        lines += [f"  {heading}: {cell}" for heading, cell in told if cell]
        lines += [f"  {details(row, mine)}"] if details(row, mine) else []
    return "\n".join(lines)


def as_markdown(rows: Sequence[KnownLoss], made: Sequence[LossSearch]) -> str:
    """The table, and the schedules below it; rows that were never searched are left out."""
    searched = [row for row in rows if _of(row, made)]
    table = [HEADINGS, ("---",) * len(HEADINGS)]
    table += [cells(row, _of(row, made)) for row in searched]
    items = [text for row in searched if (text := details(row, _of(row, made)))]
    lines = [f"| {' | '.join(map(_escaped, words))} |" for words in table]
    return "\n".join([*lines, "", *map(_item, items)])


def put_into(document: str, table: str, marks: tuple[str, str] = (BEGIN, END)) -> str:
    """A document with the table between its marks, or at its end when it has none."""
    section = f"{marks[0]}\n\n{table}\n\n{marks[1]}"
    before, begin, rest = document.partition(marks[0])
    _, end, after = rest.partition(marks[1])
    if begin and end:
        return before + section + after
    return f"{document.rstrip()}\n\n{section}\n".lstrip()


def _of(row: KnownLoss, made: Sequence[LossSearch]) -> list[LossSearch]:
    return [one for one in made if one.code == row.code]


def _settings(settings: dict[str, str]) -> str:
    return " ".join(f"`{name}={value}`" for name, value in settings.items())


def _safe_runs(finding: SystemFinding) -> str:
    """How the safe configuration did under the same schedule."""
    if finding.safe_settings is None:
        return _NONE
    return ", ".join(run.verdict for run in finding.safe_runs) or "not run"


def _span(values: Sequence[float]) -> str:
    """The median, and the least and the most where they differ: `210 s (64 to 480)`."""
    if not values:
        return ""
    text = f"{statistics.median(values):.0f} s"
    if len(values) > 1:
        text += f" ({min(values):.0f} to {max(values):.0f})"
    return text


def _item(text: str) -> str:
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent="* ",
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
