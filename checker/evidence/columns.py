"""Facts of one kind as columns: made from what a reader has, joined and sorted when asked for.

`Rows` are facts of one kind as a reader gives them: a column is one value for all rows, or a list,
an array or `Words` with a value for each row. `Columns` join the rows of many readers. A kind of
facts (`checker.evidence.facts`) is a view of columns, with an attribute for each column.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt

from checker.evidence.sorting import I64, is_constant, is_sorted, order_of, picked, repeated

Mask = npt.NDArray[np.bool_]
Texts = npt.NDArray[np.object_]
_Values = TypeVar("_Values")
_Index = I64 | Mask | slice


class Words(NamedTuple):
    """A column of texts with few different values: a code for each row, and each code's text."""

    codes: I64
    words: Sequence[str]

    def at(self, row: int) -> str:
        """Return the text of a row."""
        return self.words[int(self.codes[row])]


class FactColumn(Generic[_Values]):
    """A column of a kind of facts, an attribute that is computed on first use and then kept.
    `unknown` is the number that stands for a missing value."""

    def __init__(self, unknown: int = -1) -> None:
        self.unknown = unknown

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, facts: Facts, owner: type) -> _Values:
        values: _Values = facts.column(self.name)
        facts.__dict__[self.name] = values
        return values


class Numbers(FactColumn[I64]):
    """A column of numbers."""


class Name(FactColumn[I64]):
    """A column of nodes or clients, as codes: indices into `Facts.names`."""


class Flag(FactColumn[Mask]):
    """A column of booleans, False by default."""

    def __init__(self) -> None:
        super().__init__(0)


class Text(FactColumn[Texts]):
    """A column of texts."""


KINDS: Final[dict[str, type[Facts]]] = {}
"""The kinds of facts by name."""


class Facts:
    """Facts of one kind as columns. Views share columns: never change their values."""

    columns: ClassVar[Mapping[str, FactColumn[Any]]] = {}
    order_by: ClassVar[tuple[str, ...]] = ()
    """The columns that the rows of a group are sorted by; no two rows share all of them."""

    def __init_subclass__(cls) -> None:
        every = [named for base in reversed(cls.__mro__) for named in vars(base).items()]
        cls.columns = {name: c for name, c in every if isinstance(c, FactColumn)}
        KINDS[cls.__name__] = cls

    def __init__(self, source: Columns | Facts, rows: I64 | None) -> None:
        """Take the given rows of `source`, or all of them."""
        self._source = source
        self._rows = rows
        self._length = len(source) if rows is None else len(rows)

    def __len__(self) -> int:
        return self._length

    def take(self, index: _Index) -> Self:
        """Return the rows at `index` (numbers, a mask or a slice), in that order."""
        if not self._length:
            return self
        if isinstance(index, slice):
            return type(self)(self, np.arange(self._length)[index])
        if index.dtype == np.bool_:
            return self if index.all() else type(self)(self, index.nonzero()[0])
        return type(self)(self, np.asarray(index, np.int64))

    def replaced(self, name: str, values: I64) -> Self:
        """Return the same rows with other values in the column `name`."""
        made = type(self)(self, None)
        vars(made)[name] = values
        return made

    def column(self, name: str) -> Any:
        if isinstance(self._source, Facts):
            values = getattr(self._source, name)
        else:
            values = self._source.take(name)
        return values if self._rows is None else picked(values, self._rows)

    def has(self, name: str) -> bool:
        """Return whether the column `name` has any known value."""
        return self._source.has(name)

    @property
    def names(self) -> Sequence[str]:
        """The names of nodes and clients that the codes in `Name` columns stand for, sorted."""
        return self._source.names

    def name(self, code: int) -> str:
        """Return the node or client that a code stands for."""
        return self.names[code]


@dataclass(frozen=True, slots=True)
class Rows:
    """Facts of one kind about one run, as a reader gives them. `run` is the number of the run;
    `partition` and each of `columns` hold one value for all rows, or a value for each row; `count`
    is the number of rows."""

    kind: type[Facts]
    run: int
    partition: Any
    columns: Mapping[str, Any]
    count: int

    @property
    def partitions(self) -> Collection[str]:
        """The partitions that these facts are about; "" stands for the whole run."""
        return _distinct_words(self.partition)

    def numbers(self, name: str) -> npt.NDArray[Any]:
        """Return a column of numbers or flags as stored; if it was not given, all are unknown."""
        values = self.columns.get(name)
        if values is None:
            return repeated(self.kind.columns[name].unknown, self.count)
        if isinstance(values, int):
            return repeated(int(values), self.count)
        return values if isinstance(values, np.ndarray) else np.array(values, np.int64)

    def words(self, name: str) -> Words:
        """Return a column of texts, or that of the partitions, as codes and texts."""
        values = self.partition if name == "partition" else self.columns.get(name, "")
        if isinstance(values, Words):
            return values
        if isinstance(values, str):
            return Words(repeated(0, self.count), [values])
        codes: dict[str, int] = {}
        every = [codes.setdefault(each or "", len(codes)) for each in values]
        return Words(np.array(every, np.int64), list(codes))

    def texts(self, name: str) -> Sequence[str]:
        values = self.columns.get(name, "")
        return [values] * self.count if isinstance(values, str) else values

    def take(self, index: I64 | slice) -> Rows:
        """Return the rows at `index`, in that order."""
        every = range(self.count)
        count = len(every[index]) if isinstance(index, slice) else len(index)
        columns = {name: _taken(values, index) for name, values in self.columns.items()}
        return Rows(self.kind, self.run, _taken(self.partition, index), columns, count)


def rows(kind: type[Facts], run: int, partition: Any, **columns: Any) -> Rows:
    """Return facts of one kind about the run with the number `run`; columns that are not given are
    unknown. At least one column, or the partition, must have a value for each row."""
    assert columns.keys() <= kind.columns.keys(), sorted(columns)
    for values in (partition, *columns.values()):
        if not isinstance(values, int | str):
            count = len(values.codes if isinstance(values, Words) else values)
            return Rows(kind, run, partition, columns, count)
    raise AssertionError(f"no column of {kind.__name__} has rows")


def _taken(values: Any, index: I64 | slice) -> Any:
    if isinstance(values, int | str):
        return values
    if isinstance(values, Words):
        return _only_used(Words(values.codes[index], values.words))
    if not isinstance(values, np.ndarray):
        values = np.array(values, object if isinstance(values[0], str) else np.int64)
    return values[index]


def _only_used(values: Words) -> Words:
    """Return the same texts without words that no row uses, if most are such: the few rows of one
    of many partitions do not carry the words of all."""
    if len(values.words) <= len(values.codes):
        return values
    used, codes = np.unique(values.codes, return_inverse=True)
    return Words(codes.astype(np.int64, copy=False), [values.words[code] for code in used.tolist()])


def _distinct_words(values: Any) -> Collection[str]:
    if isinstance(values, str):
        return {values}
    if isinstance(values, Words):
        used = np.flatnonzero(np.bincount(values.codes, minlength=len(values.words)))
        return {values.words[code] or "" for code in used.tolist()}
    return {each or "" for each in values}


class Columns:
    """All facts of one kind about one partition, or about all partitions of a run, in the order in
    which they came from the readers."""

    def __init__(
        self,
        kind: type[Facts],
        parts: Sequence[Rows],
        names: Callable[[], Sequence[str]],
        *,
        shared: bool = False,
    ) -> None:
        """Join `parts`. `names` returns the names that codes stand for, once all facts are there.
        `shared` columns, of a whole run, are kept once they are made."""
        self.kind = kind
        self._parts = parts
        self._all_names = names
        self._kept: dict[str, Any] | None = {} if shared else None
        self._length: int = sum(part.count for part in parts)
        self._sorted: bool | None = None

    def __len__(self) -> int:
        return self._length

    @property
    def names(self) -> Sequence[str]:
        """The names of nodes and clients that codes stand for, sorted."""
        return self._all_names()

    def own_names(self) -> set[str]:
        """Return the names of all clients and nodes that these facts mention."""
        kinds = self.kind.columns.items()
        names = [name for name, column in kinds if isinstance(column, Name)]
        given = (part.columns.get(name, "") for part in self._parts for name in names)
        return set().union(*map(_distinct_words, given))

    def has(self, name: str) -> bool:
        """Return whether the column `name` has any known value."""
        return any(name in part.columns for part in self._parts)

    def partitions(self) -> tuple[I64, Sequence[str]]:
        """Return a code for each row, and the name of the partition of each code."""
        known: dict[str, int] = {}
        codes = []
        for part in self._parts:
            own = part.words("partition")
            for word in own.words:
                known.setdefault(word or "", len(known))
            codes.append(_ranked(own, known))
        return _joined(codes), list(known)

    def take(self, name: str) -> Any:
        if self._kept is None:
            return self._make(name)
        if name not in self._kept:
            self._kept[name] = self._make(name)
        return self._kept[name]

    def _make(self, name: str) -> Any:
        column = self.kind.columns[name]
        if isinstance(column, Text):
            texts = [text for part in self._parts for text in part.texts(name)]
            return np.array(texts, dtype=object)
        if isinstance(column, Name):
            # Of a run with many partitions, a kind that one of them lacks must not cost all names.
            rank = {each: code for code, each in enumerate(self.names if self._parts else ())}
            return _joined([_ranked(part.words(name), rank) for part in self._parts])
        if not self.has(name):
            made = repeated(column.unknown, self._length)
        else:
            made = _joined(
                [part.numbers(name).astype(np.int64, copy=False) for part in self._parts]
            )
        return made != 0 if isinstance(column, Flag) else made

    def order(self, keys: Sequence[str], index: I64 | None) -> I64 | None:
        """Return the numbers of the rows at `index` (None: of all rows), sorted by the columns
        `keys`. The result is None if all rows are in that order already."""
        if (self._length if index is None else len(index)) < 2 or not keys:
            return index
        if index is None:
            self._parts = sorted(self._parts, key=lambda part: _first(part, keys[0]))
        columns = [self.take(name) for name in keys]
        if self._sorted is None:
            self._sorted = is_sorted(columns)
        if self._sorted:
            return index
        if index is None:
            return order_of(columns)
        columns = [column[index] for column in columns]
        return index if is_sorted(columns) else index[order_of(columns)]


def _joined(parts: Sequence[I64]) -> I64:
    if not parts:
        return np.zeros(0, np.int64)
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _ranked(own: Words, rank: Mapping[str, int]) -> I64:
    """Return words as their ranks; there may be words that no row uses."""
    ranks = np.array([rank.get(w or "", 0) for w in own.words], np.int64)
    if is_constant(own.codes) and len(own.codes):
        return repeated(int(ranks[own.codes[0]]), len(own.codes))
    found: I64 = ranks[own.codes]
    return found


def _first(part: Rows, name: str) -> int:
    """Return the first value of a column of numbers, to put parts that are sorted into order."""
    if isinstance(part.kind.columns[name], Name) or name not in part.columns or not part.count:
        return 0
    return int(part.numbers(name)[0])
