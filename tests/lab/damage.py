"""Damages many copies of run folders, judges each, and counts the verdicts that are wrong.

    python -m tests.lab damage --copies 2000 RUN RUN ...

The n-th copy of a run and its damage depend on n alone. A verdict is wrong if a damaged copy is
anything but unknown. (run.json may also say the same in another way, with other white space, say:
then the verdict must be that of the whole run.)"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from checker.engine.local import check_run
from checker.formats.verdict import Verdict
from harness.formats.seal import digest_of_run
from node.formats.json_input import Unreadable, read_file
from tests.support.tampering import CHANGES, damage, evidence

_NOT_EVIDENCE = ("tables", "output", "data", "plots", "report.html", "results.json", "checked.json")


class Tried(NamedTuple):
    """One damaged copy: what was done to which file, and the verdicts before and after."""

    number: int
    run: str
    file: str
    change: str
    before: Verdict
    after: Verdict
    wrong: bool


def try_copy(number: int, folder: Path, before: Verdict, copy: Path) -> Tried | None:
    """Judge one damaged copy; None where the damage drawn changed nothing."""
    rng = random.Random(f"copy {number}")
    file, change = rng.choice(evidence(folder)), rng.choice(sorted(CHANGES))
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns(*_NOT_EVIDENCE))
    if not damage(copy, file, CHANGES[change], rng):
        return None
    after = check_run(copy).verdict
    same = file == "run.json" and _says_the_same(folder, copy)
    wrong = after is not before if same else after is not Verdict.UNKNOWN
    return Tried(number, folder.parent.name, file, change, before, after, wrong)


def _says_the_same(folder: Path, copy: Path) -> bool:
    try:
        one, other = (read_file(each / "run.json", dict[str, Any]) for each in (folder, copy))
    except (OSError, Unreadable):
        return False
    return digest_of_run(one) == digest_of_run(other) and one.get("seal") == other.get("seal")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the campaign."""
    parser.add_argument("--copies", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, help="number of the first copy")
    parser.add_argument("runs", type=Path, nargs="+")


def run(given: argparse.Namespace) -> int:
    """Try the copies, print a table; the exit code is 1 if a verdict was wrong."""
    runs = [(folder.resolve(), check_run(folder.resolve()).verdict) for folder in given.runs]
    tried: list[Tried] = []
    number = given.first
    with tempfile.TemporaryDirectory(prefix="floodmark-damage-") as place:
        while len(tried) < given.copies:
            folder, before = runs[number % len(runs)]
            found = try_copy(number, folder, before, Path(place) / folder.name)
            number += 1
            if found is not None:
                tried.append(found)
                if found.wrong:
                    print(f"WRONG: {found}")
    counts = Counter((each.change, each.before, each.after) for each in tried)
    for (change, before, after), count in sorted(counts.items()):
        print(f"{change:20} {before:14} -> {after:14} {count:5}")
    wrong = sum(each.wrong for each in tried)
    print(f"{len(tried)} damaged copies of {len(runs)} runs, {wrong} wrong verdicts")
    return int(wrong > 0)
