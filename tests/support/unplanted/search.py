"""Searches blindly for the bugs that nobody planted, and keeps how long each search took.

    python -m tests.support.unplanted.search [--seconds 60] [--seeds 3] [--only U01 ...]
        [--store store] [--page docs/unplanted-bugs.md]

The search is that of `floodmark bugs find` without shrinking: the same schedules for every bug of a
protocol, with their escalations. A find is a run that breaks a property with the bug and breaks no
property without it. Each search runs in a process of its own, from sources, one at a time; every
result is a file in `store/unplanted-bugs/`, and a search that found nothing continues where it
stopped when it is given more time. Searches of another generator are made again.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from harness.search.attempt import attempt
from harness.search.generator import GENERATOR_VERSION
from harness.search.known_bugs import Entry
from harness.search.real.losses_table import put_into
from harness.sim.compiled import PURE
from node.formats.files import write_whole
from tests.support.paths import ROOT
from tests.support.unplanted.replacements import UnplantedBug, unplanted_bugs

STORE_FOLDER: Final = "unplanted-bugs"
MARKS: Final = ("<!-- unplanted bugs: written by the search -->", "<!-- end of unplanted bugs -->")
ROUNDS_S: Final = (20.0, 60.0)
"""All searches get the first before any gets the next: most finds need less."""
_HEADINGS: Final = (
    "code",
    "bug",
    "file",
    "under",
    "class",
    "found",
    "breaks",
    "schedules",
    "core s",
)


def searched(bug: UnplantedBug, seed: int, seconds: float, before: Entry | None) -> Entry:
    """Search for one bug, for at most `seconds` of processor time in all."""
    while True:
        entry = _in_child(bug, seed, seconds, before)
        if not entry.found or entry.schedule is None:
            return entry
        if entry.target.breaks not in attempt(entry.schedule, stop_at="never").broken:
            return entry
        # The protocol breaks here by itself: it was not the bug.
        before = replace(entry, found=False, schedule=None, others=entry.others + 1)


def _in_child(bug: UnplantedBug, seed: int, seconds: float, before: Entry | None) -> Entry:
    """Search in a process that has the bug. Raises CalledProcessError when it fails."""
    order = msgspec.json.encode((bug.code, seed, seconds, before))
    made = subprocess.run(
        [sys.executable, "-m", "tests.support.unplanted.child"],
        input=order,
        stdout=subprocess.PIPE,
        check=True,
        cwd=ROOT,
        env={**os.environ, PURE: "1"},
        timeout=100 * seconds + 600,
    )
    return msgspec.json.decode(made.stdout, type=Entry)


def search_all(
    bugs: Sequence[UnplantedBug], seeds: int, seconds: float, folder: Path
) -> list[Entry]:
    """Every search that is not made yet, seed by seed; returns all results of these bugs."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(seeds):
        for limit_s in sorted({min(limit_s, seconds) for limit_s in (*ROUNDS_S, seconds)}):
            for bug in bugs:
                file = folder / f"{bug.code}-{seed}.entry.json".lower()
                before = _kept(file)
                if before is not None and (before.found or before.seconds >= limit_s):
                    continue
                entry = searched(bug, seed, limit_s, before)
                write_whole(file, msgspec.json.encode(entry))
                print(_line(bug, entry), flush=True)
    files = (
        folder / f"{bug.code}-{seed}.entry.json".lower() for bug in bugs for seed in range(seeds)
    )
    return [entry for file in files if (entry := _kept(file)) is not None]


def _kept(file: Path) -> Entry | None:
    """An earlier result, None where there is none of this generator."""
    if not file.is_file():
        return None
    entry = msgspec.json.decode(file.read_bytes(), type=Entry)
    return entry if entry.generator_version == GENERATOR_VERSION else None


def _line(bug: UnplantedBug, entry: Entry) -> str:
    what = f"{bug.code} ({bug.name}), seed {entry.seed}"
    effort = f"{entry.schedules:,} schedules, {entry.seconds:.0f} s"
    if not entry.found:
        return f"{what}: open after {effort}"
    return f"{what}: {entry.target.breaks} after {effort}: {entry.sentence}"


def table(bugs: Iterable[UnplantedBug], entries: Sequence[Entry]) -> str:
    """All bugs with what the searches found, and the share of those that lose data."""
    lines = ["| " + " | ".join(_HEADINGS) + " |", "|" + " --- |" * len(_HEADINGS)]
    found: dict[str, list[list[bool]]] = {}
    for bug in bugs:
        mine = [entry for entry in entries if entry.target.code == bug.code]
        hits = [entry for entry in mine if entry.found]
        found.setdefault(bug.kind, []).append([entry.found for entry in mine])
        cells = (
            bug.code,
            bug.name,
            Path(bug.file).stem,
            bug.protocol,
            bug.kind,
            f"{len(hits)} of {len(mine)}" if mine else "",
            hits[0].target.breaks if hits else "",
            f"{statistics.median(e.schedules for e in mine):,.0f}" if mine else "",
            f"{statistics.median(e.seconds for e in mine):.0f}" if mine else "",
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *(_share(kind, hits) for kind, hits in found.items())])


def _share(kind: str, hits: Sequence[list[bool]]) -> str:
    """How many bugs of a class at least one search found, and in how many searches."""
    bugs, searches = sum(map(any, hits)), [hit for each in hits for hit in each]
    return (
        f"* {kind}: {bugs} of {len(hits)} bugs found ({bugs / len(hits):.0%}), "
        f"in {sum(searches)} of {len(searches)} searches"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.unplanted.search")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--store", type=Path, default=Path("store"))
    parser.add_argument("--page", type=Path)
    given = parser.parse_args(arguments)
    bugs = [bug for bug in unplanted_bugs() if not given.only or bug.code in given.only]
    entries = search_all(bugs, given.seeds, given.seconds, given.store / STORE_FOLDER)
    text = table(bugs, entries)
    print(text)
    if given.page is not None:
        before = given.page.read_text("utf-8") if given.page.is_file() else ""
        write_whole(given.page, put_into(before, text, MARKS).encode())


if __name__ == "__main__":
    main()
