"""Facts from the tables of a history, for runs whose history is kept as Parquet only.

A table is read by column, some row groups at a time. Each such part is a source of its own, so that
no task holds more than that, whatever the size of the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from checker.evidence.columns import Facts, Rows, rows
from checker.evidence.facts import OP_KINDS, HistoryParts, Outcome, Polls, Resets, Sends
from checker.evidence.run_meta import RunMeta
from checker.evidence.sorting import repeated
from checker.ingest import tables
from checker.ingest.counts import concat, tallied
from checker.ingest.downsampling import downsample_operations
from checker.ingest.group_rows import group_facts
from checker.ingest.joined import outcomes
from checker.ingest.source import Ingested, Source, why
from checker.ingest.tables import Columns
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
