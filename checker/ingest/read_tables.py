"""Facts from the tables of a history, for runs whose history is kept as Parquet only.

A table is read by column, some row groups at a time. Each such part is a source of its own, so that
no task holds more than that, whatever the size of the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from checker.evidence.columns import Facts, Rows, rows
from checker.evidence.facts import OP_KINDS, HistoryParts, Outcome, Polls, Resets, SampledOps, Sends
from checker.evidence.run_meta import RunMeta
from checker.evidence.sorting import I64, repeated
from checker.ingest import tables
from checker.ingest.counts import concat, tallied
from checker.ingest.group_rows import group_facts
from checker.ingest.join import LATE_KINDS, outcomes
from checker.ingest.lines import Problems
from checker.ingest.source import Ingested, Source, why
from checker.ingest.tables import SCHEMAS, Columns
from harness.formats.run_info import Phases
from node.formats.reading import open_file
from node.formats.trace import METADATA_PARTITION

HISTORY_TABLES: Final = ("ops", "sends", "reads", "assigns", "groups")
ROWS_PER_SOURCE: Final = 1_000_000

_MAY_LACK: Final = {
    **dict.fromkeys(("step", "proved_us", "log_start"), -1),
    **dict.fromkeys(("transaction", "uncommitted", "at_end", "invoke_line", "complete_line"), 0),
}
"""Columns that tables of an earlier version lack, with the value that all of their rows have."""
_NOT_WANTED: Final = ("run", "error", "invoke_line", "complete_line")
_NOT_WANTED_OF_OPS: Final = ("op", "process", "client", "second")
_KINDS: Final[Mapping[str, type[Facts]]] = {"sends": Sends, "reads": Polls, "assigns": Resets}
DAMAGED: Final = (OSError, pa.ArrowException, ValueError)
"""What reading a table raises that is not as it was written. A name of a column that is no text is
a ValueError."""


@contextmanager
def open_table(path: Path, **how: Any) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file, `how` as PyArrow does. Raises the errors in `DAMAGED`."""
    with (
        open_file(path, sparse=True) as file,
        pa.OSFile(f"/proc/self/fd/{file.fileno()}") as source,
        pq.ParquetFile(source, **how) as opened,
    ):
        yield opened


def table_sources(run: int, folder: Path, where: Path) -> list[Source]:
    """Return the sources of the history tables in the folder `where`: some row groups each."""
    found: list[Source] = []
    for name in HISTORY_TABLES:
        for path in files_of(where / f"{name}.parquet"):
            found.extend(Source(run, folder, name, path, groups) for groups in _row_groups(path))
    return found


def files_of(table: Path) -> list[Path]:
    """Return the files of a table, which is one file or a folder of parts."""
    files = sorted(table.glob("[!.]*.parquet")) if table.is_dir() else [table]
    return [path for path in files if path.is_file()]


def _row_groups(path: Path) -> Iterator[tuple[int, int]]:
    """Yield ranges of row groups, from .. to, of about `ROWS_PER_SOURCE` rows each."""
    try:
        with open_table(path) as file:
            about = file.metadata
    except DAMAGED:
        yield 0, 0  # The reader will say what is wrong with it.
        return
    begin, rows = 0, 0
    for group in range(about.num_row_groups):
        rows += about.row_group(group).num_rows
        if rows >= ROWS_PER_SOURCE:
            yield begin, group + 1
            begin, rows = group + 1, 0
    if rows or not about.num_row_groups:
        yield begin, about.num_row_groups


def read_row_groups(source: Source, into: Ingested) -> None:
    """Read some row groups of one table, and add their facts and counts to `into`."""
    seen, marks, whole = set[str](), set[str](), True
    counts: dict[str, list[pa.Table]] = {}
    try:
        for columns in _read(source):
            counted = {source.kind: columns} if into.counts else {}
            for name, found in tallied(into.meta.run, counted, into.injected).items():
                counts.setdefault(name, []).append(found)
            made = list(facts_in(source.kind, source.run, columns, into.meta))
            if source.kind == "ops":
                _report_unknown(columns, into)
            marks |= _marks(source.kind, columns)
            into.facts.extend(made)
            seen.update(partition for part in made for partition in part.partitions)
    except DAMAGED as error:
        reason = why(error).split("\n", 1)[0]
        into.problems.add(source.name, f"{source.name} cannot be read: {reason}.")
        whole = False
    into.tables |= {name: concat(parts, name) for name, parts in counts.items()}
    partitions = sorted(seen | {*into.meta.partitions, METADATA_PARTITION, ""})
    about = dict.fromkeys(marks, 1)
    into.facts.append(rows(HistoryParts, source.run, partitions, whole=whole, **about))


def facts_in(table: str, run: int, columns: Columns, meta: RunMeta) -> Iterator[Rows]:
    """Yield the facts of some rows of a history table. Raises ValueError for unknown words."""
    if table == "ops":
        yield from downsample_operations(run, meta, columns)
    elif table == "groups":
        yield from group_facts(run, columns)
    elif len(columns["op"]):
        kind = _KINDS[table]
        own = {name: columns[name] for name in kind.columns.keys() & columns.keys()}
        if "outcome" in own:
            own["outcome"] = outcomes(own["outcome"])
        yield rows(kind, run, columns["partition"], **own)


def _read(source: Source) -> Iterator[Columns]:
    idle = _NOT_WANTED + (_NOT_WANTED_OF_OPS if source.kind == "ops" else ())
    return read_rows(source.path, source.kind, source.groups, idle)


def read_rows(
    path: Path, table: str, groups: tuple[int, int] | None = None, idle: Sequence[str] = ()
) -> Iterator[Columns]:
    """Yield the rows of some row groups of a table (None: of all), without the columns `idle`.
    Raises the errors in `DAMAGED`. The statistics of the file are not used: wrong ones would hide
    rows, and PyArrow ends the process if it cannot decode them."""
    with open_table(path) as file:
        about = file.metadata
    schema = tables.SCHEMAS[table]
    there = {about.schema.column(number).path for number in range(about.num_columns)}
    missing = [name for name in schema.names if name not in there.union(_MAY_LACK)]
    if missing:
        raise ValueError(f"it has no column {missing[0]}")
    # PyArrow refuses the names of columns that are not there with an error of its own.
    texts = [field.name for field in schema if field.type == pa.string() and field.name in there]
    with open_table(path, metadata=about, read_dictionary=texts) as file:
        wanted = [name for name in schema.names if name in there and name not in idle]
        lacking = {name: _MAY_LACK[name] for name in schema.names if name not in there}
        for group in range(*(groups or (0, about.num_row_groups))):
            rows = file.read_row_group(group, columns=wanted).unify_dictionaries()
            for batch in rows.combine_chunks().to_batches():
                others = {n: repeated(value, batch.num_rows) for n, value in lacking.items()}
                yield tables.columns_of(batch) | others


def sends_in(source: Source) -> Iterator[Rows]:
    """Yield the facts of the sends in some row groups. Raises the errors in `DAMAGED`."""
    for columns in _read(source):
        yield from facts_in("sends", source.run, columns, RunMeta())


def _report_unknown(ops: Columns, into: Ingested) -> None:
    """Report operations that no check knows."""
    codes, words = ops["f"]
    codes = codes[outcomes(ops["outcome"]) != Outcome.FAIL]
    for name in sorted({words[code] for code in np.unique(codes).tolist()} - {*OP_KINDS}):
        # The rows of other tables do not say what came before it.
        into.problems.damage(
            f'The table ops has an operation that the checker does not know, "{name}": what it '
            "does to a log is unknown, so nothing is judged."
        )


def _marks(table: str, columns: Columns) -> set[str]:
    """Return what some rows show of the history: names of flags of `HistoryParts`."""
    if table == "ops":
        both = ((columns["sent"] > 0) & (columns["polled"] > 0)).any()
        found = {"transactions": both, "final_reads": columns["final"].any()}
    else:
        found = {"transactions": table == "sends" and columns["seq"].any()}
    return {name for name, shows in found.items() if shows} | ({table} & {"groups"})


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
    for turns in _turns_in(target):
        if len(busy := turns.busy()):
            return busy
        found.append(turns.whole())
    scattered = _joined(found).busy()
    if not len(scattered):
        return scattered
    return _joined(turns.of(scattered) for turns in _turns_in(target)).busy()


def _turns_in(target: Path) -> Iterator[_Turns]:
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


STRETCHES: Final = 256


def downsample_operations(run: int, meta: RunMeta, ops: Columns) -> list[Rows]:
    """Return facts of a few of these operations, which stand for all: `count` says for how many.
    Whether a run was exercised depends on how many there were, when the first and the last showed
    progress, and the longest time in which nothing was invoked. So the first and last one invoked
    in each of some hundred periods of the storm are kept (a silence that counts is far longer), the
    first and last one that shows progress, and all that the schedule itself names. A send shows
    progress if it ends ok. With acks=0 none does; then a poll before the final reads that returned
    records does."""
    names = ("invoke_us", "complete_us", "sent", "polled", "step")
    invoke_us, complete_us, sent, polled, step = (ops[name] for name in names)
    outcome = outcomes(ops["outcome"])
    if not len(invoke_us):
        return []
    progress = sent > 0
    if not meta.promise.acks:
        progress = (polled > 0) & ((invoke_us < meta.phases.final_us) | (meta.phases.final_us == 0))
    acked = progress & (outcome == Outcome.OK)
    wanted = (_of_stretches(meta.phases, invoke_us), _ends(complete_us, acked))
    kept = np.unique(np.concatenate((*wanted, np.flatnonzero(step >= 0))))
    count = np.ones(len(kept), np.int64)
    # The others are counted with a kept one that is like them in all that checks use.
    for like in (True, False):
        same = np.flatnonzero(acked[kept] == like)
        total = int((acked == like).sum())
        if total and not len(same):
            extra = np.flatnonzero(acked == like)[:1]
            kept, count = np.append(kept, extra), np.append(count, total)
        elif total:
            count[same[0]] += total - len(same)
    return [
        rows(
            SampledOps,
            run,
            "",
            op=kept,
            invoke_us=invoke_us[kept],
            complete_us=complete_us[kept],
            progress=progress[kept],
            outcome=outcome[kept],
            count=count,
            step=step[kept],
        )
    ]


def _of_stretches(phases: Phases, invoke_us: I64) -> I64:
    """Return the first and last operation invoked in each period of the storm, before and after."""
    begin, end = phases.storm_us, max(phases.heal_us, phases.storm_us)
    order = np.argsort(invoke_us, kind="stable")
    sorted_us = invoke_us[order]
    stretch = np.clip((sorted_us - begin) // ((end - begin) // STRETCHES + 1), -1, STRETCHES)
    stretch[sorted_us > end] = STRETCHES + 1
    new = np.flatnonzero(np.diff(stretch)) + 1
    return order[np.concatenate(([0], new - 1, new, [len(order) - 1]))]


def _ends(complete_us: I64, acked: I64) -> I64:
    """Return the operations acknowledged first and last, if any was."""
    rows = np.flatnonzero(acked)
    if not len(rows):
        return rows
    return np.array([rows[np.argmin(complete_us[rows])], rows[np.argmax(complete_us[rows])]])
