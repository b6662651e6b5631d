"""All facts of one (run, partition), as sorted columns: what the kernels are functions of.

Facts arrive in any order; each kind is sorted here by a key that no two of its rows share, so that
nothing a kernel computes depends on row order, partitioning or parallelism.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from checker.facts import COMPLETE, I64, NUMBERS, TRANSACTIONS, Kind
from checker.meta import RunMeta

Mask = npt.NDArray[np.bool_]
Texts = npt.NDArray[np.object_]
_Made = TypeVar("_Made")
_Index = I64 | Mask | slice


class Columns:
    """The facts of a run or of one partition as columns, in the order they came in.

    `client` and `node` are codes into `names`, which is sorted: sorting by code is sorting by name.
    """

    def __init__(self, table: pa.Table) -> None:
        self.names, (client, node) = _encode(table.column("client"), table.column("node"))
        self.numbers = {name: _numbers(table.column(name)) for name in NUMBERS}
        self.numbers |= {"client": client, "node": node}
        self.kind = table.column("kind").to_numpy().astype(np.int64)
        self._text = table.column("text")

    def __len__(self) -> int:
        return len(self.kind)

    def text(self, rows: I64) -> Texts:
        """The texts of some rows."""
        found = np.full(len(rows), "", dtype=object)
        if len(rows):
            found[:] = self._text.take(pa.array(rows)).to_pylist()
        return found


class Facts:
    """Facts of one kind as columns; docs of `checker.facts` say what each means for which kind.

    Made of rows of `Columns`; a column is only copied out of them when it is first used. `client`
    and `node` are codes into `names`; `text` holds strings.
    """

    op: I64
    seq: I64
    idx: I64
    process: I64
    outcome: I64
    flags: I64
    t0: I64
    t1: I64
    offset: I64
    value: I64
    count: I64
    epoch: I64
    hw: I64
    leo: I64
    hash: I64
    hash2: I64
    client: I64
    node: I64
    text: Texts

    def __init__(self, columns: Columns, rows: I64) -> None:
        self._columns = columns
        self._rows = rows
        self.names = columns.names

    def __getattr__(self, name: str) -> Any:
        if name == "text":
            made: Any = self._columns.text(self._rows)
        elif name in self._columns.numbers:
            made = self._columns.numbers[name][self._rows]
        else:
            raise AttributeError(name)
        setattr(self, name, made)
        return made

    def __len__(self) -> int:
        return len(self._rows)

    def take(self, index: _Index) -> Facts:
        """The rows at `index` (numbers, a mask or a slice), in that order."""
        return Facts(self._columns, self._rows[index])

    @property
    def end(self) -> I64:
        """Offset after the last record of each row."""
        return self.offset + self.count

    def name(self, code: int) -> str:
        """The node or client behind a code."""
        return self.names[code]


_NO_ROWS: Final = np.zeros(0, np.int64)
_BY_OP: Final = ("op", "seq", "idx")
_BY_TIME: Final = ("t1", "node", "op")
_ORDER: Final[dict[Kind, tuple[str, ...]]] = {
    Kind.HISTORY: ("flags",),
    Kind.LOG_HEAD: ("node",),
    Kind.EPOCH: ("node", "seq"),
    Kind.LOG: ("node", "offset", "count", "hash"),
    Kind.LOG_REC: ("node", "offset", "count", "value"),
    Kind.TRACE_FILE: ("node",),
    Kind.HW: _BY_TIME,
    Kind.APPEND: _BY_TIME,
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

    def __init__(self, partition: str, columns: Columns, rows: I64 | None = None) -> None:
        """`rows` are those of the partition where `columns` are those of a whole run."""
        self.partition = partition
        self._columns = columns
        rows = np.arange(len(columns)) if rows is None else rows
        rows = rows[np.argsort(columns.kind[rows], kind="stable")]
        kinds, starts = np.unique(columns.kind[rows], return_index=True)
        parts = np.split(rows, starts[1:]) if len(kinds) else []
        self._rows = dict(zip(kinds.tolist(), parts, strict=True))
        self._views: dict[Kind, Facts] = {}
        self._made: dict[Any, Any] = {}

    @cached_property
    def meta(self) -> RunMeta:
        """What is known of the run."""
        about = self._rows.get(int(Kind.META), _NO_ROWS)
        if not len(about):
            return RunMeta()
        return _meta(str(self._columns.text(about[:1])[0]))

    def memo(self, make: Callable[[Group], _Made]) -> _Made:
        """What `make` gives for this group; made once, however many kernels ask."""
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
            rows = self._rows.get(int(kind), _NO_ROWS)
            if len(rows) > 1:
                order = _ORDER.get(kind, _BY_OP)
                keys = [self._columns.numbers[name][rows] for name in reversed(order)]
                rows = rows[np.lexsort(keys)]
            self._views[kind] = Facts(self._columns, rows)
        return self._views[kind]

    @cached_property
    def replicas(self) -> tuple[str, ...]:
        """The brokers that hold this partition, as run.json says, else those with a log of it."""
        told = self.meta.partitions.get(self.partition)
        return told if told else self.dumped

    @cached_property
    def dumped(self) -> tuple[str, ...]:
        """The nodes whose complete log of this partition we have."""
        heads = self.of(Kind.LOG_HEAD)
        return tuple(sorted({heads.name(n) for n in heads.node[heads.flags != 0]}))

    @cached_property
    def logs_complete(self) -> bool:
        """Whether we have the complete log of every replica: only then is absence a proof."""
        return bool(self.replicas) and set(self.replicas) <= set(self.dumped)

    @cached_property
    def trace_complete(self) -> bool:
        """Whether the trace of every replica is there and whole."""
        files = self.of(Kind.TRACE_FILE)
        whole = {files.name(n) for n in files.node[files.flags != 0]}
        return bool(self.replicas) and set(self.replicas) <= whole

    @cached_property
    def history_whole(self) -> bool:
        """Whether every line of the history was read: only then does absence prove anything."""
        known = self.of(Kind.HISTORY).flags
        return bool(len(known)) and bool((known & COMPLETE != 0).all())

    @cached_property
    def has_transactions(self) -> bool:
        """Whether any operation of the run did more than one thing: only then are cycles sought."""
        return bool((self.of(Kind.HISTORY).flags & TRANSACTIONS).any())

    def seconds(self, t_us: int) -> str:
        """A time in words."""
        return self.meta.since_storm(int(t_us))


def _numbers(column: pa.ChunkedArray) -> I64:
    numbers: I64 = column.to_numpy().astype(np.int64, copy=False)
    return numbers


def _encode(*columns: pa.ChunkedArray) -> tuple[tuple[str, ...], list[I64]]:
    """Strings as codes into one sorted tuple of names."""
    names = tuple(sorted({n or "" for c in columns for n in pc.unique(c).to_pylist()} | {""}))
    rank = {name: code for code, name in enumerate(names)}
    made = []
    for column in columns:
        encoded = column.combine_chunks().dictionary_encode()
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.combine_chunks()
        codes = np.array([rank[n] for n in encoded.dictionary.to_pylist()], dtype=np.int64)
        indices = encoded.indices.to_numpy(zero_copy_only=False)
        made.append(codes[indices] if len(codes) else np.zeros(len(indices), np.int64))
    return names, made


@lru_cache(maxsize=64)
def _meta(text: str) -> RunMeta:
    """The metadata of a run, decoded once for all its partitions."""
    return msgspec.json.decode(text, type=RunMeta)
