"""Reading of a large history into tables, range by range, by as many workers as there are.

A worker reads a range of whole lines as if it were a history, and writes its operations to tables.
Operations that only begin or only end in a range are joined afterwards. That the processes of a
range go on as those of earlier ranges allow is known from the first and last lines of each.

Nothing is reported here. If anything must be, or if the operations lack an order that tables can
hold, one worker reads the whole history instead (`checker.ingest.read_jepsen`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import msgspec

from checker.evidence.run_meta import RunMeta
from checker.ingest import join, tables
from checker.ingest.check_seal import check_source
from checker.ingest.join import MetNumbers, OperationJoin
from checker.ingest.lines import Problems, Range
from checker.ingest.read_history import Reader, all_columns, group_table
from checker.ingest.read_jepsen import JepsenReader, collector_paused, reader_of
from checker.ingest.read_tables import HISTORY_TABLES
from checker.ingest.source import Ingested, Source
from checker.ingest.tables import Columns
from harness.formats.history import Op
from node.formats.json_input import MOST_LINE_BYTES
from node.formats.reading import open_file

RANGE_BYTES: Final = 256 << 20
"""The most bytes of a range. Those of a smaller history are smaller: all workers have work."""
_RANGES_PER_WORKER: Final = 4
_SEALED: Final = -1
_BEGINS: Final = (b"{", b"#")
"""How a line begins that begins an operation, in any form."""
_INVOKES: Final = {"own": b"\n", "jepsen": b'"invoke"', "edn": b":invoke"}
"""A word on each line that invokes an operation, and seldom on another."""
_NEEDS_ALL: Final = {"own": b'"group"', **dict.fromkeys(("jepsen", "edn"), b"seek-to-beginning")}
"""A word on the first line from which on one reader must know all lines: that of a member of a
group, or of a reader whose polls say only at the start where they begin."""

Map = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]
"""A function that gives work to workers, item by item, and yields results in any order."""


class LargeHistory(NamedTuple):
    """A history to be read into tables in `folder`."""

    source: Source
    known: RunMeta
    folder: Path


class _Survey(NamedTuple):
    """The content of a range: its lines, operations invoked, and whether one reader must know all
    lines from here on."""

    nth: int
    lines: int
    ops: int
    needs_all: bool


def into_tables(history: LargeHistory, spread: Map, workers: int) -> bool:
    """Write the tables of a history to its folder, in parts, and return whether that was possible;
    `spread` gives the work to so many workers. Raises OSError if a table cannot be written."""
    tables.clear(history.folder, HISTORY_TABLES)
    ranges = [*_ranges(history.source, spread, workers)]
    # The last range may be the largest.
    work = [*reversed([*enumerate(ranges)]), (_SEALED, None)]
    readers = dict(spread(partial(_read, history), work))
    found = [readers.pop(nth) for nth in range(len(ranges))]
    sound = bool(found) and all((*readers.values(), *found)) and _join(history, ranges, found)
    if not sound:
        tables.clear(history.folder, HISTORY_TABLES)
    return sound


def _ranges(source: Source, spread: Map, workers: int) -> Iterator[Range]:
    """Yield the ranges of a history, with the lines and invocations in front of each; none if the
    file cannot be read."""
    cuts: list[int] = []
    with suppress(OSError), open_file(source.path) as file:
        size = source.size
        step = min(RANGE_BYTES, size // (_RANGES_PER_WORKER * workers) + 1)
        cuts = [0]
        while (cut := _next_operation(file, cuts[-1] + step, size)) < size:
            cuts.append(cut)
        cuts.append(size)
    spans = [replace(source, range=Range(*span)) for span in pairwise(cuts)]
    line, ops = 1, 0
    for about in sorted(spread(_survey, [*enumerate(spans)])):
        begin, end = cuts[about.nth : about.nth + 2]
        yield Range(begin, cuts[-1] if about.needs_all else end, line, ops)
        if about.needs_all:
            return
        line, ops = line + about.lines, ops + about.ops


def _next_operation(file: IO[bytes], after: int, size: int) -> int:
    """Return where the next line begins that may begin an operation; `size` if there is none."""
    file.seek(after)
    ended = False
    while line := file.readline(MOST_LINE_BYTES):
        if ended and line.startswith(_BEGINS):
            return file.tell() - len(line)
        ended = line.endswith(b"\n")
    return size


def _survey(item: tuple[int, Source]) -> _Survey:
    nth, source = item
    lines = ops = 0
    needs_all = False
    with suppress(OSError):  # The reader will say so.
        for _, text in source.blocks():
            lines += text.count(b"\n")
            ops += text.count(_INVOKES[source.form])
            needs_all = needs_all or _NEEDS_ALL[source.form] in text
    return _Survey(nth, lines, ops, needs_all)


def _read(history: LargeHistory, item: tuple[int, Range | None]) -> tuple[int, Any]:
    """Read a range into tables and return its reader, None if that is impossible. Without a range,
    return whether the history is as it was sealed."""
    nth, part = item
    if part is None:
        damage = Problems()
        check_source(history.source, history.known, False, damage)
        return nth, not damage
    with collector_paused():
        reader = reader_of(replace(history.source, range=part), Ingested(history.known))
        reader.write = write = _writer(history, nth)
        reader.read()
        reader.give_up()
        reader.end_part()
    # A read that proves an operation may be in another range.
    if reader.damaged or reader.into.problems.notes or reader.unknown or not reader.join.in_turn:
        return nth, None
    for name, parts in reader.parts.items():
        if parts:
            write(name, join.joint(parts))
            parts.clear()
    reader.write = None
    reader.join.invoked.clear()
    return nth, reader


def _writer(history: LargeHistory, nth: int) -> Callable[[str, Columns], None]:
    """Return a function that writes columns as the next part of a table of the n-th range."""
    numbers = count()

    def write(name: str, columns: Columns) -> None:
        made = tables.from_columns(name, history.known.run, columns)
        tables.write(history.folder, name, f"part-{nth:06}-{next(numbers):06}", made)

    return write


def _join(history: LargeHistory, ranges: Sequence[Range], readers: Sequence[Reader]) -> bool:
    """Join the operations that no range has whole, and write what is left of the tables; return
    whether the history can be in tables."""
    whole, known = Reader(history.source, Ingested(history.known)), OperationJoin()
    if not all(known.go_on(reader.join) for reader in readers):
        return False
    if history.source.form == "own":
        numbered = _numbered(readers)
    else:
        numbered = _translated_alike(ranges, readers)
    if numbered is None:
        return False
    whole.groups = readers[-1].groups
    for line, op in _kept(readers):
        whole.take(line, msgspec.structs.replace(op, seq=-1))
    whole.end_part(last=True)
    whole.join.last_us = known.last_us
    whole.judge_whole(numbered)
    if whole.damaged or whole.into.problems.notes or whole.unknown or not whole.join.in_turn:
        return False
    for reader in readers:
        whole.moves += reader.moves
        for process, partitions in reader.used.items():
            whole.used.setdefault(process, set()).update(partitions)
    whole.moves.sort(key=lambda move: move[0].op)
    write = _writer(history, len(ranges))
    for name, columns in all_columns(whole).items():
        write(name, columns)
    if whole.groups.rows:
        made = group_table(whole, history.known.run)
        tables.write(history.folder, "groups", f"part-{len(ranges):06}", made)
    return True


def _numbered(readers: Iterable[Reader]) -> bool | None:
    """Return whether operations have all numbers from 0 on; None if two have the same."""
    met, total = MetNumbers(), 0
    for reader in readers:
        seen = reader.join.seen
        met.add(seen.begin, seen.end)
        total += len(seen) - len(reader.join.orphans)
    return None if len(met) != total else not met.have_gaps()


def _translated_alike(ranges: Sequence[Range], readers: Sequence[Reader]) -> bool | None:
    """Return True if the parts of a Jepsen history were translated as the whole would be, with the
    same numbers and names; else None."""
    translators = [reader.translator for reader in readers if isinstance(reader, JepsenReader)]
    written: dict[str, type] = {}
    for translator in translators:
        written |= translator.written
    numbers = [translator.ops for translator in translators[:-1]]
    alike = numbers == [part.ops for part in ranges[1:]]
    alike &= all(written.items() >= translator.written.items() for translator in translators)
    alike &= len(ranges) == 1 or not any(translator.named for translator in translators)
    return alike or None


def _kept(readers: Iterable[Reader]) -> list[tuple[int, Op]]:
    """Return the lines of operations that only begin or only end in a range, in their order; an end
    has the number of the operation that its process had begun."""
    begun: dict[int, int] = {}
    found: list[tuple[int, Op]] = []
    for reader in readers:
        for line, op in reader.join.orphans:
            translated = isinstance(reader, JepsenReader) and op.op < 0
            number = begun.get(op.process, op.op) if translated else op.op
            found.append((line, msgspec.structs.replace(op, op=number)))
        for line, op in reader.join.open.values():
            begun[op.process] = op.op
            found.append((line, op))
    return sorted(found, key=lambda each: each[0])
