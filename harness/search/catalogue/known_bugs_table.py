"""The table of known bugs and how they were found: as text, Markdown and HTML. Pure."""

from __future__ import annotations

import html
import statistics
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from harness.formats.journal import Searched
from harness.search.catalogue.known_bugs import KNOWN_FAULTS, SearchTarget

if TYPE_CHECKING:
    from harness.search.catalogue.find_bugs import BugState

HEADINGS: Final = (
    "code",
    "bug",
    "seen in",
    "under",
    "must break",
    "found",
    "schedules",
    "core s",
    "faults",
    "known",
    "steady",
    "real",
)
ORIGIN: Final = ("code", "bug", "seen in")
RESULT: Final = tuple(name for name in HEADINGS if name not in {"bug", "seen in"})
WIDTH: Final = 118
OPEN: Final = "open"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """The results for one known bug over all seeds. `found` of `seeds` searches found it.
    `schedules` and `seconds` are medians until then; a search in vain counts with its whole budget.
    `faults` is the number of faults of the smallest schedule."""

    target: SearchTarget
    found: int
    seeds: int
    schedules: float
    seconds: float
    faults: int | None = None
    stability: int | None = None
    real: str = ""
    bucket: str = ""
    sentence: str = ""

    def cells(self) -> tuple[str, ...]:
        """Return the cells of the table row, in the order of `HEADINGS`."""
        e = self.target
        found = f"{self.found} of {self.seeds}" if self.found else OPEN
        faults = "" if self.faults is None else str(self.faults)
        steady = "" if self.stability is None else f"{self.stability} of 20"
        known = str(KNOWN_FAULTS.get(e.code, ""))
        return (
            e.code,
            e.name,
            e.source,
            e.protocol,
            e.breaks,
            found,
            f"{self.schedules:,.0f}",
            f"{self.seconds:,.0f}",
            faults,
            known,
            steady,
            self.real,
        )


def rows(targets: Iterable[SearchTarget], states: Iterable[BugState]) -> list[Row]:
    """Return a row for each target that was searched for, in the order of `targets`."""
    known = list(states)
    return [
        _row(target, mine)
        for target in targets
        if (mine := [state for state in known if state.target.code == target.code])
    ]


def best_first(states: Iterable[BugState]) -> list[BugState]:
    """Return the searches that found the bug: by fewest faults, then stability, then seed."""
    found = [state for state in states if state.finding is not None]
    return sorted(found, key=_rank)


def _rank(state: BugState) -> tuple[int, int, int]:
    assert state.finding is not None
    return len(state.finding.faults), -state.finding.stability, state.seed


def _row(target: SearchTarget, states: Sequence[BugState]) -> Row:
    found = best_first(states)
    shown = found[0].finding if found else None
    # What has no form for real processes gives way there to the next that has one.
    replayed = [f"{state.real_failed} of {state.real_runs}" for state in found if state.real_runs]
    return Row(
        target=target,
        found=len(found),
        seeds=len(states),
        schedules=statistics.median(state.schedules for state in states),
        seconds=statistics.median(state.core_s for state in states),
        faults=None if shown is None else len(shown.faults),
        stability=None if shown is None or shown.stability < 0 else shown.stability,
        real=replayed[0] if replayed else "",
        bucket="" if shown is None else shown.bucket,
        sentence="" if shown is None else shown.sentence,
    )


def summary(made: Sequence[Row]) -> str:
    """Return a sentence on how many known bugs were found, and which were not."""
    found = sum(bool(row.found) for row in made)
    left = [row.target.code for row in made if not row.found]
    still = f"; open: {', '.join(left)}" if left else ""
    return f"{found} of {len(made)} rows found by blind search{still}."


def correct_lines(correct: Sequence[Searched]) -> list[str]:
    """Return a sentence on each correct protocol: how much was searched, how many failures."""
    lines = []
    for name in dict.fromkeys(row.protocol for row in correct):
        mine = [row for row in correct if row.protocol == name]
        versions = ", ".join(map(str, sorted({row.generator for row in mine})))
        lines.append(
            f"{name} (generator {versions}): {sum(row.schedules for row in mine):,} schedules, "
            f"{sum(row.virtual_us for row in mine) / 1e6:,.0f} virtual seconds in "
            f"{sum(row.core_s for row in mine):,.0f} s of one core, "
            f"{sum(row.failures for row in mine)} failures."
        )
    return lines


def as_text(made: Sequence[Row], correct: Sequence[Searched]) -> str:
    shown = [HEADINGS, *(row.cells() for row in made)]
    keep = [n for n in range(len(HEADINGS)) if HEADINGS[n] != "seen in"]
    widths = {n: max(len(cells[n]) for cells in shown) for n in keep}
    lines = ["  ".join(cells[n].ljust(widths[n]) for n in keep).rstrip() for cells in shown]
    return "\n".join([*lines, "", summary(made), *correct_lines(correct)])


def as_markdown(
    made: Sequence[Row], correct: Sequence[Searched], *, date: str, machine: str
) -> str:
    """Return the table, the findings and the results of correct protocols as a page of Markdown."""
    held = "\n".join(item(line) for line in correct_lines(correct)) or "* None were run yet."
    runs = "\n".join(
        item(f"**{row.target.code}** `{row.bucket}`: {row.sentence}") for row in made if row.found
    )
    return _PAGE.format(
        date=date,
        machine=machine,
        summary=_wrapped(summary(made)),
        correct=held,
        runs=runs,
        origins=_table(made, ORIGIN),
        results=_table(made, RESULT),
    )


def _table(made: Sequence[Row], headings: Sequence[str]) -> str:
    """Return the columns of these headings, as a Markdown table."""
    shown = [HEADINGS, ("---",) * len(HEADINGS), *(row.cells() for row in made)]
    columns = [HEADINGS.index(heading) for heading in headings]
    return "\n".join(f"| {' | '.join(escaped(cells[n]) for n in columns)} |" for cells in shown)


def item(text: str) -> str:
    """Return a list item; no line begins by accident with a mark of Markdown."""
    return _wrapped(text, "* ", "  ")


def _wrapped(text: str, first: str = "", rest: str = "") -> str:
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def escaped(cell: str) -> str:
    return cell.replace("|", "\\|").replace("\n", " ")


def as_html(made: Sequence[Row], correct: Sequence[Searched]) -> str:
    """Return the table, and the searches of `correct` protocols, as HTML without other files."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in HEADINGS)
    body = "\n".join(
        f"<tr{'' if row.found else ' class=open'}>"
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in row.cells())
        + f"</tr>\n<tr class=sentence><td></td><td colspan={len(HEADINGS) - 1}>"
        + f"{html.escape(row.sentence)}</td></tr>"
        for row in made
    )
    said = "".join(f"<li>{html.escape(line)}</li>" for line in correct_lines(correct))
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><title>floodmark bugs</title><style>"
        "body{font:15px/1.5 system-ui,sans-serif;margin:2em}table{border-collapse:collapse}"
        "td,th{padding:.2em .7em;text-align:left;border-top:1px solid #ccc}.sentence td{border:0;"
        "color:#555;padding-bottom:.6em}.open td{background:#fff3d6}</style>"
        f"<h1>Known bugs</h1><p>{html.escape(summary(made))}</p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"
        f"<h2>Protocols that should hold</h2><ul>{said}</ul></html>\n"
    )


_PAGE: Final = """# Known bugs

Written by `floodmark bugs find` on {date} ({machine}).

Each row is either a known bug, turned on in a protocol that is correct without it, or a promise
that a faulty protocol is known to break. No schedule is written by hand. The search draws small
clusters, short workloads and sequences of generic faults. It draws the same for every row, until a
run in the simulated world breaks the property that the row names. The shrinker then removes the
faults that are not needed. If a run breaks an invariant inside the cluster but harms no client,
floodmark repeats it with the worst ending: only the replicas that lack a record survive. The
failure must disappear when the bug is turned off.

{summary}

## Results

{results}

* *schedules* and *core s* (seconds of one core) are medians over the seeds until the first such
  failure. A seed without one counts with its whole budget.
* *faults* counts the faults of the smallest schedule; *known* counts those that the description
  of the bug needs.
* *steady* says under how many of 20 jitter seeds the smallest schedule still fails. A jitter seed
  makes every message up to a few milliseconds late.
* *real* says how often its real schedule failed on real processes, if it has one.
* An *open* row was not found within its budget.

## Where each bug was seen

{origins}

## Protocols that should hold

Any broken invariant counts here, whether a client saw it or not.

{correct}

## What the shrunk runs show

{runs}
"""
