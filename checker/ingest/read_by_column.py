"""Reading of a history into the tables ops, sends and reads: by column, or line by line if anything
in it must be reported.

By column, many lines are read at once, block by block. Single operations are read only if they are
not plain, begin in one block and end in another, or share a block of our lines with a line of an
unusual form. If something must be reported (a line that cannot be read, a clock that goes back, a
number used twice), the whole history is read again, line by line.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from checker.evidence.run_meta import RunMeta
from checker.evidence.sorting import I64
from checker.ingest import tables
from checker.ingest.check_seal import check_source
from checker.ingest.counts import concat
from checker.ingest.history_columns import HistoryBlock, HistoryColumns, read_block
from checker.ingest.jepsen import Translator
from checker.ingest.jepsen_columns import read_jepsen_block
from checker.ingest.line_shapes import NotPlain
from checker.ingest.lines import Problems
from checker.ingest.read_history import Reader, finish, implied_commits, rows_of
from checker.ingest.read_jepsen import FORMS, JepsenReader
from checker.ingest.read_tables import HISTORY_TABLES, take_tables
from checker.ingest.row_group import table_of
from checker.ingest.source import Ingested, Source

LEAST_BYTES: Final = 1 << 20
"""A smaller history of ours is read line by line at once: it has as many shapes as lines."""
BLOCK_BYTES: Final = 4 << 20
ROWS_A_PART: Final = 1_000_000
Write = Callable[[str, int, pa.Table], None]
"""A function that keeps a part of a table: name, number of the part, rows."""


def read_history(source: Source, into: Ingested) -> None:
    """Read the history `source`; add its tables and facts to `into`."""
    made: dict[str, list[pa.Table]] = defaultdict(list)
    try:
        if source.form == "own" and (source.files is not None or source.size < LEAST_BYTES):
            raise NotPlain
        marks = read_by_column(source, into.meta, lambda name, _, table: made[name].append(table))
    except NotPlain:
        reader = (Reader if source.form == "own" else JepsenReader)(source, into)
        reader.read()
        finish(reader)
        return
    into.tables |= {name: concat(found, name) for name, found in made.items()}
    rows = (
        (name, table_of(batch))
        for name in made
        for batch in into.tables[name].combine_chunks().to_batches()
    )
    take_tables(source, into, rows, marks)


def into_parts(source: Source, known: RunMeta, folder: Path) -> bool:
    """Write the tables of a history to `folder`, in parts, and return whether that was possible:
    not if the history is damaged or must be read line by line. Raises OSError."""
    damage = Problems()
    check_source(source, known, False, damage)
    if damage:
        return False

    def write(name: str, number: int, table: pa.Table) -> None:
        tables.write(folder, name, f"part-{number:06}", table)

    try:
        read_by_column(source, known, write)
    except NotPlain:
        return False
    return True


def read_by_column(source: Source, known: RunMeta, write: Write) -> set[str]:
    """Read a history by column and give its tables to `write`; return what shows in it, as names of
    flags of `HistoryParts`. Raises NotPlain if it must be read line by line; what was written is
    then useless."""
    columns, numbers = _ByColumn(source, known), count()
    held: dict[str, list[pa.Table]] = defaultdict(list)
    whole = True
    try:
        for first, text in source.blocks(block_bytes=BLOCK_BYTES):
            for name, table in columns.take(first, text).items():
                held[name].append(table)
            if sum(table.num_rows for table in held["ops"]) > ROWS_A_PART:
                whole = False
                _flush(held, next(numbers), write)
    except OSError:
        raise NotPlain from None
    for name, table in columns.others(held["reads"] if whole else None).items():
        held[name].append(table)
    _flush(held, next(numbers), write)
    return columns.reader.marks


def _flush(held: dict[str, list[pa.Table]], part: int, write: Write) -> None:
    for name, found in held.items():
        write(name, part, concat(found, name))
    held.clear()


class _ByColumn:
    """A reader of a history by column; `reader` has the operations that are not read so."""

    def __init__(self, source: Source, known: RunMeta) -> None:
        self._known, self._form = known, source.form
        self._uncommitted = known.promise.isolation == "read_uncommitted"
        self._translator = Translator()
        # The numbers of the operations that were invoked, as ranges from .. to.
        self._invoked: list[I64] = []
        self.reader = Reader(source, Ingested(known))

    def take(self, first: int, text: bytes) -> dict[str, pa.Table]:
        """Return the tables of some lines. Raises NotPlain."""
        reader = self.reader
        try:
            block = self._block(first, text)
            found = None if block is None else block.columns(self._known.run, reader.origin_us)
        except NotPlain:
            self._take_lines(first, text)
            return {}
        if found is None:
            return {}
        self._follow(found)
        for op in found.awaited:
            invoked = reader.open.pop(op.op, None)
            if invoked is None or (invoked.process, invoked.f) != (op.process, op.f):
                raise NotPlain
            reader.add(invoked, op)
        for invoked, done in found.rest:
            reader.add(invoked, done)
        reader.open.update({op.op: op for op in found.open})
        reader.last_op.update(found.last_op)
        reader.marks |= found.marks
        for process, used in found.used.items():
            reader.used.setdefault(process, set()).update(used)
        return found.tables

    def _take_lines(self, first: int, text: bytes) -> None:
        """Take the lines of a block one by one. Raises NotPlain if one must be reported."""
        if self._form != "own":
            raise NotPlain
        reader, known = self.reader, len(self.reader.invoked)
        reader.read_block(first, text)
        strange = reader.strange is not None
        if strange or reader.damaged or reader.into.problems.notes or not reader.in_turn:
            raise NotPlain
        begun = np.array([op for _, op in reader.invoked[known:]], np.int64)
        self._invoked.append(_ranges(np.sort(begun)))

    def _block(self, first: int, text: bytes) -> HistoryBlock | None:
        if self._form == "own":
            return read_block(first, text, uncommitted=self._uncommitted)
        forms, uncommitted = FORMS[self._form], self._uncommitted
        return read_jepsen_block(first, text, forms, self._translator, uncommitted=uncommitted)

    def _follow(self, found: HistoryColumns) -> None:
        """Compare a block with those before it. Raises NotPlain if it does not go on from them."""
        reader = self.reader
        first, following = found.numbers
        if reader.numbers.gap(first):
            raise NotPlain
        reader.numbers.next = following
        if any(reader.last_us.get(p, t_us) > t_us for p, t_us in found.first_us.items()):
            raise NotPlain
        reader.last_us.update(found.last_us)
        for op in found.awaited:
            reader.busy.pop(op.process, None)
        if not found.first_op.keys().isdisjoint(reader.busy.keys() | reader.retired):
            raise NotPlain
        reader.busy.update({op.process: op.op for op in found.open})
        reader.retired |= found.retired
        if any(reader.last_op.get(p, -1) > op for p, op in found.first_op.items()):
            raise NotPlain
        self._invoked.append(_ranges(found.invoked))

    def others(self, reads: Sequence[pa.Table] | None) -> dict[str, pa.Table]:
        """Return the tables of the operations that were not read by column. `reads` are the tables
        of the others, None if they are written already. Raises NotPlain if anything must be
        reported."""
        reader = self.reader
        numbers = np.concatenate([np.zeros((0, 2), np.int64), *self._invoked])
        numbers = numbers[np.argsort(numbers[:, 0])]
        if not len(numbers) or (numbers[1:, 0] <= numbers[:-1, 1]).any():
            raise NotPlain
        dense = numbers[0, 0] == 0 and (numbers[1:, 0] == numbers[:-1, 1] + 1).all()
        reader.judge_whole(bool(dense))
        for invoked in reader.open.values():
            reader.add(invoked, None)
        if reader.damaged or (reader.unknown and reads is None):
            raise NotPlain
        reader.groups.close(reader.partitions)
        certain = implied_commits(reader, reads or ())
        wanted = {*HISTORY_TABLES} if reader.groups.rows else {*HISTORY_TABLES} - {"groups"}
        return {
            name: tables.from_rows(name, ((self._known.run, *row) for row in rows))
            for name, rows in rows_of(reader, certain, wanted).items()
        }


def _ranges(numbers: I64) -> I64:
    """Return sorted numbers as the ranges they make up, a row each: the first and the last one."""
    breaks = np.flatnonzero(np.diff(numbers) > 1)
    starts, ends = np.append(0, breaks + 1), np.append(breaks, len(numbers) - 1)
    return numbers[np.stack((starts, ends), axis=1)] if len(numbers) else numbers.reshape(0, 2)
