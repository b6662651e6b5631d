"""The verdicts on a night's real runs, and what is kept of them.

One pipeline over all runs that wait. A run that failed stays whole, with its page; of one that
passed, the row is all that stays.
"""

from __future__ import annotations

import heapq
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from checker.formats.verdict import RunResult, Verdict
from harness.formats.nightly_journal import Judged, NightlyJournal, Ran
from harness.nightly.environment import Hands
from harness.nightly.plan import is_expected
from harness.runs.judge import build_page
from harness.runs.replay import broken_properties
from harness.search.fault_coverage import fault_coverage
from nemesis.formats.fault_log import FaultLine

Form = TypeVar("Form")
KEPT_EXPECTED: Final = 2
"""Of a protocol that is known to fail, and of the canary, so many failing runs a night stay."""
_KEEPING: Final = (Verdict.INVALID, Verdict.UNKNOWN)


class Verdicted(NamedTuple):
    """A row to write, and what to do when it is written."""

    judged: Judged
    tidy: Callable[[], None]


def judge_all(store: Path, journal: NightlyJournal, hands: Hands) -> Iterator[Verdicted]:
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
    hands.tell(f"judging {len(there)} real runs")
    results = hands.judge([store / run.folder for run in there])
    expected_failures = sum(
        1
        for row in journal.rows
        if isinstance(row, Judged)
        and row.kept
        and row.verdict == Verdict.INVALID
        and not _is_news(journal, row)
    )
    for run, result in zip(there, results, strict=True):
        keep = result.verdict in _KEEPING
        if result.verdict is Verdict.INVALID and _foreseen(run, broken_properties(result)):
            expected_failures += 1
            keep = expected_failures <= KEPT_EXPECTED
        yield _verdicted(store, run, result, hands, keep=keep)


def _is_news(journal: NightlyJournal, judged: Judged) -> bool:
    run = next(r for r in journal.rows if isinstance(r, Ran) and r.key == judged.key)
    return not _foreseen(run, judged.broken)


def _foreseen(run: Ran, broken: Iterable[str]) -> bool:
    return is_expected(run.protocol, broken, run.bugs)


def _verdicted(store: Path, run: Ran, result: RunResult, hands: Hands, *, keep: bool) -> Verdicted:
    folder = store / run.folder
    faults = _lines(folder / "faults.jsonl", FaultLine)
    judged = Judged(
        key=run.key,
        verdict=result.verdict.value,
        sentence=result.sentence,
        broken=classes(result),
        kept=run.folder if keep else "",
        fault_coverage=dict(fault_coverage(_trace(folder), faults)),
        faults=sum(fault.action == "inject" for fault in faults),
    )
    if keep:
        build_page(folder, hands.tell)
        return Verdicted(judged, lambda: None)
    return Verdicted(judged, lambda: remove(folder))


def classes(result: RunResult) -> dict[str, str]:
    """For each property that a run broke, the class of its first anomaly."""
    found = dict.fromkeys(broken_properties(result), "?")
    for anomaly in reversed(result.anomalies):
        if anomaly.verdict is Verdict.INVALID:
            found[anomaly.property] = anomaly.name
    return found


def remove(folder: Path) -> None:
    """A run folder, and that of its name when it was the last."""
    shutil.rmtree(folder, ignore_errors=True)
    parent = folder.parent
    left = [path for path in parent.iterdir() if not path.is_symlink()]
    if not left:
        shutil.rmtree(parent, ignore_errors=True)


def _trace(folder: Path) -> Iterable[dict[str, Any]]:
    files = [_lines(path, dict[str, Any]) for path in sorted((folder / "trace").glob("*.jsonl"))]
    return heapq.merge(*files, key=lambda event: int(event["t_us"]))


def _lines(path: Path, form: type[Form]) -> list[Form]:
    """The whole lines of a file; what cannot be read has been told by the checker."""
    found, decoder = [], msgspec.json.Decoder(form)
    try:
        text = path.read_bytes()
    except OSError:
        return []
    for line in text.split(b"\n"):
        try:
            found.append(decoder.decode(line))
        except msgspec.DecodeError:
            continue
    return found
