"""What stays of the real runs of all nights: of each class a few folders, of the others their rows.

A journal keeps the row of every run, with its verdict and sentence; a folder has tens of megabytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from checker.formats.verdict import Verdict
from harness.formats.nightly_journal import Judged, Ran, journal_of, numbers, read
from harness.nightly.summary import CANARY, real_class
from harness.nightly.verdicts import remove
from node.formats.errors import StorageError

OURS: Final = "night-"


class _Kept(NamedTuple):
    """A run folder within the store, the night it is of, and how many faults it took."""

    folder: str
    night: int
    faults: int


def prune(store: Path, most: int) -> list[str]:
    """Remove the folders of real runs of nights beyond `most` of each class: the smallest and the
    newest stay. Returns what was removed. Of a night whose journal cannot be read nothing is."""
    removed = []
    for kept in _by_class(store).values():
        if len(kept) <= most:
            continue
        # The index shows this one: the smallest, and of those the latest night's first.
        smallest = min(kept, key=lambda one: (one.faults, -one.night))
        newest = [one for one in reversed(kept) if one != smallest]
        for one in newest[max(0, most - 1) :]:
            remove(store / one.folder)
            removed.append(one.folder)
    return removed


def _by_class(store: Path) -> dict[tuple[str, ...], list[_Kept]]:
    """The folders that are there, oldest first, by what their runs are filed under."""
    found: dict[tuple[str, ...], list[_Kept]] = {}
    for number in numbers(store):
        try:
            lines = read(journal_of(store, number))
        except StorageError:
            continue
        ran = {row.key: row for row in lines if isinstance(row, Ran)}
        for row in lines:
            if not isinstance(row, Judged) or not row.kept.startswith(OURS) or row.key not in ran:
                continue
            if (store / row.kept).is_dir():
                kept = _Kept(row.kept, number, row.faults)
                found.setdefault(_class(ran[row.key], row), []).append(kept)
    return found


def _class(run: Ran, row: Judged) -> tuple[str, ...]:
    if run.why == CANARY:
        return (CANARY,)
    if row.verdict == Verdict.INVALID:
        return real_class(run, row)[:3]
    return (run.protocol, row.verdict)
