"""Whether each process of a history that is kept as tables does one operation after another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from checker.evidence.facts import Outcome
from checker.evidence.sorting import I64
from checker.ingest.join import LATE_KINDS
from checker.ingest.joined import outcomes
from checker.ingest.lines import Problems
from checker.ingest.read_tables import DAMAGED, files_of, read_rows
from checker.ingest.tables import SCHEMAS, Columns

_ASKED: Final = ("process", "f", "outcome", "invoke_us", "complete_us")
_OTHERS: Final = tuple(name for name in SCHEMAS["ops"].names if name not in _ASKED)
_NEVER: Final = int(np.iinfo(np.int64).max)


class _Turns(NamedTuple):
    """Times in which processes are busy, by process and begin. `until`: `_NEVER` for an operation
    that may take effect at any later time."""

    process: I64
    begun: I64
    until: I64

    def busy(self) -> I64:
        """Return the processes that begin something while they are busy."""
        found: I64 = np.unique(self.process[1:][self._again & (self.until[:-1] > self.begun[1:])])
        return found

    def whole(self) -> _Turns:
        """Return for each process the time from its first begin to its last end. No process begins
        anything while it is busy."""
        first = np.append(True, ~self._again)[: len(self.process)]
        last = np.append(~self._again, True)[: len(self.process)]
        return _Turns(self.process[first], self.begun[first], self.until[last])

    def of(self, processes: I64) -> _Turns:
        """Return the turns of some processes."""
        wanted = np.isin(self.process, processes)
        return _Turns(*(column[wanted] for column in self))

    @property
    def _again(self) -> I64:
        again: I64 = self.process[1:] == self.process[:-1]
        return again


def report_busy(folder: Path, problems: Problems) -> None:
    """Report a process of the table ops that begins an operation although its last one has not
    ended, or may still take effect. The readers of the table report what cannot be read."""
    try:
        busy = _busy(folder / "tables" / "ops.parquet")
    except DAMAGED:
        return
    if len(busy):
        problems.damage(
            f"The table ops has an operation of process {busy[0]} that begins before the last one "
            "of this process has ended, or after one of unknown outcome: nothing is judged. Give "
            "each thread a process number of its own, and a new one after an info."
        )


def _busy(target: Path) -> I64:
    """Return the processes of a table that begin something while they are busy. Its rows may be in
    any order: only processes whose operations lie scattered over it are compared row by row."""
    found = []
    for turns in _read(target):
        if len(busy := turns.busy()):
            return busy
        found.append(turns.whole())
    scattered = _joined(found).busy()
    if not len(scattered):
        return scattered
    return _joined(turns.of(scattered) for turns in _read(target)).busy()


def _read(target: Path) -> Iterator[_Turns]:
    for path in files_of(target):
        for table in read_rows(path, "ops", idle=_OTHERS):
            yield _turns(table)


def _turns(table: Columns) -> _Turns:
    begun, until, (codes, words) = table["invoke_us"], table["complete_us"], table["f"]
    may_be_late = np.isin(codes, [code for code, f in enumerate(words) if f in LATE_KINDS])
    never = (until < 0) | ((outcomes(table["outcome"]) == Outcome.INFO) & may_be_late)
    made = _Turns(table["process"], begun, np.where(never, _NEVER, until))
    return _joined([_Turns(*(column[begun >= 0] for column in made))])


def _joined(parts: Iterable[_Turns]) -> _Turns:
    """Return turns in order; what begins at the same time stays in the order of its rows."""
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    if not columns:
        return _Turns(*(np.zeros(0, np.int64) for _ in _Turns._fields))
    order = np.lexsort((columns[1], columns[0]))
    return _Turns(*(column[order] for column in columns))
