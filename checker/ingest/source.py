"""The input and the result of every reader of a source file. Imports no other module of readers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, TypeVar

import numpy as np
import pyarrow as pa

from checker.evidence import facts
from checker.evidence.columns import Rows, rows
from checker.evidence.run_meta import RunMeta
from checker.evidence.sorting import I64
from checker.ingest.fault_windows import InjectedFault
from checker.ingest.lines import (
    BLOCK_BYTES,
    Block,
    Files,
    Line,
    Problems,
    Range,
    lines_of,
    read_blocks,
)
from node.formats.host_errors import reason
from node.formats.json_input import JsonReader, Unreadable

_Form = TypeVar("_Form")
KINDS: Final = ("head", "history", "trace", "log", "ops", "sends", "reads", "assigns", "groups")

HISTORIES: Final = {"history.jsonl": "own", "history.edn": "edn", "history.json": "jepsen"}
"""The names of a history in a run folder, and its form: ours, or Jepsen's as EDN or as JSON."""


@dataclass(frozen=True)
class Source:
    """One file of a run, or some row groups of it, to be read; `kind` is one of KINDS."""

    run: int
    folder: Path
    kind: str
    path: Path
    # of a Parquet file the row groups from .. to, and their size in memory
    groups: tuple[int, int] = (0, 0)
    bytes: int = 0
    # the files of the run by name, where it is in memory and `folder` is on no disk
    files: Files | None = None
    # of a history, one of those in HISTORIES
    form: str = "own"
    # of a history, the lines to be read (None: all)
    range: Range | None = None

    @property
    def size(self) -> int:
        """The approximate number of bytes to read."""
        if self.bytes:
            return self.bytes
        return self.path.stat().st_size if is_file(self.path) else 0

    def part(self, table: str) -> str:
        """Return the name of this source's part of a table; "" if it makes the whole table."""
        if table in ("tallies", "acks"):
            return f"{self.kind}-{self.path.stem}-{self.groups[0]}"
        return self.path.stem if self.kind in ("trace", "log") else ""

    @cached_property
    def name(self) -> str:
        """The name of the file for messages: its path in the run folder."""
        if self.files is not None:
            return str(self.path)[len(str(self.folder)) + 1 :]
        inside = self.path.is_relative_to(self.folder)
        return str(self.path.relative_to(self.folder)) if inside else self.path.name

    def has(self, name: str) -> bool:
        """Return whether the run has this file."""
        if self.files is not None:
            return name in self.files
        return is_file(self.folder / name)

    def names_in(self, folder: str) -> list[str]:
        """Return the names of the `.jsonl` files in a folder of the run."""
        if self.files is not None:
            return sorted(n.partition("/")[2] for n in self.files if n.startswith(f"{folder}/"))
        return [path.name for path in files_in(self.folder / folder, "*.jsonl")[0]]

    def blocks(self, name: str | None = None, block_bytes: int = BLOCK_BYTES) -> Iterator[Block]:
        """Yield this file, or the file `name` of the run, in blocks of whole lines, each with the
        number of its first line. Raises OSError."""
        if self.files is not None:
            text = self.files[name or self.name]
            assert isinstance(text, bytes), "what the lines say is taken as it is"
            yield 1, text
        else:
            part = None if name else self.range
            yield from read_blocks(self.folder / name if name else self.path, block_bytes, part)

    def objects(self, name: str | None = None) -> Sequence[Any] | None:
        """Return the decoded lines of this file or of `name`, None if they are not in memory."""
        found = None if self.files is None else self.files[name or self.name]
        return None if isinstance(found, bytes) else found

    def lines(self, name: str | None = None) -> Iterator[Line]:
        """Yield the lines of this file, or of `name`, that are not blank. Raises OSError."""
        for number, text in self.blocks(name):
            yield from lines_of(number, text)


@dataclass
class Ingested:
    """The result of reading one source: facts, rows of tables, and sentences about problems.
    `counts`: measures are wanted, which take the tables `tallies` and `acks`; `whole_tables`: so
    are all other tables; `injected` are the faults around which sends are counted."""

    meta: RunMeta
    facts: list[Rows] = field(default_factory=list)
    tables: dict[str, pa.Table] = field(default_factory=dict)
    problems: Problems = field(default_factory=Problems)
    whole_tables: bool = True
    counts: bool = True
    injected: Sequence[InjectedFault] = ()

    def sentences(self, source: Source) -> list[Rows]:
        """Return the problems and notes of a source as facts about the run."""
        about = {"source": KINDS.index(source.kind), "node": source.path.stem}
        made = []
        if texts := self.problems.sentences():
            damages, seq = len(self.problems.damages), range(len(texts))
            damage = [nth < damages for nth in seq]
            more = {"text": texts, "seq": seq, "damage": damage, **about}
            made.append(rows(facts.ProblemFacts, source.run, "", **more))
        if texts := self.problems.notes:
            made.append(
                rows(facts.NoteFacts, source.run, "", text=texts, seq=range(len(texts)), **about)
            )
        return made


def decoded(
    form: JsonReader[_Form], first: int, text: bytes
) -> Iterator[tuple[int, bytes, list[_Form] | None]]:
    """Yield some lines in pieces, as large as can be, with their entries; None for a line by itself
    that is not of this form. `first` is the number of the first line."""
    pieces = [(first, text)] if text else []
    while pieces:
        number, piece = pieces.pop()
        lines = piece.count(b"\n") + (not piece.endswith(b"\n"))
        try:
            entries = form.decode_lines(piece)
        except Unreadable:
            entries = []
        if piece.endswith(b"\n") and len(entries) == lines:
            yield number, piece, entries
        elif lines < 2:
            yield number, piece, None
        else:
            cut = piece.find(b"\n", len(piece) // 2, -1) + 1 or piece.index(b"\n") + 1
            pieces.append((number + piece.count(b"\n", 0, cut), piece[cut:]))
            pieces.append((number, piece[:cut]))


class FileReader(Generic[_Form]):
    """A reader of one file of lines: a block at a time if no line in it is wrong, else line by
    line. A line that cannot be read is a problem of the run."""

    form: ClassVar[JsonReader[Any]]
    """The decoder of a correct line."""

    def __init__(self, source: Source, into: Ingested) -> None:
        self.source = source
        self.into = into
        self.name = source.name
        self.node = source.path.stem
        self.damaged = False

    def problem(self, kind: str, sentence: str) -> None:
        """Report a problem of this file; the sentence follows the name of the file."""
        self.damaged = True
        self.into.problems.add(f"{self.name}: {kind}", f"{self.name} {sentence}")

    def damage(self, sentence: str) -> None:
        """Report that this file was changed, or lost lines, after it was written."""
        self.damaged = True
        self.into.problems.damage(f"{self.name} {sentence}")

    def read(self) -> None:
        """Take every line of the file."""
        if (objects := self.source.objects()) is not None:
            self.take_all(objects)
            return
        try:
            for first, text in self.source.blocks():
                self.read_block(first, text)
        except OSError as error:
            self.problem("file", f"cannot be read to its end: {why(error)}.")

    def read_block(self, first: int, text: bytes) -> None:
        """Take some lines; `first` is the number of the first of them."""
        for number, piece, entries in decoded(self.form, first, text):
            if entries is not None:
                self.take_all(entries, number, piece)
                continue
            for line in lines_of(number, piece):
                try:
                    entry = self.form.decode(line.data)
                except Unreadable as error:
                    self.refuse(line, error)
                else:
                    self.take_all([entry], line.number, line.data)

    def take_all(self, entries: Sequence[_Form], first: int = 1, text: bytes = b"") -> None:
        """Take entries of successive lines, the first of which has the number `first`."""
        for number, entry in enumerate(entries, first):
            self.take(number, entry)

    def take(self, number: int, entry: _Form) -> None:
        """Take the entry that was decoded from one line."""
        raise NotImplementedError

    def refuse(self, line: Line, error: Unreadable) -> None:
        """Report a line that cannot be decoded, or take what can be used of it."""
        raise NotImplementedError


class LineNumbers:
    """The numbers that a writer gives its lines, 0, 1, 2 and so on, or none at all."""

    def __init__(self, first: int | None = 0) -> None:
        """Expect `first` as the number of the first line; None takes any."""
        self.first = first
        self.next = first

    def take_all(self, numbers: I64) -> bool:
        """Take the numbers of the next lines if nothing is wrong with them, and return whether."""
        first = -1 if self.next is None else self.next
        if first <= 0 and (numbers == -1).all():
            self.next = -1
            return True
        if first < 0 or (numbers != np.arange(first, first + len(numbers))).any():
            return False
        self.next = first + len(numbers)
        return True

    def go_on(self, after: LineNumbers) -> bool:
        """Take the numbers of the lines that another has taken, the first of which it did not know;
        return whether nothing is wrong between them."""
        follows = self.next == after.first if after.first is not None else (self.next or 0) <= 0
        self.next = self.next if after.next is None else after.next
        return follows

    def gap(self, number: int) -> str:
        """Take the number of the next line (-1: none); return what is wrong with it, or ""."""
        expected = number if self.next is None else self.next
        if self.first is None:
            self.first = number
        if number < 0 and expected <= 0:
            self.next = number
            return ""
        self.next = number + 1
        if number == expected:
            return ""
        if number > expected >= 0:
            missing = f"{expected}" if number == expected + 1 else f"{expected} to {number - 1}"
            return f"lines are missing before it (number {missing})"
        return f"it is there twice or out of order (number {number}, not {expected})"


def is_file(path: Path) -> bool:
    """Return whether a file exists and may be accessed."""
    try:
        return path.is_file()
    except OSError:
        return False


def history_name(folder: Path) -> str:
    """Return the name of the history in a run folder; "history.jsonl" if there is none."""
    return next((name for name in HISTORIES if is_file(folder / name)), "history.jsonl")


def files_in(folder: Path, pattern: str) -> tuple[list[Path], str]:
    """Return the sorted files of a folder, and why they cannot be listed ("" if they can). A folder
    that does not exist has no files."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries]
    except (FileNotFoundError, NotADirectoryError):
        return [], ""
    except OSError as error:
        return [], why(error)
    return [folder / name for name in sorted(names) if fnmatch(name, pattern)], ""


def why(error: Exception) -> str:
    """Return the reason of an error without a full stop, for use inside a sentence."""
    if isinstance(error, OSError):
        return reason(error).replace(", or choose another place", "")
    return str(error).rstrip(".")
