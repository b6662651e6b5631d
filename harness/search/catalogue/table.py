"""The one table of known bugs, promises and known losses: as text and as Markdown. Pure."""

from __future__ import annotations

import re
import statistics
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from harness.formats.finding import Finding
from harness.search.catalogue.catalogue import Entry, EntryResult
from harness.search.catalogue.known_bugs import settings_text
from node.formats.files import write_whole

HEADINGS: Final = (
    "code",
    "on",
    "breaks",
    "found",
    "time",
    "schedules",
    "faults",
    "fails in",
    "safe runs",
)
BEGIN: Final = "<!-- table: written by `floodmark bugs find --page` -->"
END: Final = "<!-- end of the table -->"
WIDTH: Final = 118


def rows(wanted: Sequence[Entry], results: Sequence[EntryResult]) -> list[tuple[str, ...]]:
    """Return the cells of each entry that was searched for, in the order of `HEADINGS`."""
    return [_cells(entry, mine) for entry in wanted if (mine := _of(entry, results))]


def _cells(entry: Entry, results: Sequence[EntryResult]) -> tuple[str, ...]:
    """Return the cells of an entry. A search without a finding counts with its whole time."""
    shown = best(entry, results)
    version = next((one.version for one in results if one.version), "")
    return (
        entry.code,
        entry.on(version),
        entry.what,
        f"{sum(one.found for one in results)} of {len(results)}",
        _span([one.seconds for one in results]),
        f"{statistics.median(one.schedules for one in results):,.0f}",
        "" if shown is None else str(len(shown.faults)),
        "" if shown is None else str(shown.counts),
        "" if shown is None else _safe_runs(shown),
    )


def best(entry: Entry, results: Sequence[EntryResult]) -> Finding | None:
    """Return the finding to show, None if there is none. One that fails in most runs comes first,
    then one that was run on the safe configuration, then one with few faults."""
    found = [one.finding for one in results if one.finding is not None]

    def rank(one: Finding) -> tuple[bool, bool, int]:
        return not entry.settles(one), not entry.is_complete(one), len(one.faults)

    return min(found, key=rank, default=None)


def details(entry: Entry, results: Sequence[EntryResult]) -> str:
    """Return a paragraph on the smallest schedule of an entry; "" if there is none."""
    shown = best(entry, results)
    if shown is None:
        return ""
    faults = [re.sub(r"^\s*[\d.]+ s:?\s+", "", line) for line in shown.faults]
    words = [
        f"{'; '.join(faults) or 'no fault is needed'}{'' if shown.shrink_runs else ' (as drawn)'}"
    ]
    if shown.safe_settings:
        words.append(f"Safe: {settings_text(shown.safe_settings)}")
    if entry.note:
        words.append(entry.note)
    return f"**{entry.code}** `{shown.bucket}`: {'. '.join(words)}."


def summary(wanted: Sequence[Entry], results: Sequence[EntryResult]) -> str:
    """Return a sentence on how many entries were found, and which are open."""
    found = {one.code for one in results if one.found}
    left = [entry.code for entry in wanted if entry.code not in found]
    still = f"; open: {', '.join(left)}" if left else ""
    return f"{len(wanted) - len(left)} of {len(wanted)} found by blind search{still}."


def as_text(wanted: Sequence[Entry], results: Sequence[EntryResult]) -> str:
    """Return the table for a terminal, with the smallest schedules below."""
    table = [HEADINGS, *rows(wanted, results)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
        for cells in table
    ]
    return "\n".join([*lines, "", *_details(wanted, results), summary(wanted, results)])


def as_markdown(wanted: Sequence[Entry], results: Sequence[EntryResult]) -> str:
    """Return the table in Markdown, with the smallest schedules below."""
    table = [HEADINGS, ("---",) * len(HEADINGS), *rows(wanted, results)]
    lines = [f"| {' | '.join(map(_escaped, cells))} |" for cells in table]
    texts = [*_details(wanted, results), summary(wanted, results)]
    return "\n".join([*lines, "", *map(_item, texts)])


def put_into_file(file: Path, section: Callable[[str], str], marks: tuple[str, str]) -> None:
    """Replace the section of a document between two marks, or add it at its end. `section` gets the
    document. Raises StorageError."""
    before = file.read_text("utf-8") if file.is_file() else ""
    write_whole(file, put_into(before, section(before), marks).encode())


def put_into(document: str, table: str, marks: tuple[str, str] = (BEGIN, END)) -> str:
    """Return a document with the table between the two marks, or at its end if it has no marks."""
    section = f"{marks[0]}\n\n{table}\n\n{marks[1]}"
    before, begin, rest = document.partition(marks[0])
    _, end, after = rest.partition(marks[1])
    if begin and end:
        return before + section + after
    return f"{document.rstrip()}\n\n{section}\n".lstrip()


def _details(wanted: Sequence[Entry], results: Sequence[EntryResult]) -> list[str]:
    return [text for entry in wanted if (text := details(entry, _of(entry, results)))]


def _of(entry: Entry, results: Sequence[EntryResult]) -> list[EntryResult]:
    return [one for one in results if one.code == entry.code]


def _safe_runs(finding: Finding) -> str:
    """Return the result of the safe configuration under the same schedule."""
    if finding.safe_settings is None:
        return ""
    return ", ".join(run.verdict for run in finding.safe_runs) or "not run"


def _span(values: Sequence[float]) -> str:
    """Return the median, and the least and the most where they differ: `210 s (64 to 480)`."""
    text = f"{statistics.median(values):.0f} s"
    if len(values) > 1:
        text += f" ({min(values):.0f} to {max(values):.0f})"
    return text


def _item(text: str) -> str:
    """Return a list item; no line begins by accident with a mark of Markdown."""
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent="* ",
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|").replace("\n", " ")
