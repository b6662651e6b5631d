"""The museum's table: as text, as Markdown for docs/museum.md, and as a page. Pure."""

from __future__ import annotations

import html
import statistics
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from harness.search.known_bugs import Entry, Guarded, Target

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
    "kip-101-1": 3,
}
"""Upsets in the shortest schedule that the bug's description (the column *seen in*) needs: each
kill, cut, held message and asked-for election counts as one, what follows by itself as none."""


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """How often a shrunk schedule failed as expected in real processes.

    `schedule` is its digest; `surely` is in how many simulated worlds its form for real processes
    fails, 0 when there is none.
    """

    code: str
    seed: int
    failed: int
    of: int
    schedule: str = ""
    surely: int = 0

    @property
    def cell(self) -> str:
        """As the table shows it."""
        return f"{self.failed} of {self.of}" if self.of else "" if self.surely else "no form"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One exhibit over all its seeds. `schedules` and `seconds` are medians until the failure; a
    seed without one counts with its whole budget. `faults` are those of the smallest schedule."""

    exhibit: Target
    found: int
    seeds: int
    schedules: float
    seconds: float
    faults: int | None = None
    steady: int | None = None
    real: str = ""
    bucket: str = ""
    sentence: str = ""

    def cells(self) -> tuple[str, ...]:
        """The row as words, in the order of `HEADINGS`."""
        e = self.exhibit
        found = f"{self.found} of {self.seeds}" if self.found else OPEN
        faults = "" if self.faults is None else str(self.faults)
        steady = "" if self.steady is None else f"{self.steady} of 20"
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
    exhibits: Iterable[Target], entries: Sequence[Entry], replayed: Sequence[Replayed]
) -> list[Row]:
    """A row for each exhibit that was searched for, in the order given."""
    return [
        _row(exhibit, mine, [r for r in replayed if r.code == exhibit.code])
        for exhibit in exhibits
        if (mine := [e for e in entries if e.exhibit.code == exhibit.code])
    ]


def best_first(entries: Sequence[Entry]) -> list[Entry]:
    """What was found, the one to show first: fewest faults, then the steadiest, then the first
    seed."""
    found = [entry for entry in entries if entry.found]
    return sorted(found, key=lambda e: (e.faults, -e.steady, e.seed))


def _row(exhibit: Target, entries: Sequence[Entry], replayed: Sequence[Replayed]) -> Row:
    found = best_first(entries)
    shown = found[0] if found else None
    by_seed = {r.seed: r for r in replayed}
    # What has no form for real processes gives way there to the next that has one.
    tried = [by_seed[e.seed] for e in found if e.seed in by_seed]
    real = next((r for r in tried if r.of), tried[0] if tried else None)
    return Row(
        exhibit=exhibit,
        found=len(found),
        seeds=len(entries),
        schedules=statistics.median(e.schedules for e in entries),
        seconds=statistics.median(e.seconds for e in entries),
        faults=None if shown is None else shown.faults,
        steady=None if shown is None else shown.steady,
        real="" if real is None else real.cell,
        bucket="" if shown is None else shown.bucket,
        sentence="" if shown is None else shown.sentence,
    )


def summary(made: Sequence[Row]) -> str:
    """How many were found, in one sentence."""
    found = sum(bool(row.found) for row in made)
    left = [row.exhibit.code for row in made if not row.found]
    still = f"; open: {', '.join(left)}" if left else ""
    return f"{found} of {len(made)} exhibits found by blind search{still}."


def guarded_lines(guarded: Sequence[Guarded]) -> list[str]:
    """One sentence for each correct protocol."""
    lines = []
    for name in dict.fromkeys(g.protocol for g in guarded):
        mine = [g for g in guarded if g.protocol == name]
        findings = sum(len(g.findings) for g in mine)
        lines.append(
            f"{name}: {sum(g.schedules for g in mine):,} schedules, "
            f"{sum(g.virtual_s for g in mine):,.0f} virtual seconds in "
            f"{sum(g.seconds for g in mine):,.0f} s of one core, {findings} findings."
        )
    return lines


def as_text(made: Sequence[Row], guarded: Sequence[Guarded]) -> str:
    """For the terminal."""
    shown = [HEADINGS, *(row.cells() for row in made)]
    keep = [n for n in range(len(HEADINGS)) if HEADINGS[n] != "seen in"]
    widths = {n: max(len(cells[n]) for cells in shown) for n in keep}
    lines = ["  ".join(cells[n].ljust(widths[n]) for n in keep).rstrip() for cells in shown]
    return "\n".join([*lines, "", summary(made), *guarded_lines(guarded)])


def as_markdown(made: Sequence[Row], guarded: Sequence[Guarded], *, date: str, machine: str) -> str:
    """The whole of docs/museum.md."""
    table = [HEADINGS, ("---",) * len(HEADINGS), *(row.cells() for row in made)]
    correct = "\n".join(f"* {line}" for line in guarded_lines(guarded)) or "* None were run yet."
    stories = "\n".join(
        f"* **{row.exhibit.code}** `{row.bucket}`: {row.sentence}" for row in made if row.found
    )
    return _PAGE.format(
        date=date,
        machine=machine,
        summary=summary(made),
        correct=correct,
        stories=stories,
        table="\n".join(f"| {' | '.join(map(_escaped, cells))} |" for cells in table),
    )


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|")


def as_html(made: Sequence[Row], guarded: Sequence[Guarded]) -> str:
    """A page that stands alone."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in HEADINGS)
    body = "\n".join(
        f"<tr{'' if row.found else ' class=open'}>"
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in row.cells())
        + f"</tr>\n<tr class=told><td></td><td colspan={len(HEADINGS) - 1}>"
        + f"{html.escape(row.sentence)}</td></tr>"
        for row in made
    )
    said = "".join(f"<li>{html.escape(line)}</li>" for line in guarded_lines(guarded))
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><title>floodmark museum</title><style>"
        "body{font:15px/1.5 system-ui,sans-serif;margin:2em}table{border-collapse:collapse}"
        "td,th{padding:.2em .7em;text-align:left;border-top:1px solid #ccc}.told td{border:0;"
        "color:#555;padding-bottom:.6em}.open td{background:#fff3d6}</style>"
        f"<h1>Museum</h1><p>{html.escape(summary(made))}</p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"
        f"<h2>Protocols that should hold</h2><ul>{said}</ul></html>\n"
    )


_PAGE: Final = """# The museum

Written by `floodmark museum` on {date} ({machine}).

Each row is a known bug, turned on by a bug in a protocol that is correct without it, or a
promise that a faulty protocol is known to break. Nobody wrote a schedule for it: the search draws
small clusters, short workloads and chains of generic faults, the same for every row, until a run
in the simulated world breaks the property that the row names. That run is then cut down to the
faults it needs. Where a run breaks an invariant inside the cluster and nobody is harmed, it is made
again with the worst that can follow: only who lacks something lives on. What is found must hold
with the bug turned off.

{summary}

{table}

*schedules* and *core s* (seconds of one core) are medians over the seeds until the first such
failure; a seed without one counts with all it was given. *faults* are those of the smallest
schedule, *known* those that the bug's description needs. *steady* says in how many of 20 moods of
the network, every message up to a few milliseconds late, that schedule still fails; *real*, how
often its form for real processes failed there (*no form*: none was found that fails in rough
simulated worlds, for no seed's schedule). An *open* row was not found within its budget.

## Protocols that should hold

Any broken invariant counts here, seen by a client or not.

{correct}

## What the shrunk runs show

{stories}
"""
