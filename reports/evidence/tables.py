"""The tables of a run: those that the checker left, if they are no older than the files they were
made of, else tables made of the files in memory. Only `checker.ingest` reads the files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from checker.ingest.ingest import sources, tables_of
from checker.ingest.lines import Problems
from checker.ingest.read_run_files import read_meta
from checker.ingest.read_tables import DAMAGED, open_table, read_rows
from checker.ingest.source import Source
from checker.ingest.tables import SCHEMAS, Columns, all_columns_of
from reports import wording
from reports.evidence.files import Notes

MOST_UNJUDGED_BYTES: Final = 256 << 20
"""A larger history is made into tables by the checker only, which does that in parts."""
_TABLES: Final = {
    "history": ("ops", "sends", "reads"),
    "trace": ("trace",),
    "log": ("replicas", "log"),
}
_PARTED: Final = ("trace", "log")


class RunTables:
    """The rows of the evidence of a run, by table; a note says which table cannot be read."""

    def __init__(self, folder: Path, notes: Notes) -> None:
        self._folder, self._notes = folder, notes
        self._meta = read_meta(folder, Problems())
        self._files: dict[str, list[Path]] = {}
        self._made: dict[str, list[pa.Table]] = {}
        self.files: dict[str, list[str]] = {"trace": [], "log": []}
        """The names of the files that the system vouches for, by kind."""
        self.has_history = False
        for source in sources(0, folder):
            self._take(source)

    def _take(self, source: Source) -> None:
        if source.kind in _PARTED:
            if self._meta.is_undeclared("logs" if source.kind == "log" else "trace"):
                return
            self.files[source.kind].append(source.path.name)
        elif source.kind != "head":
            self.has_history = True
        if source.kind in ("ops", "sends", "reads"):  # The history is there as tables only.
            kept = self._files.setdefault(source.kind, [])
            kept += [] if source.path in kept else [source.path]
        elif source.kind in _TABLES and not self._stand_for(source):
            self._make(source)

    def _stand_for(self, source: Source) -> bool:
        """Take a file's tables if all are there, of this version, and not older than the file."""
        name = source.path.stem if source.kind in _PARTED else ""
        found = {table: self._parts(table, name) for table in _TABLES[source.kind]}
        changed = source.path.stat().st_mtime_ns
        for table, own in found.items():
            if not own or any(part.stat().st_mtime_ns < changed for part in own):
                return False
            if not all(_rows_in(part, SCHEMAS[table].names) is not None for part in own):
                return False
        for table, own in found.items():
            self._files.setdefault(table, []).extend(own)
        return True

    def _parts(self, table: str, name: str) -> list[Path]:
        target = self._folder / "tables" / f"{table}.parquet"
        if not target.is_dir():
            return [target] if target.is_file() and not name else []
        return sorted(target.glob(f"{name or '[!.]*'}.parquet"))

    def _make(self, source: Source) -> None:
        if source.size > MOST_UNJUDGED_BYTES:
            self._notes.add(
                f"{source.name} has {wording.size(source.size)} and no tables: what it says is not "
                "drawn until `floodmark check` has judged the run."
            )
            return
        made = tables_of(source, self._meta)
        for sentence in (*made.problems.sentences(), *made.problems.notes):
            self._notes.add(sentence)
        for table in _TABLES[source.kind]:
            if table in made.tables:
                self._made.setdefault(table, []).append(made.tables[table])

    def number(self, table: str) -> int:
        """Return how many rows a table has."""
        made: int = sum(part.num_rows for part in self._made.get(table, ()))
        return made + sum(_rows_in(file) or 0 for file in self._files.get(table, ()))

    def rows(self, table: str) -> Iterator[Columns]:
        """Yield the rows of a table of the history in chunks, by column."""
        yield from map(all_columns_of, self._made.get(table, ()))
        for file in self._files.get(table, ()):
            try:
                yield from read_rows(file, table)
            except DAMAGED as error:
                self._damaged(file, error)

    def table(self, name: str) -> pa.Table:
        parts = list(self._made.get(name, ()))
        for file in self._files.get(name, ()):
            try:
                parts.append(_read(file, SCHEMAS[name].names).cast(SCHEMAS[name]))
            except DAMAGED as error:
                self._damaged(file, error)
        return pa.concat_tables([SCHEMAS[name].empty_table(), *parts])

    def measure(self, name: str, columns: Sequence[str]) -> pa.Table | None:
        """Return columns of a table of measures; None if it is missing or (noted) unreadable."""
        file = self._folder / "tables" / f"{name}.parquet"
        if not file.is_file():
            return None
        try:
            return _read(file, columns)
        except DAMAGED as error:
            self._damaged(file, error)
            return None

    def _damaged(self, file: Path, error: Exception) -> None:
        name = file.relative_to(self._folder)
        self._notes.add(f"{name} cannot be read: {str(error).splitlines()[0]}.")


def _read(file: Path, columns: Sequence[str]) -> Any:
    """Read columns of a Parquet file, without its statistics: see `checker.ingest.read_tables`."""
    with open_table(file) as opened:
        if missing := [name for name in columns if name not in opened.schema_arrow.names]:
            raise ValueError(f"it has no column {missing[0]}")
        return opened.read(columns=list(columns))


def _rows_in(file: Path, columns: Iterable[str] = ()) -> int | None:
    """Return the number of rows of a table; None if it is damaged or lacks one of `columns`."""
    try:
        with open_table(file) as opened:
            known = opened.metadata
        return (
            int(known.num_rows) if {*columns} <= {*known.schema.to_arrow_schema().names} else None
        )
    except DAMAGED:
        return None
