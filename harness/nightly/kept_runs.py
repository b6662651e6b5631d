"""The choice of the run folders that are kept over all nightly runs.

The journal has the row of every run. A folder (tens of megabytes) is kept only if the run failed,
and only a few for each class of failure."""

from __future__ import annotations

from pathlib import Path

from checker.formats.verdict import Verdict
from harness.formats.nightly_journal import Ran, journal_of, numbers, read
from harness.nightly.counting import real_class
from harness.nightly.plan import CANARY
from harness.runs.run_folder import remove
from node.formats.errors import StorageError

OURS = "nightly-"
"""The prefix of the names of nightly runs' run folders."""


def prune(store: Path, most: int) -> None:
    """Remove folders of real runs until at most `most` of each class of failure are left: one with
    the fewest faults, and the newest. Unreadable journals keep theirs."""
    of_class: dict[tuple[str, ...], list[Ran]] = {}
    for number in reversed(numbers(store)):
        try:
            rows = [row for row in read(journal_of(store, number)) if isinstance(row, Ran)]
        except StorageError:
            continue
        for row in reversed(rows):
            if row.kept.startswith(OURS) and (store / row.kept).is_dir():
                of_class.setdefault(_class(row), []).append(row)
    for newest in of_class.values():
        # The index shows this one.
        newest.remove(smallest := min(newest, key=lambda row: row.faults))
        for row in [smallest, *newest][most:]:
            remove(store / row.kept, store)


def _class(run: Ran) -> tuple[str, ...]:
    if run.why == CANARY:
        return (CANARY,)
    if run.verdict == Verdict.INVALID:
        return real_class(run)[:3]
    return (run.protocol, run.verdict)
