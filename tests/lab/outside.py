"""Runs judged by the invariants of the KIP-966 model instead of our checks.

    python -m tests.lab outside RUN ...

The exit code is 0 if all hold, 1 if one does not, 2 if a run cannot be judged."""

from __future__ import annotations

import argparse
from pathlib import Path

from checker.formats.verdict import EXIT_CODES, Verdict, worst
from node.formats.errors import UsageError
from node.formats.host_errors import reason
from node.formats.json_input import Unreadable
from tests.lab.outside_judge.judge import INVARIANTS
from tests.lab.outside_judge.run_folder import judge_folder


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the runs."""
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders")


def run(given: argparse.Namespace) -> int:
    """Judge runs by the model; print which invariants do not hold. Raises UsageError for a folder
    that holds no whole run."""
    return EXIT_CODES[worst(_judge(folder) for folder in given.runs)]


def _judge(folder: Path) -> Verdict:
    try:
        found = judge_folder(folder)
    except (OSError, Unreadable, KeyError) as error:
        raise UsageError(f"{folder}: not a whole run: {reason(error)}") from None
    if found.why_not:
        print(f"{folder}: not judged: {found.why_not}")
        return Verdict.UNKNOWN
    if not found.judge.broken:
        events = found.judge.events
        print(f"{folder}: {len(INVARIANTS)} invariants hold over {events:,} trace events")
        return Verdict.VALID
    for each in found.judge.broken:
        where = f"{each.partition} at {each.t_us} us, turn of {each.node}"
        print(f"{folder}: {each.invariant} does not hold ({where}): {each.sentence}")
    return Verdict.INVALID
