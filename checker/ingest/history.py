"""Reading of a history, ours or Jepsen's, as facts and tables, or into tables of its own folder."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from checker.evidence.run_meta import RunMeta
from checker.ingest import tables
from checker.ingest.check_seal import check_source
from checker.ingest.lines import Problems
from checker.ingest.read_history import Reader, all_columns, end, finish, group_table
from checker.ingest.read_jepsen import JepsenReader
from checker.ingest.source import Ingested, Source
from checker.ingest.tables import Columns


def read_history(source: Source, into: Ingested) -> None:
    """Read the history `source`; add its tables and facts to `into`."""
    with collector_paused():
        reader = _reader(source, into)
        reader.read()
        finish(reader)


def into_parts(source: Source, known: RunMeta, folder: Path) -> bool:
    """Write the tables of a history to `folder`, in parts, and return whether that was possible:
    not if something must be reported about it, or if its operations lack an order that tables can
    hold. Raises OSError."""
    damage = Problems()
    check_source(source, known, False, damage)
    if damage:
        return False
    numbers = count()

    def write(name: str, columns: Columns) -> None:
        made = tables.from_columns(name, known.run, columns)
        tables.write(folder, name, f"part-{next(numbers):06}", made)

    with collector_paused():
        reader = _reader(source, Ingested(known))
        reader.write = write
        reader.read()
        end(reader)
        # An operation that is proved by a read may be in a part that was written.
        late = reader.unknown and reader.written
        if reader.damaged or reader.into.problems.notes or not reader.join.in_turn or late:
            return False
        for name, columns in all_columns(reader).items():
            write(name, columns)
        if reader.groups.rows:
            made = group_table(reader, known.run)
            tables.write(folder, "groups", f"part-{next(numbers):06}", made)
    return True


@contextmanager
def collector_paused() -> Iterator[None]:
    """Let the garbage collector rest: what is decoded has no cycles, and looking for them in it
    takes longer than to decode it."""
    paused = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if paused:
            gc.enable()


def _reader(source: Source, into: Ingested) -> Reader:
    return (Reader if source.form == "own" else JepsenReader)(source, into)
