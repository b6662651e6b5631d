"""The operations on many lines by column, whatever form the lines have.

A template is an operation that was read from an exemplar (`checker.ingest.line_shapes`). It says
where in a line each number is, so that each column is filled for all lines at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

import msgspec
import numpy as np
import pyarrow as pa

from checker.evidence.columns import Mask
from checker.evidence.sorting import I64
from checker.ingest.line_shapes import LineTemplate, NotPlain, Places, Scanned
from harness.formats.history import Op, OpKind, OpType
from node.formats.bounds import MOST_TIME_US

# The range of each number (`node.formats.bounds`).
_OFFSET: Final = (-1, 2**63 - 2**33)
_NUMBER: Final = (-(2**62), 2**62)
_VALUE: Final = (-(2**62), 2**63 - 2**33)
_COUNT: Final = (0, 2**17)
_OP_NUMBERS: Final = {
    "op": _OFFSET,
    "t_us": (0, MOST_TIME_US),
    "process": _NUMBER,
    "step": _NUMBER,
    "seq": _OFFSET,
}
_SEND_NUMBERS: Final = {"value": _VALUE, "count": _COUNT, "acks": _NUMBER, "offset": _OFFSET}
_READ_NUMBERS: Final = {"start": _OFFSET, "hw": _OFFSET, "log_start": _OFFSET}
_RUN_NUMBERS: Final = {"offset": _OFFSET, "value": _VALUE, "count": _COUNT, "epoch": _NUMBER}
TYPES: Final[tuple[str, ...]] = get_args(OpType)
KINDS: Final[tuple[str, ...]] = get_args(OpKind)
# The code of a word is made of its pattern, the digits in it and their number.
_DIGITS_BITS, _LENGTH_BITS = 25, 5

Words = tuple[I64, list[str]]
"""A column of words: a code for each row, and the words that codes stand for."""


class _Fields:
    """The columns of one kind of things (operations, sends) in all templates."""

    def __init__(self, numbers: Sequence[str] = (), words: Sequence[str] = ()) -> None:
        self.of: list[int] = []
        self.numbers: dict[str, list[int]] = {name: [] for name in numbers}
        self.words: dict[str, list[tuple[int, tuple[int, ...]]]] = {name: [] for name in words}


class _Templates:
    """The operations of templates as tables of places of numbers; a negative one is a constant."""

    def __init__(self, templates: Sequence[LineTemplate[Op]]) -> None:
        self.constants: dict[int, int] = {}
        self.patterns: dict[tuple[str, ...], int] = {}
        self.ops = _Fields(tuple(_OP_NUMBERS), ("client", "error"))
        self.sends = _Fields(tuple(_SEND_NUMBERS), ("partition",))
        self.reads = _Fields(tuple(_READ_NUMBERS), ("partition", "node"))
        self.runs = _Fields(tuple(_RUN_NUMBERS))
        for op, places in templates:
            self._add(self.ops, places, [op])
            self._add(self.sends, places, op.sends)
            self._add(self.reads, places, op.reads)
            for read in op.reads:
                self._add(self.runs, places, read.records)

    def _add(self, rows: _Fields, places: Places, items: Sequence[Any]) -> None:
        rows.of.append(len(items))
        for name, column in rows.numbers.items():
            column += [self._number(places, getattr(item, name)) for item in items]
        for name, words in rows.words.items():
            words += [self._word(places, getattr(item, name)) for item in items]

    def _number(self, places: Places, value: int) -> int:
        place = places.number(value)
        return (
            -1 - self.constants.setdefault(value, len(self.constants)) if place is None else place
        )

    def _word(self, places: Places, text: str) -> tuple[int, tuple[int, ...]]:
        parts, found = places.word(text)
        return self.patterns.setdefault(parts, len(self.patterns)), found


@dataclass(frozen=True)
class Runs:
    """The part of another table that belongs to each row: its first row there, and how many."""

    at: I64
    count: I64


class Nested:
    """The rows of another table, such as sends, that belong to each row of a table, such as
    operations: `count`, and the index `at` of the first. For each nested row: `template`, its
    template, and `first`, the index of its line's first number among the numbers of all lines."""

    def __init__(self, template: I64, first: I64, of: Sequence[int]) -> None:
        lengths = np.array(of, np.int64)
        self.count: I64 = lengths[template]
        self.at: I64 = np.cumsum(self.count) - self.count
        begin = (np.cumsum(lengths) - lengths)[template]
        self.template: I64 = np.repeat(begin - self.at, self.count)
        self.template += np.arange(len(self.template))
        self.first: I64 = np.repeat(first, self.count)


class OpColumns:
    """Operations by column. `number`: their integer fields by name, such as "op"; `sends`: how many
    each has, with integer fields in `send`, partitions in `send_to`; `reads`, `read` and `read_of`
    likewise; `runs` and `run`: the ranges of consecutive records that each read returned."""

    def __init__(
        self, lines: Scanned, template: I64, templates: Sequence[LineTemplate[Op]]
    ) -> None:
        made = _Templates(templates)
        self._lines = lines
        self._values = np.append(lines.number, np.array([*made.constants], np.int64))
        self._patterns = [*made.patterns]
        ops = [op for op, _ in templates]
        every = Nested(template, lines.first, made.ops.of)
        self.number, words = self._columns(every, made.ops, _OP_NUMBERS)
        self.client, self.error = words["client"], words["error"]
        self.type: I64 = np.array([TYPES.index(op.type) for op in ops], np.int64)[template]
        self.f: I64 = np.array([KINDS.index(op.f) for op in ops], np.int64)[template]
        self.final: Mask = np.array([op.final for op in ops], bool)[template]
        self.rebalanced: Mask = np.array([bool(op.rebalanced) for op in ops], bool)[template]
        special = [bool(op.isolation) or any(read.at_end for read in op.reads) for op in ops]
        self.special: Mask = np.array(special, bool)[template]
        self.assigned: Mask = np.array([bool(op.partitions) for op in ops], bool)[template]
        self.sends = Nested(template, lines.first, made.sends.of)
        self.send, words = self._columns(self.sends, made.sends, _SEND_NUMBERS)
        self.send_to = words["partition"]
        self.reads = Nested(template, lines.first, made.reads.of)
        self.read, words = self._columns(self.reads, made.reads, _READ_NUMBERS)
        self.read_of, self.read_from = words["partition"], words["node"]
        runs = Nested(self.reads.template, self.reads.first, made.runs.of)
        self.run, _ = self._columns(runs, made.runs, _RUN_NUMBERS)
        self.runs = Runs(runs.at, runs.count)

    def _columns(
        self, rows: Nested, made: _Fields, bounds: Mapping[str, tuple[int, int]]
    ) -> tuple[dict[str, I64], dict[str, Words]]:
        """Return the numbers and words of these rows. Raises NotPlain for one out of bounds."""
        numbers = {}
        for name, (low, high) in bounds.items():
            column = self._values[self._where(rows, np.array(made.numbers[name], np.int64))]
            if len(column) and (column.min() < low or column.max() > high):
                raise NotPlain
            numbers[name] = column
        return numbers, {name: self._words(rows, words) for name, words in made.words.items()}

    def _where(self, rows: Nested, places: I64) -> I64:
        """Return the positions of the numbers with these places; those of constants come last."""
        constants = len(self._lines.number)
        if (places < 0).all():
            found: I64 = (constants - 1 - places)[rows.template]
            return found
        place = places[rows.template]
        if (places >= 0).all():
            return rows.first + place
        return np.where(place >= 0, rows.first + place, constants - 1 - place)

    def _words(self, rows: Nested, words: Sequence[tuple[int, tuple[int, ...]]]) -> Words:
        """Return a column of words: of each its pattern and the places of the digits in it."""
        codes: I64 = np.array([pattern for pattern, _ in words], np.int64)[rows.template]
        groups: list[tuple[I64, I64]] = []
        for nth in range(max((len(places) for _, places in words), default=0)):
            place = np.array([p[nth] if len(p) > nth else -1 for _, p in words], np.int64)
            place = place[rows.template]
            there, at = place >= 0, np.maximum(rows.first + place, 0)
            digits = np.where(there, self._lines.digits[at], 0)
            length = np.where(there, self._lines.length[at], 0)
            groups.append((digits, length))
            codes = _codes(codes, digits, length)
        codes, first = _distinct(codes)
        patterns = np.array([pattern for pattern, _ in words], np.int64)[rows.template[first]]
        texts = []
        for row, pattern in zip(first.tolist(), patterns.tolist(), strict=True):
            parts = self._patterns[pattern]
            texts.append(
                parts[0]
                + "".join(
                    _text(digits[row], length[row]) + part
                    for (digits, length), part in zip(groups, parts[1:], strict=False)
                )
            )
        return codes, texts


def filled(template: LineTemplate[Op], lines: Scanned, row: int) -> Op:
    """Return the operation on the line with the index `row`, which has this template."""
    first, places = int(lines.first[row]), template.places

    def fill(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(fill, value))
        if isinstance(value, msgspec.Struct):
            names = value.__struct_fields__
            return type(value)(**{name: fill(getattr(value, name)) for name in names})
        if isinstance(value, str):
            parts, found = places.word(value)
            digits = (_text(lines.digits[first + at], lines.length[first + at]) for at in found)
            return parts[0] + "".join(map(str.__add__, digits, parts[1:]))
        place = places.number(value) if type(value) is int else None
        return value if place is None else int(lines.number[first + place])

    made: Op = fill(template.value)
    return made


def _text(digits: Any, length: Any) -> str:
    return f"{int(digits):0{int(length)}}"


def _codes(codes: I64, digits: I64, length: I64) -> I64:
    """Return codes in which equal texts with different digits are different."""
    if len(digits) and digits.max() >> _DIGITS_BITS:
        digits, _ = _distinct(digits)
    made = ((codes << _LENGTH_BITS | length) << _DIGITS_BITS) | digits
    return _distinct(made)[0]


def _distinct(numbers: I64) -> tuple[I64, I64]:
    """Return numbers as codes, and the first row of each."""
    codes: I64 = pa.array(numbers).dictionary_encode().indices.to_numpy().astype(np.int64)
    first = np.zeros(int(codes.max()) + 1 if len(codes) else 0, np.int64)
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    return codes, first
