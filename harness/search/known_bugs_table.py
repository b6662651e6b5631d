"""The table of known bugs: as text, as a page of Markdown, and as an HTML page. Pure."""

from __future__ import annotations

import html
import statistics
import textwrap
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from harness.search.known_bugs import CorrectRuns, Entry, SearchTarget

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
KNOWN_FAULTS: Final = {
    "M1": 3,
    "M1b": 2,
    "M1c": 3,
    "M2": 3,
    "M2b": 4,
    "M2d": 3,
    "M2e": 3,
    "M4": 3,
    "M5": 3,
    "M6": 2,
    "M7": 3,
    "M8": 1,
    "M10": 3,
    "M11": 3,
    "M16": 3,
    "M18": 1,
    "M19": 1,
    "M20": 1,
    "M22": 2,
    "M23": 3,
    "R1": 3,
    "R2": 2,
    "R6": 1,
    "LB1": 3,
    "LB2": 2,
    "high-watermark-1": 3,
    "high-watermark-2": 2,
    "kip-101-2": 3,
}
"""Upsets in the shortest schedule that the bug's description (the column *seen in*) needs: each
kill, cut, held message and asked-for election counts as one, what follows by itself as none."""


class ReplayCount(msgspec.Struct, frozen=True, kw_only=True):
    """How often a shrunk schedule failed as expected in real processes.

    `schedule` is its digest. `failing_worlds` is in how many simulated worlds its real schedule
    fails, 0 when there is none.
    """

    code: str
    seed: int
    failed: int
    of: int
    schedule: str = ""
    failing_worlds: int = 0

    @property
    def cell(self) -> str:
        """As the table shows it."""
        return (
            f"{self.failed} of {self.of}" if self.of else "" if self.failing_worlds else "no form"
        )


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One target over all its seeds. `schedules` and `seconds` are medians until the failure; a
    seed without one counts with its whole budget. `faults` are those of the smallest schedule."""

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
        """The row as words, in the order of `HEADINGS`."""
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


def rows(
    search_targets: Iterable[SearchTarget],
    entries: Sequence[Entry],
    replayed: Sequence[ReplayCount],
) -> list[Row]:
    """A row for each target that was searched for, in the order given."""
    return [
        _row(target, mine, [r for r in replayed if r.code == target.code])
        for target in search_targets
        if (mine := [e for e in entries if e.target.code == target.code])
    ]


def best_first(entries: Sequence[Entry]) -> list[Entry]:
    """What was found, the one to show first: fewest faults, then the steadiest, then the first
    seed."""
    found = [entry for entry in entries if entry.found]
    return sorted(found, key=lambda e: (e.faults, -e.stability, e.seed))


def _row(target: SearchTarget, entries: Sequence[Entry], replayed: Sequence[ReplayCount]) -> Row:
    found = best_first(entries)
    shown = found[0] if found else None
    by_seed = {r.seed: r for r in replayed}
    # What has no form for real processes gives way there to the next that has one.
    tried = [by_seed[e.seed] for e in found if e.seed in by_seed]
    real = next((r for r in tried if r.of), tried[0] if tried else None)
    return Row(
        target=target,
        found=len(found),
        seeds=len(entries),
        schedules=statistics.median(e.schedules for e in entries),
        seconds=statistics.median(e.seconds for e in entries),
        faults=None if shown is None else shown.faults,
        stability=None if shown is None else shown.stability,
        real="" if real is None else real.cell,
        bucket="" if shown is None else shown.bucket,
        sentence="" if shown is None else shown.sentence,
    )


def summary(made: Sequence[Row]) -> str:
    """How many were found, in one sentence."""
    found = sum(bool(row.found) for row in made)
    left = [row.target.code for row in made if not row.found]
    still = f"; open: {', '.join(left)}" if left else ""
    return f"{found} of {len(made)} rows found by blind search{still}."


def correct_lines(correct: Sequence[CorrectRuns]) -> list[str]:
    """One sentence for each correct protocol."""
    lines = []
    for name in dict.fromkeys(g.protocol for g in correct):
        mine = [g for g in correct if g.protocol == name]
        findings = sum(len(g.findings) for g in mine)
        versions = ", ".join(map(str, sorted({g.generator_version for g in mine})))
        lines.append(
            f"{name} (generator {versions}): {sum(g.schedules for g in mine):,} schedules, "
            f"{sum(g.virtual_s for g in mine):,.0f} virtual seconds in "
            f"{sum(g.seconds for g in mine):,.0f} s of one core, {findings} findings."
        )
    return lines


def as_text(made: Sequence[Row], correct: Sequence[CorrectRuns]) -> str:
    """For the terminal."""
    shown = [HEADINGS, *(row.cells() for row in made)]
    keep = [n for n in range(len(HEADINGS)) if HEADINGS[n] != "seen in"]
    widths = {n: max(len(cells[n]) for cells in shown) for n in keep}
    lines = ["  ".join(cells[n].ljust(widths[n]) for n in keep).rstrip() for cells in shown]
    return "\n".join([*lines, "", summary(made), *correct_lines(correct)])


def as_markdown(
    made: Sequence[Row], correct: Sequence[CorrectRuns], *, date: str, machine: str
) -> str:
    """Return the table, the findings and the protocols that hold as one page of Markdown."""
    held = "\n".join(_item(line) for line in correct_lines(correct)) or "* None were run yet."
    runs = "\n".join(
        _item(f"**{row.target.code}** `{row.bucket}`: {row.sentence}") for row in made if row.found
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
    """The columns of these headings, as a Markdown table."""
    shown = [HEADINGS, ("---",) * len(HEADINGS), *(row.cells() for row in made)]
    columns = [HEADINGS.index(heading) for heading in headings]
    return "\n".join(f"| {' | '.join(_escaped(cells[n]) for n in columns)} |" for cells in shown)


def _item(text: str) -> str:
    """A list item; no line begins by accident with a mark of Markdown."""
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


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|")


def as_html(made: Sequence[Row], correct: Sequence[CorrectRuns]) -> str:
    """A page that stands alone."""
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
* *real* says how often its real schedule failed on real processes. *No form* means that no
  schedule of any seed has a form that fails in rough simulated worlds.
* An *open* row was not found within its budget.

## Where each bug was seen

{origins}

## Protocols that should hold

Any broken invariant counts here, whether a client saw it or not.

{correct}

## What the shrunk runs show

{runs}
"""
