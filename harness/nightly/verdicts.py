"""The verdicts on the real runs of nightly runs, and which of their folders are kept.

All runs that wait are judged together. The journal keeps the row of every run. A folder, which has
tens of megabytes, is kept only if the run failed, and of each class of failure only a few.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from checker.formats.verdict import RunResult, Verdict
from harness.formats.nightly_journal import Judged, NightlyJournal, Ran, journal_of, numbers, read
from harness.nightly.environment import NightlyEnvironment
from harness.nightly.plan import is_expected_of
from harness.nightly.summary import CANARY, real_class
from harness.replay.replay import broken_classes, broken_properties
from harness.runs.judge import build_page
from harness.runs.run_folder import remove
from harness.search.fault_coverage import fault_coverage
from nemesis.formats.fault_log import FaultLine
from node.formats.errors import StorageError
from node.formats.json_input import JsonReader, Unreadable

Form = TypeVar("Form")

OURS: Final = "nightly-"
"""How the names of run folders of nightly runs begin."""
KEPT_EXPECTED: Final = 2
"""Of each protocol that is known to fail, of each configuration of another system that is not safe,
and of the canary, so many failing runs a nightly run stay."""
_KEEPING: Final = (Verdict.INVALID, Verdict.UNKNOWN)


class Verdicted(NamedTuple):
    """A row to write, and what to do when it is written."""

    judged: Judged
    tidy: Callable[[], None]


def judge_all(
    store: Path, journal: NightlyJournal, environment: NightlyEnvironment
) -> Iterator[Verdicted]:
    """The rows of all runs that wait. Raises FloodmarkError when they cannot be judged."""
    waiting = journal.unjudged()
    there = [run for run in waiting if (store / run.folder).is_dir()]
    for run in waiting:
        if run not in there:
            yield Verdicted(
                Judged(key=run.key, verdict="unknown", sentence=f"{run.folder} is gone"),
                lambda: None,
            )
    if not there:
        return
    environment.tell(f"judging {len(there)} real runs")
    results = environment.judge([store / run.folder for run in there])
    expected = _expected_failures(journal)
    for run, result in zip(there, results, strict=True):
        keep = result.verdict in _KEEPING
        if result.verdict is Verdict.INVALID and is_expected_of(run, broken_properties(result)):
            expected[_subject(run)] += 1
            keep = expected[_subject(run)] <= KEPT_EXPECTED
        yield _verdicted(store, run, result, environment, keep=keep)


def _expected_failures(journal: NightlyJournal) -> Counter[tuple[str, ...]]:
    """How many failing runs that were expected to fail are kept, by what was run."""
    ran = {row.key: row for row in journal.rows if isinstance(row, Ran)}
    return Counter(
        _subject(ran[row.key])
        for row in journal.rows
        if isinstance(row, Judged)
        and row.kept
        and row.verdict == Verdict.INVALID
        and is_expected_of(ran[row.key], row.broken)
    )


def _subject(run: Ran) -> tuple[str, ...]:
    """The protocol with its bugs, or the configuration of a system; or the canary."""
    return (CANARY,) if run.why == CANARY else (run.protocol, *run.bugs)


def _verdicted(
    store: Path, run: Ran, result: RunResult, environment: NightlyEnvironment, *, keep: bool
) -> Verdicted:
    folder = store / run.folder
    faults = _lines(folder / "faults.jsonl", FaultLine)
    judged = Judged(
        key=run.key,
        verdict=result.verdict.value,
        sentence=result.sentence,
        broken=broken_classes(result),
        kept=run.folder if keep else "",
        # Without traces nobody knows whom a fault met, and how.
        fault_coverage={} if run.system else dict(fault_coverage(_trace(folder), faults)),
        faults=sum(fault.action == "inject" for fault in faults),
    )
    if keep:
        build_page(folder, environment.tell)
        return Verdicted(judged, lambda: None)
    return Verdicted(judged, lambda: remove(folder))


def _trace(folder: Path) -> Iterable[dict[str, Any]]:
    files = [_lines(path, dict[str, Any]) for path in sorted((folder / "trace").glob("*.jsonl"))]
    return heapq.merge(*files, key=lambda event: int(event["t_us"]))


def _lines(path: Path, form: type[Form]) -> list[Form]:
    """The whole lines of a file; the checker reports what cannot be read."""
    found, decoder = [], JsonReader(form)
    try:
        text = path.read_bytes()
    except OSError:
        return []
    for line in text.split(b"\n"):
        try:
            found.append(decoder.decode(line))
        except Unreadable:
            continue
    return found


class _Kept(NamedTuple):
    """A run folder within the store, the nightly run it is of, and how many faults it took."""

    folder: str
    nightly: int
    faults: int


def prune(store: Path, most: int) -> list[str]:
    """Remove the folders of real runs of nightly runs beyond `most` of each class: the smallest and
    the newest stay. Returns what was removed. Of a nightly run whose journal cannot be read nothing
    is."""
    removed = []
    for kept in _by_class(store).values():
        if len(kept) <= most:
            continue
        # The index shows this one: the smallest, and of those the latest nightly run's first.
        smallest = min(kept, key=lambda one: (one.faults, -one.nightly))
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
