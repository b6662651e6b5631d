"""A large history.jsonl read in parts, by many processes at once, into the tables of the history.

Each part is some lines of the file; it writes its own part of every table and passes on the few
operations that began in it and did not end, or ended and did not begin. These are joined when all
parts are there. Whatever is not as it should be (a line that cannot be read, a clock that goes
back, a number used twice) needs the whole file to be reported: then `join` gives None, and the
history is read as a small one is, by one process from its beginning to its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from checker.evidence.run_meta import RunMeta
from checker.evidence.sorting import I64
from checker.ingest import tables
from checker.ingest.check_seal import part_is_as_sealed
from checker.ingest.history_columns import HistoryColumns, read_columns
from checker.ingest.read_history import Reader, rows_of, strict
from checker.ingest.read_tables import HISTORY_TABLES
from checker.ingest.source import Ingested, LineNumbers, Source
from harness.formats.history import Op

PART_BYTES: Final = 32 << 20
_BLOCK_BYTES: Final = 1 << 20
_WRITTEN: Final = frozenset(HISTORY_TABLES) - {"assigns"}


@dataclass(frozen=True)
class Part:
    """The facts about one part that the join needs, in order of the file."""

    number: int
    # nothing in it needs the rest of the file to be understood
    plain: bool
    # operations that did not end here, and completions of operations that did not begin here
    open: Sequence[Op]
    awaited: Sequence[Op]
    # the numbers of the operations invoked here, as ranges from .. to; the first and last time,
    # and the partitions used, by process
    invoked: I64
    first_us: dict[int, int]
    last_us: dict[int, int]
    first_op: dict[int, int]
    last_op: dict[int, int]
    used: dict[int, set[str]]
    moves: list[tuple[Op, int, int, tuple[str, ...]]]
    # the number that the writer gave the first line, and the one after the last
    numbers: tuple[int | None, int | None]


def parts_of(path: Path) -> list[tuple[int, int]]:
    """Return the bytes from .. to of each part; a line is of the part that it begins in."""
    size = path.stat().st_size
    return [(begin, min(begin + PART_BYTES, size)) for begin in range(0, size, PART_BYTES)]


class _PartReader(Reader):
    """Reads some lines; completions may be of operations that an earlier part began."""

    def __init__(self, source: Source, into: Ingested) -> None:
        super().__init__(source, into)
        self.awaited: list[Op] = []
        self.numbers = LineNumbers(None)
        self.first_us: dict[int, int] = {}
        self.numbers_invoked: list[int] = []

    def take(self, number: int, op: Op) -> None:
        self.first_us.setdefault(op.process, op.t_us)
        if op.type == "invoke":
            self.numbers_invoked.append(op.op)
        # Which line of the file it is follows from the number that its writer gave it.
        super().take(0, op)

    def take_columns(self, columns: HistoryColumns) -> None:
        """Take the operations that were not read by column."""
        for asked, done in columns.rest.tolist():
            invoked, ended = (self._op(columns, row) for row in (asked, done))
            self.add(invoked, ended)
        for row in columns.open.tolist():
            op = self._op(columns, row)
            self.open[op.op] = op
        self.awaited += [self._op(columns, row) for row in columns.awaited.tolist()]
        self.numbers_invoked = columns.invoked.tolist()
        self.first_us, self.last_us = columns.first_us, columns.last_us
        self.first_op, self.last_op = columns.first_op, columns.last_op
        self.numbers.first, self.numbers.next = columns.numbers
        for process, used in columns.used.items():
            self.used.setdefault(process, set()).update(used)

    def _op(self, columns: HistoryColumns, row: int) -> Op:
        """Read a line again that was read by column, so that nothing is wrong with it."""
        return strict.decode(columns.lines.line(row))

    def is_awaited(self, number: int, op: Op) -> bool:
        """Keep it: it is joined with its invocation later, or found to have none."""
        if op.process in self.last_op:
            self.note_overlap(number, op)
        self.awaited.append(op)
        return True


def read_part(
    source: Source, known: RunMeta, folder: Path, number: int, begin: int, end: int
) -> Part:
    """Read the lines that begin in these bytes, and write their part of the tables. Raises OSError
    if those cannot be written."""
    into = Ingested(known)
    reader = _PartReader(source, into)
    reader.damaged = not part_is_as_sealed(source.folder, known, begin, end)
    made: dict[str, pa.Table] = {}
    try:
        text = b"".join(_blocks(source.path, begin, end))
        columns = read_columns(
            text,
            known.run,
            reader.origin_us,
            uncommitted=known.promise.isolation == "read_uncommitted",
        )
        if columns is not None:
            reader.take_columns(columns)
            made = columns.tables
        else:
            # The number of a line is not known here, and not needed: see `Part.plain`.
            reader.read_block(1, text)
    except OSError:
        reader.damaged = True
    plain = not reader.damaged and not into.problems and not into.problems.notes
    plain = plain and not reader.unknown and not reader.lines_lost and reader.in_turn
    plain = plain and all(reader.last_op[op.process] == op.op for op in reader.open.values())
    if plain:
        _write(reader, folder, number, made)
    return Part(
        number,
        plain,
        [*reader.open.values()],
        reader.awaited,
        _ranges(reader.numbers_invoked),
        reader.first_us,
        reader.last_us,
        reader.first_op,
        reader.last_op,
        reader.used,
        reader.moves,
        (reader.numbers.first, reader.numbers.next),
    )


def _ranges(numbers: Sequence[int]) -> I64:
    """Numbers as the ranges they make up, a row each: the first and the last one of it."""
    found = np.sort(np.array(numbers, np.int64))
    breaks = np.flatnonzero(np.diff(found) > 1)
    starts, ends = np.append(0, breaks + 1), np.append(breaks, len(found) - 1)
    return found[np.stack((starts, ends), axis=1)] if len(found) else np.zeros((0, 2), np.int64)


def _blocks(path: Path, begin: int, end: int) -> Iterator[bytes]:
    """Yield the lines that begin in these bytes, in blocks."""
    with path.open("rb") as file:
        if begin:
            file.seek(begin - 1)
            file.readline()
        while (at := file.tell()) < end:
            block = file.read(min(_BLOCK_BYTES, end - at))
            yield block if block.endswith(b"\n") else block + file.readline()


def join(parts: Sequence[Part], source: Source, known: RunMeta, folder: Path) -> bool:
    """Write the operations that lie across parts; return whether the tables then are the whole
    history.

    Raises OSError if they cannot be written.
    """
    parts = sorted(parts, key=lambda part: part.number)
    into = Ingested(known)
    reader = Reader(source, into)
    numbers = np.concatenate([part.invoked for part in parts])
    numbers = numbers[np.argsort(numbers[:, 0])]
    if not len(numbers) or (numbers[1:, 0] <= numbers[:-1, 1]).any():
        return False
    following = next((first for part in parts if (first := part.numbers[0]) is not None), -1)
    if following > 0:
        return False
    for part in parts:
        # No line begins in a part that lies within one.
        first, after = part.numbers
        if not part.plain or (first is not None and first != following):
            return False
        following = following if after is None else after
        if any(reader.last_us.get(p, t_us) > t_us for p, t_us in part.first_us.items()):
            return False
        reader.last_us.update(part.last_us)
        if any(reader.last_op.get(p, -1) > op for p, op in part.first_op.items()):
            return False
        reader.last_op.update(part.last_op)
        for op in part.awaited:
            invoked = reader.open.pop(op.op, None)
            if invoked is None or (invoked.process, invoked.f) != (op.process, op.f):
                return False
            reader.add(invoked, op)
        reader.open.update({op.op: op for op in part.open})
        reader.moves += part.moves
        for process, used in part.used.items():
            reader.used.setdefault(process, set()).update(used)
    reader.judge_whole(bool(numbers[0, 0] == 0 and (numbers[1:, 0] == numbers[:-1, 1] + 1).all()))
    if reader.damaged:
        return False
    for invoked in reader.open.values():
        reader.add(invoked, None)
    if reader.unknown:
        return False
    _write(reader, folder, len(parts), every=True)
    return True


def _write(
    reader: Reader,
    folder: Path,
    number: int,
    made: Mapping[str, pa.Table] | None = None,
    *,
    every: bool = False,
) -> None:
    """Write part `number` of each table: the rows in `made`, then those of the reader. Write the
    table of assignments only with `every`."""
    wanted = {*_WRITTEN, "assigns"} if every else _WRITTEN
    run = reader.into.meta.run
    for name, rows in rows_of(reader, {}, wanted).items():
        table = tables.from_rows(name, ((run, *row) for row in rows))
        if made and name in made:
            table = pa.concat_tables([made[name], table])
        tables.write(folder, name, f"part-{number:06}", table)
