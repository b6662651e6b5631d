"""Facts from the tables of a history, for runs whose history is kept as Parquet only.

A table is read by column, some row groups at a time. Each such part is a source of its own, so that
no task holds more than that, whatever the size of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from checker.evidence.columns import Rows, rows
from checker.evidence.facts import OP_KINDS, HistoryParts, Outcome, Polls, Resets, Sends
from checker.ingest import tables
from checker.ingest.counts import concat, tallied
from checker.ingest.downsampling import downsample_operations
from checker.ingest.group_rows import group_facts
from checker.ingest.row_group import Table, table_of
from checker.ingest.source import Ingested, Source, why
from node.formats.reading import open_file
from node.formats.trace import METADATA_PARTITION

HISTORY_TABLES: Final = ("ops", "sends", "reads", "assigns", "groups")
ROWS_PER_SOURCE: Final = 1_000_000

# Tables of an earlier version lack these columns; all values are then the default.
_MAY_LACK: Final = (
    *("step", "proved_us", "transaction", "uncommitted", "at_end", "log_start"),
    *("invoke_line", "complete_line"),
)
_NOT_WANTED: Final = ("run", "error", "invoke_line", "complete_line")
_NOT_WANTED_OF_OPS: Final = ("op",)
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
    """Read some row groups of one table, and add their facts to `into`."""
    take_tables(source, into, ((source.kind, table) for table in _read(source)))


def take_tables(
    source: Source,
    into: Ingested,
    rows_of: Iterable[tuple[str, Table]],
    known: Collection[str] = (),
) -> None:
    """Add facts and counts of rows of history tables to `into`. `rows_of` yields the name of a
    table and rows of it; `known` are names of flags of `HistoryParts` that are known to hold."""
    seen: set[str] = set()
    whole, marks = True, {*known}
    counts: dict[str, list[pa.Table]] = {}
    try:
        for kind, table in rows_of:
            found = tallied(into.meta.run, {kind: table}, into.injected) if into.counts else {}
            for name, counted in found.items():
                counts.setdefault(name, []).append(counted)
            made, more = _MAKERS[kind](source.run, table, into)
            marks |= more
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


def _read(source: Source) -> Iterator[Table]:
    idle = _NOT_WANTED + (_NOT_WANTED_OF_OPS if source.kind == "ops" else ())
    return read_rows(source.path, source.kind, source.groups, idle)


def read_rows(
    path: Path, table: str, groups: tuple[int, int] | None = None, idle: Sequence[str] = ()
) -> Iterator[Table]:
    """Yield the rows of some row groups of a table (None: of all), without the columns `idle` and
    those with only default values; texts are codes. Raises the errors in `DAMAGED`. The statistics
    of the file are not used: wrong ones would hide rows, and PyArrow ends the process if it cannot
    decode them."""
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
        for group in range(*(groups or (0, about.num_row_groups))):
            rows = file.read_row_group(group, columns=wanted).unify_dictionaries()
            for batch in rows.combine_chunks().to_batches():
                yield table_of(batch)


def sends_in(source: Source) -> Iterator[Rows]:
    """Yield the facts of the sends in some row groups. Raises the errors in `DAMAGED`."""
    for table in _read(source):
        yield _sends(source.run, table)


_Made = tuple[list[Rows], set[str]]
"""Facts, and what they show of the history: names of flags of `HistoryParts`."""


def _ops(run: int, table: Table, into: Ingested) -> _Made:
    """Return the columns of all operations that checks of a whole run need."""
    made = downsample_operations(
        run,
        into.meta,
        invoke_us=table.numbers("invoke_us"),
        complete_us=table.numbers("complete_us"),
        sent=table.numbers("sent"),
        polled=table.numbers("polled"),
        outcome=table.outcomes(),
        step=table.numbers("step"),
    )
    codes, words = table.words("f")
    codes = codes[table.outcomes() != Outcome.FAIL]
    for name in sorted({words[code] for code in np.unique(codes).tolist()} - {*OP_KINDS}):
        # The rows of other tables do not say what came before it.
        into.problems.damage(
            f'The table ops has an operation that the checker does not know, "{name}": what it '
            "does to a log is unknown, so nothing is judged."
        )
    both = bool(((table.numbers("sent") > 0) & (table.numbers("polled") > 0)).any())
    marks = {"transactions"} if both else set[str]()
    return made, marks | ({"final_reads"} if table.column("final") is not None else set())


def _sends(run: int, table: Table) -> Rows:
    return table.facts(Sends, run, outcome=table.outcomes())


_MAKERS: Final[dict[str, Callable[[int, Table, Ingested], _Made]]] = {
    "ops": _ops,
    "sends": lambda run, table, _: (
        [_sends(run, table)],
        {"transactions"} if table.column("seq") is not None else set(),
    ),
    "reads": lambda run, table, _: ([table.facts(Polls, run, outcome=table.outcomes())], set()),
    "assigns": lambda run, table, _: ([table.facts(Resets, run)], set()),
    "groups": lambda run, table, _: ([*group_facts(run, table)], {"groups"}),
}
