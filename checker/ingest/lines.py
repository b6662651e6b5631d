"""Reading of files of lines, which a killed process may have left half written.

Nothing here raises for the content of a file: a mistake becomes a sentence, and the rest is read.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from node.formats.json_input import MOST_LINE_BYTES, JsonReader, Unreadable, ended
from node.formats.reading import open_file

_Form = TypeVar("_Form")
_IN_FULL: Final = 5
BLOCK_BYTES: Final = 1 << 20

Block = tuple[int, bytes]
"""The number of the first of some whole lines, and the lines."""


class Range(NamedTuple):
    """Some whole lines of a file, from byte `begin` to `end`; the number of the first of them, and
    how many operations of Jepsen's are invoked in front of it."""

    begin: int
    end: int
    line: int = 1
    ops: int = 0


Files = Mapping[str, bytes | Sequence[Any]]
"""What is in the files of a run folder, by their names in it: bytes, or in place of lines what each
of them says, where nothing can have damaged it on its way."""


class Line(NamedTuple):
    """One line of a file, without its newline; `whole`: the newline was there."""

    number: int
    data: bytes
    whole: bool


class Problems:
    """Sentences about the files of a run: problems make the verdict unknown, notes do not, and
    damage makes all evidence useless. Of each kind of problem the first few are kept and the others
    counted."""

    def __init__(self, in_full: int = _IN_FULL) -> None:
        self._in_full = in_full
        self._reported: dict[str, list[str]] = {}
        self._more: Counter[str] = Counter()
        self._damage: dict[str, None] = {}
        self.notes: list[str] = []

    def add(self, kind: str, sentence: str) -> None:
        """Report a problem; those of one `kind` are counted together."""
        reported = self._reported.setdefault(kind, [])
        if len(reported) < self._in_full:
            reported.append(sentence)
        else:
            self._more[kind] += 1

    def damage(self, sentence: str) -> None:
        """Report that a file of the run was changed, or lost lines, after it was written."""
        if len(self._damage) < self._in_full:
            self._damage.setdefault(sentence)

    @property
    def damages(self) -> list[str]:
        """The sentences about damage."""
        return list(self._damage)

    def note(self, sentence: str) -> None:
        """Report something that does not change the verdict."""
        if sentence not in self.notes:
            self.notes.append(sentence)

    def sentences(self) -> list[str]:
        """Return all problems: damage first, then the others in the order of their kinds."""
        made = self.damages
        for kind, reported in self._reported.items():
            made.extend(reported)
            if more := self._more[kind]:
                made.append(f"{kind}: {more} more of the same kind.")
        return made

    def __bool__(self) -> bool:
        return bool(self._reported or self._damage)


def read_blocks(
    path: Path, block_bytes: int = BLOCK_BYTES, part: Range | None = None
) -> Iterator[Block]:
    """Yield a file, or a part of it, in blocks of whole lines, of about `block_bytes` each. Raises
    OSError."""
    begin, end, number, _ = part or Range(0, 1 << 62)
    with open_file(path) as file:
        file.seek(begin)
        while block := file.read(max(0, min(block_bytes, end - file.tell()))):
            if not block.endswith(b"\n"):
                block += file.readline(MOST_LINE_BYTES)
            if not block.endswith(b"\n"):
                block = ended(block, file)
            yield number, block
            number += block.count(b"\n")


def lines_of(number: int, block: bytes) -> Iterator[Line]:
    """Yield the lines of a block that are not blank; `number` is that of its first line."""
    for at, raw in enumerate(BytesIO(block), number):
        data = raw.rstrip(b"\r\n")
        if data.strip():
            yield Line(at, data, raw.endswith(b"\n"))


def read_lines(path: Path) -> Iterator[Line]:
    """Yield the lines of a file that are not blank, numbered from 1. Raises OSError."""
    for number, block in read_blocks(path):
        yield from lines_of(number, block)


def readable_lines(
    path: Path, form: type[_Form], needles: tuple[bytes, ...] = (b"",)
) -> Iterator[_Form]:
    """Yield the lines of a file that have one of `needles` in them, decoded as `form`. A line or
    file that cannot be read is left out: the readers that judge it report it."""
    decoder = JsonReader(form)
    try:
        for line in read_lines(path):
            if any(needle in line.data for needle in needles):
                with contextlib.suppress(Unreadable):
                    yield decoder.decode(line.data)
    except OSError:
        return
