"""All facts of one (run, partition), as sorted columns: what the checks are functions of.

Facts arrive in any order; each kind is sorted here by a key that no two of its rows share, so that
nothing a check computes depends on row order, partitioning or parallelism. A column is made when a
check first asks for it, because most checks use a few of many and a partition may have millions
of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property, lru_cache, partial
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from checker.evidence.columns import Columns
from checker.evidence.facts import CLOCK_BACK, COMPLETE, FINALS, I64, OVERLAP, TRANSACTIONS, Kind
from checker.evidence.run_meta import RunMeta
from checker.evidence.sorting import picked
from node.formats.json_input import decode

Mask = npt.NDArray[np.bool_]
Texts = npt.NDArray[np.object_]
# By kind: columns, and which of their rows (None: all) are of the group.
Parts = Mapping[Kind, tuple[Columns, I64 | None]]
_Made = TypeVar("_Made")
_Part = TypeVar("_Part")
_Index = I64 | Mask | slice
_NOTHING: Final = np.zeros(0, np.int64)


class _Column:
    """A column of facts, made when first used and then kept."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, facts: Facts, owner: type) -> I64:
        column = facts.column(self._name)
        facts.__dict__[self._name] = column
        return column


class Facts:
    """Facts of one kind as columns; docs of `checker.evidence.facts` say what each means for which
    kind.

    `client` and `node` are codes into `names`; `text` keeps its strings. Columns must not be
    changed: they are shared.
    """

    op, seq, idx, process = _Column(), _Column(), _Column(), _Column()
    outcome, flags, t0, t1 = _Column(), _Column(), _Column(), _Column()
    offset, value, count, epoch = _Column(), _Column(), _Column(), _Column()
    hw, leo, hash, hash2 = _Column(), _Column(), _Column(), _Column()
    client, node, turn = _Column(), _Column(), _Column()

    def __init__(self, source: Columns | Facts, rows: I64 | None) -> None:
        """The given rows of `source`, or all of them."""
        self._source = source
        self._rows = rows
        self._length = len(source) if rows is None else len(rows)

    def __len__(self) -> int:
        return self._length

    def take(self, index: _Index) -> Facts:
        """The rows at `index` (numbers, a mask or a slice), in that order."""
        if not self._length:
            return self
        if isinstance(index, slice):
            return Facts(self, np.arange(self._length)[index])
        if index.dtype == np.bool_:
            return self if index.all() else Facts(self, index.nonzero()[0])
        return Facts(self, np.asarray(index, np.int64))

    def column(self, name: str) -> I64:
        """A column by name."""
        if not self._length:
            return _NOTHING
        if isinstance(self._source, Facts):
            column: I64 = getattr(self._source, name)
        else:
            column = self._source.take(name)
        if self._rows is None:
            return column
        return picked(column, self._rows)

    def has(self, name: str) -> bool:
        """Whether anything is known of a column."""
        return self._source.has(name)

    @property
    def order(self) -> I64:
        """Return the order of the operations of a process: their numbers, or their turns."""
        return self.turn if self.has("turn") else self.op

    @cached_property
    def text(self) -> Texts:
        """The texts of the rows."""
        texts = self._source.text
        return texts if self._rows is None else texts[self._rows]

    @property
    def names(self) -> tuple[str, ...]:
        """Nodes and clients, in order of name."""
        return self._source.names

    @property
    def end(self) -> I64:
        """Offset after the last record of each row."""
        return self.offset + self.count

    def name(self, code: int) -> str:
        """The node or client behind a code."""
        return self.names[code]


_BY_OP: Final = ("op", "seq", "idx")
_BY_TIME: Final = ("t1", "node", "op")
_ORDER: Final[dict[Kind, tuple[str, ...]]] = {
    Kind.READ: ("process", *_BY_OP),
    Kind.HISTORY: ("flags",),
    Kind.LOG_HEAD: ("node",),
    Kind.LOG_FILE: ("node",),
    Kind.EPOCH: ("node", "seq"),
    Kind.LOG: ("node", "offset", "count", "hash"),
    Kind.LOG_REC: ("node", "offset", "count", "value"),
    Kind.TRACE_FILE: ("node",),
    Kind.HW: _BY_TIME,
    Kind.APPEND: _BY_TIME,
    Kind.TRUNCATED: _BY_TIME,
    Kind.DELETED: _BY_TIME,
    Kind.ROLE: _BY_TIME,
    Kind.PARTITION: _BY_TIME,
    Kind.CONTROLLER: _BY_TIME,
    Kind.FAULT: ("seq",),
    Kind.EXIT: ("op",),
    Kind.PROBLEM: ("idx", "node", "seq"),
    Kind.NOTE: ("idx", "node", "seq"),
}


class Group:
    """One (run, partition): its metadata and its facts by kind; views are made when first used."""

    def __init__(self, partition: str, parts: Parts) -> None:
        self.partition = partition
        self._parts = parts
        self._views: dict[Kind, Facts] = {}
        self._made: dict[Any, Any] = {}

    @cached_property
    def meta(self) -> RunMeta:
        """Facts about the whole run."""
        about = self.of(Kind.META)
        return _meta(str(about.text[0])) if len(about) else RunMeta()

    def _names(self) -> tuple[str, ...]:
        """The names that codes stand for, for facts of all kinds."""
        return next((columns.names for columns, _ in self._parts.values()), ("",))

    def memo(self, make: Callable[[Group], _Made]) -> _Made:
        """Return the result of `make` for this group; it is made once, however many checks ask."""
        if make not in self._made:
            self._made[make] = make(self)
        made: _Made = self._made[make]
        return made

    @property
    def run(self) -> str:
        """The name of the run."""
        return self.meta.run

    def of(self, kind: Kind) -> Facts:
        """The facts of one kind, sorted."""
        if kind not in self._views:
            columns, rows = self._parts.get(kind) or (Columns([], self._names), None)
            keys = _ORDER.get(kind, _BY_OP)
            if columns.has("turn"):
                keys = tuple("turn" if key == "op" else key for key in keys)
            self._views[kind] = Facts(columns, columns.order(keys, rows))
        return self._views[kind]

    @cached_property
    def replicas(self) -> tuple[str, ...]:
        """The brokers that hold this partition, as run.json says, else those with a log of it."""
        return self.meta.partitions.get(self.partition) or self.dumped

    @cached_property
    def dumped(self) -> tuple[str, ...]:
        """The nodes whose complete log of this partition we have."""
        heads = self.of(Kind.LOG_HEAD)
        return tuple(sorted({heads.name(n) for n in heads.node[heads.flags != 0]}))

    @cached_property
    def logs_complete(self) -> bool:
        """Whether we have the complete log of every replica: only then is absence a proof."""
        return bool(self.meta.partitions.get(self.partition)) and not self.logs_lacking

    @cached_property
    def logs_lacking(self) -> tuple[str, ...]:
        """The replicas whose complete log of this partition is not there."""
        return tuple(node for node in self.replicas if node not in self.dumped)

    @cached_property
    def dumps(self) -> dict[str, bool]:
        """The nodes whose logs were dumped, and whether the dump was finished."""
        files = self.of(Kind.LOG_FILE)
        return {files.name(n): bool(f) for n, f in zip(files.node, files.flags, strict=True)}

    @cached_property
    def replica_heads(self) -> Facts:
        """The heads of the logs that must come to be one: not of what a broker kept of a partition
        that was moved away from it."""
        heads = self.of(Kind.LOG_HEAD)
        rows = [r for r, n in enumerate(heads.node.tolist()) if heads.name(n) in self.replicas]
        return heads.take(np.array(rows, np.int64))

    @cached_property
    def traced(self) -> frozenset[str]:
        """The nodes whose trace is there and whole."""
        files = self.of(Kind.TRACE_FILE)
        return frozenset(files.name(n) for n in files.node[files.flags != 0])

    @cached_property
    def history_whole(self) -> bool:
        """Whether every line of the history was read: only then does absence prove anything."""
        known = self.of(Kind.HISTORY).flags
        return bool(len(known)) and bool((known & COMPLETE != 0).all())

    @cached_property
    def has_transactions(self) -> bool:
        """Whether any operation of the run did more than one thing: only then are cycles sought."""
        return self._says(TRANSACTIONS)

    @cached_property
    def final_reads_invoked(self) -> bool:
        """Whether any final read of the run was invoked, answered or not."""
        return self._says(FINALS)

    @cached_property
    def clocks_sound(self) -> bool:
        """Whether the clock of no process goes back."""
        return not self._says(CLOCK_BACK)

    @cached_property
    def processes_sound(self) -> bool:
        """Whether every process did one operation after another."""
        return not self._says(OVERLAP)

    def _says(self, flag: int) -> bool:
        """Whether any part of the history has this flag."""
        return bool((self.of(Kind.HISTORY).flags & flag).any())

    def seconds(self, t_us: int) -> str:
        """Format a time."""
        return self.meta.since_storm(int(t_us))


@lru_cache(maxsize=64)
def _meta(text: str) -> RunMeta:
    """The metadata of a run, decoded once for all its partitions."""
    return decode(text, RunMeta)


def group_of(partition: str, blocks: Mapping[Kind, Sequence[pa.RecordBatch]]) -> Group:
    """The group of blocks that are all of one (run, partition)."""
    made = columns_of(blocks, Columns)
    return Group(partition, {kind: (columns, None) for kind, columns in made.items()})


def groups_of(blocks: Iterable[pa.RecordBatch]) -> list[Group]:
    """The groups of a run, in order of partition; they share their columns."""
    by_kind: dict[Kind, list[pa.RecordBatch]] = {}
    for block in blocks:
        if block.num_rows:
            by_kind.setdefault(Kind(block.column("kind")[0].as_py()), []).append(block)
    return groups_in(columns_of(by_kind, partial(Columns, shared=True)))


def groups_in(shared: Mapping[Kind, Columns]) -> list[Group]:
    """The groups of a run whose facts of each kind are these, in order of partition."""
    found: dict[str, dict[Kind, tuple[Columns, I64 | None]]] = {}
    for kind, columns in shared.items():
        codes, partitions = columns.partitions()
        for code, partition in enumerate(partitions):
            rows = np.flatnonzero(codes == code) if len(partitions) > 1 else None
            found.setdefault(partition, {})[kind] = (columns, rows)
    return [Group(partition, parts) for partition, parts in sorted(found.items())]


def columns_of(
    parts: Mapping[Kind, Sequence[_Part]],
    make: Callable[[Sequence[_Part], Callable[[], tuple[str, ...]]], Columns],
) -> dict[Kind, Columns]:
    """Columns of all kinds, with one list of names for all."""
    made: dict[Kind, Columns] = {}

    @cache
    def names() -> tuple[str, ...]:
        # Codes follow the order of names, so that sorting by code is sorting by name.
        return tuple(sorted({""}.union(*(columns.own_names() for columns in made.values()))))

    for kind, own in parts.items():
        made[kind] = make(own, names)
    return made
