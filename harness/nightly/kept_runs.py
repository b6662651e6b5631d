"""The choice of the run folders that are kept over all nightly runs.

The journal has the row of every run. A folder (tens of megabytes) is kept only if the run failed,
and only a few for each class of failure."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from checker.formats.verdict import Verdict
from harness.formats.nightly_journal import Ran, journal_of, numbers, read
from harness.nightly.summary import CANARY, real_class
from harness.runs.run_folder import remove
from node.formats.errors import StorageError

OURS: Final = "nightly-"
"""The prefix of the names of nightly runs' run folders."""


class _Kept(NamedTuple):
    """A run folder within the store, the nightly run it is of, and how many faults it took."""

    folder: str
    nightly: int
    faults: int


def prune(store: Path, most: int) -> list[str]:
    """Remove folders of real runs until at most `most` of each class of failure are left: one with
    the fewest faults, and the newest. Return the removed ones. Unreadable journals keep theirs."""
    removed = []
    for kept in _by_class(store).values():
        if len(kept) <= most:
            continue
        # The index shows this one: the smallest, and of those the latest nightly run's first.
        smallest = min(kept, key=lambda one: (one.faults, -one.nightly))
        newest = [one for one in reversed(kept) if one != smallest]
        for one in newest[max(0, most - 1) :]:
            remove(store / one.folder, store)
            removed.append(one.folder)
    return removed


def _by_class(store: Path) -> dict[tuple[str, ...], list[_Kept]]:
    """Return the folders of runs, oldest first, by the class of the run."""
    found: dict[tuple[str, ...], list[_Kept]] = {}
    for number in numbers(store):
        try:
            lines = read(journal_of(store, number))
        except StorageError:
            continue
        for row in lines:
            if not isinstance(row, Ran) or not row.kept.startswith(OURS):
                continue
            if (store / row.kept).is_dir():
                kept = _Kept(row.kept, number, row.faults)
                found.setdefault(_class(row), []).append(kept)
    return found


def _class(run: Ran) -> tuple[str, ...]:
    if run.why == CANARY:
        return (CANARY,)
    if run.verdict == Verdict.INVALID:
        return real_class(run)[:3]
    return (run.protocol, run.verdict)
