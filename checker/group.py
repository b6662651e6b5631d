"""All facts of one (run, partition), as sorted columns: what the kernels are functions of.

Facts arrive in any order; each kind is sorted here by a key that no two of its rows share, so that
nothing a kernel computes depends on row order, partitioning or parallelism.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from checker.facts import COMPLETE, I64, NUMBERS, SCHEMA, TRANSACTIONS, Kind
from checker.meta import RunMeta

Mask = npt.NDArray[np.bool_]
Texts = npt.NDArray[np.object_]
_Made = TypeVar("_Made")
_Index = I64 | Mask | slice


@dataclass(frozen=True)
class Facts:
    """Facts of one kind as columns; docs of `checker.facts` say what each means for which kind.

    `client` and `node` are codes into `names`; `text` keeps its strings.
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
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.op)

    def take(self, index: _Index) -> Facts:
        """The rows at `index` (numbers, a mask or a slice), in that order."""
        return Facts(
            **{f.name: getattr(self, f.name)[index] for f in fields(self) if f.name != "names"},
            names=self.names,
        )

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

    def __init__(self, partition: str, table: pa.Table) -> None:
        self.partition = partition
        self.meta = RunMeta()
        texts = table.column("text")
        kinds = table.column("kind").to_numpy().astype(np.int64)
        if len(about := np.flatnonzero(kinds == Kind.META)):
            self.meta = msgspec.json.decode(texts[int(about[0])].as_py(), type=RunMeta)
        # Codes follow the order of names, so that sorting by code is sorting by name.
        self._names, (client, node) = _encode(table.column("client"), table.column("node"))
        self._numbers = {name: _numbers(table.column(name)) for name in NUMBERS}
        self._numbers |= {"client": client, "node": node}
        self._texts = texts
        self._rows = {int(k): np.flatnonzero(kinds == k) for k in np.unique(kinds)}
        self._views: dict[Kind, Facts] = {}
        self._made: dict[Any, Any] = {}

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
            rows = self._rows.get(int(kind), np.zeros(0, np.int64))
            order = _ORDER.get(kind, _BY_OP)
            keys = [self._numbers[name][rows] for name in reversed(order)]
            rows = rows[np.lexsort(keys)] if len(rows) else rows
            has_text = kind in (Kind.PARTITION, Kind.FAULT, Kind.EXIT, Kind.PROBLEM, Kind.NOTE)
            text = np.full(len(rows), "", dtype=object)
            if has_text and len(rows):
                text[:] = self._texts.take(pa.array(rows)).to_pylist()
            self._views[kind] = Facts(
                **{name: column[rows] for name, column in self._numbers.items()},
                text=text,
                names=self._names,
            )
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


def group_of(partition: str, batches: list[pa.RecordBatch]) -> Group:
    """A group from record batches of facts."""
    return Group(partition, pa.Table.from_batches(batches, schema=SCHEMA))
