"""Lines by shape: the shape of a line is the line without its digits, and lines of one shape differ
only in their numbers.

The reader of single lines reads each shape only once, as an exemplar: the shape with a different
number in each place. Where these numbers are in what it reads says what each place means
(`Places`). All numbers of all lines are parsed at once (`scan`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checker.evidence.sorting import I64
from node.formats.json_input import Unreadable

NOT_A_NUMBER: Final = -(2**63)
"""The number of digits that are none, as 007 or -0; in a word they are digits like others."""
_ZERO, _MINUS, _NEWLINE = b"0-\n"
_ANY_DIGIT: Final = bytes.maketrans(b"123456789", b"0" * 9)
_NO_DIGITS: Final = bytes(set(range(256)) - set(b"0123456789"))
_FIRST: Final = 1_000
_MOST_PLACES: Final = 100_000
"""The most numbers in a shape, so that each number of its exemplar is within all bounds."""
_DIGITS: Final = re.compile(r"[0-9]+")

Value = TypeVar("Value")


class NotPlain(Exception):
    """An exception: these lines must be read one by one."""


@dataclass(frozen=True)
class Scanned:
    """Some lines, the shape of each, and all their groups of digits. By line: `ends`, where its
    newline is; `first`, the number of its first group. By group: `number`, with the sign; `digits`,
    without it, also if they are no number, as in 007; `length`, how many digits."""

    text: bytes
    ends: I64
    shape: I64
    shapes: Sequence[bytes]
    first: I64
    number: I64
    digits: I64
    length: I64

    def line(self, row: int) -> bytes:
        return self.text[int(self.ends[row - 1]) + 1 if row else 0 : int(self.ends[row])]


def scan(text: bytes) -> Scanned:
    """Parse whole lines. Raises NotPlain for none, or for a number of more than 64 bits."""
    if not text.endswith(b"\n"):
        raise NotPlain
    chars = np.frombuffer(text, np.uint8)
    is_digit = (chars - _ZERO) < 10
    edges = np.flatnonzero(is_digit[1:] != is_digit[:-1]) + 1
    if is_digit[0]:
        edges = np.append(0, edges)
    begins, length = edges[::2], edges[1::2] - edges[::2]
    digits = _numbers(text, length)
    kept = ~is_digit
    kept[begins] = True
    shape, shapes = _coded(chars[kept].tobytes().translate(_ANY_DIGIT))
    ends = np.flatnonzero(chars == _NEWLINE)
    minus = (chars[begins - 1] == _MINUS) & (begins > 0)
    number = np.where(minus, -digits, digits)
    number[(length > 1) & (chars[begins] == _ZERO) | minus & (digits == 0)] = NOT_A_NUMBER
    first = np.searchsorted(begins, np.append(0, ends[:-1]))
    return Scanned(text, ends, shape, shapes, first, number, digits, length)


def _numbers(text: bytes, length: I64) -> I64:
    """Return all groups of digits of a text; they have these lengths."""
    offsets = np.zeros(len(length) + 1, np.int32)
    np.cumsum(length, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text.translate(None, _NO_DIGITS))]
    try:
        numbers = pc.cast(pa.Array.from_buffers(pa.string(), len(length), buffers), pa.int64())
    except pa.ArrowInvalid:
        raise NotPlain from None
    made: I64 = numbers.to_numpy()
    return made


def _coded(text: bytes) -> tuple[I64, list[bytes]]:
    """Return the lines of a text as codes, and the text of each code, without the newline."""
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == _NEWLINE)
    offsets = np.append(0, ends + 1).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    coded = pa.Array.from_buffers(pa.binary(), len(ends), buffers).dictionary_encode()
    codes = coded.indices.to_numpy().astype(np.int64)
    return codes, [line[:-1] for line in coded.dictionary.to_pylist()]


class Word(NamedTuple):
    """A word of an exemplar: the parts between groups of digits, and the places of these groups."""

    parts: tuple[str, ...]
    places: tuple[int, ...]


class Places:
    """The meaning of the numbers in an exemplar with `count` places; if 0, each means itself."""

    def __init__(self, count: int = 0) -> None:
        self.count = count
        # Places in words, where any digits may be; and the number of keys of maps with places.
        self.in_words: set[int] = set()
        self.keys = 0

    def number(self, value: int) -> int | None:
        """Return the place that this number of the exemplar stands for, None if for none."""
        place = abs(value) - _FIRST
        return place if 0 <= place < self.count else None

    def word(self, text: str) -> Word:
        """Return a word of the exemplar with the places of the digits in it."""
        parts, places, done = [], [], 0
        for digits in _DIGITS.finditer(text):
            if (place := self.number(int(digits[0]))) is not None:
                parts.append(text[done : digits.start()])
                places.append(place)
                done = digits.end()
        return Word((*parts, text[done:]), tuple(places))

    def are_all_in(self, form: Any) -> bool:
        """Return whether `form`, read from the exemplar, has each of its numbers, once."""
        seen: list[int] = []
        waiting = [form]
        while waiting:
            each = waiting.pop()
            if isinstance(each, dict):
                self.keys += sum(map(self._is_in, each))
                waiting += [*each, *each.values()]
            elif isinstance(each, list | tuple):
                waiting += each
            elif isinstance(each, str):
                found = self.word(each).places
                self.in_words.update(found)
                seen += found
            elif isinstance(each, float):
                return False  # It may be written in many ways.
            elif (place := self.number(each) if type(each) is int else None) is not None:
                seen.append(place)
        return sorted(seen) == [*range(self.count)]

    def _is_in(self, key: Any) -> bool:
        """Return whether a key of a map depends on digits; then two keys may turn out to be one."""
        if isinstance(key, tuple):
            return any(map(self._is_in, key))
        if isinstance(key, str):
            return bool(self.word(key).places)
        return type(key) is int and self.number(key) is not None


class LineTemplate(NamedTuple, Generic[Value]):
    """The value that was read from an exemplar, and the meaning of the numbers in it."""

    value: Value
    places: Places


def templates(
    lines: Scanned,
    read: Callable[[bytes], tuple[Value, Any]],
    suits: Callable[[LineTemplate[Value]], bool] = lambda _: True,
) -> tuple[I64, list[LineTemplate[Value]]]:
    """Return the template of each line, as a code, and all templates. `read` reads one line: its
    value, and everything that is in it. A line has a template of its own if its shape does not say
    what it means, or if `suits` refuses the template. Raises NotPlain if a line cannot be read."""
    found: list[LineTemplate[Value]] = []
    of_shape = np.full(len(lines.shapes), -1)
    for code, shape in enumerate(lines.shapes):
        template = _of_exemplar(shape, read)
        if template is not None and suits(template):
            of_shape[code] = len(found)
            found.append(template)
    made: I64 = of_shape[lines.shape]
    for row in np.flatnonzero(made < 0).tolist():
        made[row] = len(found)
        try:
            found.append(LineTemplate(read(lines.line(row))[0], Places()))
        except Unreadable:
            raise NotPlain from None
    _check_numbers(lines, made, [template.places for template in found])
    return made, found


def _check_numbers(lines: Scanned, template: I64, places: Sequence[Places]) -> None:
    """Refuse lines with malformed numbers. Raises NotPlain."""
    wrong = np.flatnonzero(lines.number == NOT_A_NUMBER)
    if not len(wrong):
        return
    counts = np.array([each.count for each in places], np.int64)
    starts = np.cumsum(counts) - counts
    matters = np.array([p not in each.in_words for each in places for p in range(each.count)], bool)
    row = np.searchsorted(lines.first, wrong, side="right") - 1
    place = wrong - lines.first[row]
    known = place < counts[template[row]]
    if matters[starts[template[row[known]]] + place[known]].any():
        raise NotPlain


def _of_exemplar(
    shape: bytes, read: Callable[[bytes], tuple[Value, Any]]
) -> LineTemplate[Value] | None:
    """Return the meaning of the lines of a shape; None if the shape alone does not say it."""
    first, *others = shape.split(b"0")
    if len(others) > _MOST_PLACES:
        return None
    text = [first, *(b"%d%b" % (_FIRST + place, part) for place, part in enumerate(others))]
    places = Places(len(others))
    try:
        value, form = read(b"".join(text))
    except Unreadable:
        return None
    return LineTemplate(value, places) if places.are_all_in(form) else None
