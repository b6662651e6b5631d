"""Facts of one small run as plain rows, for a judgement in memory.

What a batch of Arrow is to the pipeline, `Rows` are to a search, which judges thousands of runs of
some hundred facts each: there, to make batches, and columns of them, costs more than all checks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from checker.evidence.columns import Columns
from checker.evidence.facts import I64, UNKNOWN, Kind
from checker.evidence.group import Group, columns_of, groups_in

_NAMES: Final = ("client", "node")


@dataclass(frozen=True, slots=True)
class Rows:
    """Some facts of one kind; a column is one value for all rows or one a row."""

    kind: Kind
    partition: str | Sequence[str]
    columns: dict[str, Any]
    count: int

    @property
    def partitions(self) -> Collection[str]:
        """The partitions that they are about."""
        return {self.partition} if isinstance(self.partition, str) else set(self.partition)

    def column(self, name: str, default: Any) -> Sequence[Any]:
        """A column, one value a row; all `default` where nothing is known of it."""
        values = self.columns.get(name, default)
        return [values] * self.count if isinstance(values, int | str) else values


def rows(run: int, kind: Kind, partition: str | Sequence[str], **columns: Any) -> Rows:
    """Facts as `checker.evidence.facts.block` makes them, and with its arguments."""
    given = (partition, *columns.values())
    return Rows(
        kind, partition, columns, next(len(c) for c in given if not isinstance(c, int | str))
    )


class RowColumns(Columns):
    """Rows of one kind as columns, shared by all groups of the run."""

    def __init__(self, parts: Sequence[Rows], names: Callable[[], tuple[str, ...]]) -> None:
        super().__init__((), names, shared=True)
        self._parts = parts
        self._length = sum(part.count for part in parts)

    def own_names(self) -> set[str]:
        """All clients and nodes in these rows."""
        found: set[str] = set()
        for part in self._parts:
            for name in _NAMES:
                values = part.columns.get(name, ())
                found.update((values,) if isinstance(values, str) else values)
        return found

    def has(self, name: str) -> bool:
        """Whether anything is known of a column."""
        return any(name in part.columns for part in self._parts)

    @cached_property
    def text(self) -> npt.NDArray[np.object_]:
        """The column `text`."""
        return np.array(self._joined("text", ""), dtype=object)

    def partitions(self) -> tuple[I64, Sequence[str]]:
        """The partition of each row, as codes and names."""
        known: dict[str, int] = {}
        codes: list[int] = []
        for part in self._parts:
            if isinstance(part.partition, str):
                codes += [known.setdefault(part.partition, len(known))] * part.count
            else:
                for each in dict.fromkeys(part.partition):
                    known.setdefault(each, len(known))
                codes += map(known.__getitem__, part.partition)
        return np.array(codes, np.int64), list(known)

    def _make(self, name: str) -> I64:
        if name in _NAMES:
            rank = {each: code for code, each in enumerate(self.names)}
            return np.array([rank[n or ""] for n in self._joined(name, "")], np.int64)
        if not self.has(name):
            return np.full(self._length, UNKNOWN[name], np.int64)
        return np.array(self._joined(name, UNKNOWN[name]), np.int64)

    def _joined(self, name: str, default: Any) -> list[Any]:
        values: list[Any] = []
        for part in self._parts:
            values.extend(part.column(name, default))
        return values


def groups_of_rows(facts: Iterable[Rows]) -> list[Group]:
    """The groups of a run, in order of partition."""
    by_kind: dict[Kind, list[Rows]] = {}
    for part in facts:
        if part.count:
            by_kind.setdefault(part.kind, []).append(part)
    return groups_in(columns_of(by_kind, RowColumns))
