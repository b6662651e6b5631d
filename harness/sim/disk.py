"""A node's disk in the simulator: synced writes, journalled writes, and pending ones.

It behaves as `node.runtime.store` does: durable writes of a turn are synced when `commit` returns,
deferred ones are in the journal (they survive a kill), and `flush` syncs everything. A power cut
keeps what is synced and a prefix of the journal, measured in the bytes of the real one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from node.core.batch import EMPTY_CHAIN, HEADER
from node.core.log_dump import batch_dump, end_of, log_dump
from node.core.storage import StoredBatch
from node.formats.errors import StorageError
from node.formats.log_dump import BatchDump, LogDump
from node.runtime.journal import FRAME_BYTES, HEADER_BYTES
from node.runtime.overlay import Append, Delete, Op, Put, Truncate

_encoder = msgspec.msgpack.Encoder()
_Batch = tuple[bytes, bytes]


@dataclass(slots=True)
class _Image:
    """Logs as base offset -> (chain, batch), and small values."""

    logs: dict[str, dict[int, _Batch]] = field(default_factory=dict)
    values: dict[str, bytes] = field(default_factory=dict)

    def copy(self) -> _Image:
        return _Image({name: dict(log) for name, log in self.logs.items()}, dict(self.values))

    def apply(self, op: Op) -> None:
        if isinstance(op, Append):
            log = self.logs.get(op.partition)
            if log is None:
                log = self.logs[op.partition] = {}
            log[op.base_offset] = (op.chain, op.data)
        elif isinstance(op, Put):
            self.values[op.key] = op.value
        elif isinstance(op, Truncate):
            log = self.logs.get(op.partition, {})
            for base in [base for base in log if base >= op.from_offset]:
                del log[base]
        else:
            self.logs.pop(op.partition, None)


@dataclass(slots=True)
class _Journal:
    """The file of deferred turns: its turns, and whether its header exists and is of this boot."""

    header: bool = False
    same_boot: bool = True
    torn: bool = False
    turns: list[list[Op]] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        return self.header and self.same_boot and not self.torn

    def begin(self) -> None:
        if not self.header:
            self.header, self.same_boot = True, True

    def settle(self) -> None:
        """Continue after the last whole turn, in this boot."""
        self.torn, self.same_boot = False, True

    def cut(self, keep: float) -> tuple[int, int]:
        """Keep the first `keep` (0 to 1) of its bytes; returns the lengths before and after."""
        if not self.header:
            return 0, 0
        sizes = [FRAME_BYTES + len(_encoder.encode(turn)) for turn in self.turns]
        before = HEADER_BYTES + sum(sizes)
        after = round(before * keep)
        self.same_boot = False
        if after < HEADER_BYTES:
            self.header, self.torn, self.turns = False, after > 0, []
            return before, after
        position, kept = HEADER_BYTES, 0
        while kept < len(sizes) and position + sizes[kept] <= after:
            position += sizes[kept]
            kept += 1
        del self.turns[kept:]
        self.torn = position < after
        return before, after


class SimDisk:
    """One node's disk: implements `node.core.storage.Storage`, and adds power cuts and errors.

    While `failing` has a sentence, each sync raises StorageError with it.
    """

    clean: bool

    def __init__(self) -> None:
        self._synced = _Image()
        self._journal = _Journal()
        self._dirty = False
        self.failing = ""
        self.open()

    # -- for the world

    def open(self) -> None:
        """Open the disk for a new process: it finds the synced state and the journal."""
        journal = self._journal
        self.clean = journal.whole or not self._dirty
        self._unsettled = not journal.whole
        self._now = self._synced.copy()
        self._deferred: dict[tuple[str, str], None] = {}
        for turn in journal.turns:
            for op in turn:
                self._now.apply(op)
                self._deferred[_place(op)] = None
        self._turn: dict[tuple[str, str], None] = {}
        self._durable_ops: list[Op] = []
        self._deferred_ops: list[Op] = []
        self._must_flush = False

    def power_cut(self, keep: float) -> tuple[int, int]:
        """Keep the first `keep` (0 to 1) of the journal; returns its bytes before and after."""
        return self._journal.cut(keep)

    def commit(self) -> None:
        """End the turn. Raises StorageError when the disk fails."""
        if self._must_flush:
            self.flush()
            return
        if not (self._durable_ops or self._deferred_ops or self._unsettled):
            return
        first = bool(self._deferred_ops) and not self._dirty
        journal = self._journal
        if first and not self._unsettled:
            journal.begin()
        if self._durable_ops or first:
            self._sync(self._durable_ops)
            self._durable_ops = []
            self._turn.clear()
            self._dirty = self._dirty or first
        if self._unsettled:
            journal.settle()
            self._unsettled = False
        if self._deferred_ops:
            journal.begin()
            journal.turns.append(self._deferred_ops)
            self._deferred_ops = []

    def flush(self) -> None:
        """End the turn with everything synced. Raises StorageError when the disk fails."""
        if not self._dirty and not self._deferred and not self._must_flush:
            self.commit()
            return
        turns = self._journal.turns
        self._sync([*(op for turn in turns for op in turn), *self._deferred_ops])
        self._sync(self._durable_ops)
        self._journal = _Journal()
        self._unsettled = self._dirty = self._must_flush = False
        self._durable_ops, self._deferred_ops = [], []
        self._deferred.clear()
        self._turn.clear()

    def dump(self) -> Iterator[LogDump]:
        """All logs of the stopped node, as `node.runtime.read_logs` reads them from a real disk."""
        image = self._synced.copy()
        for turn in self._journal.turns:
            for op in turn:
                image.apply(op)
        for name in sorted(image.logs):
            log = dict(sorted(image.logs[name].items()))
            last = next(reversed(log), -1)
            leo = end_of(last, log[last][1], len(log[last][1])) if log else 0
            start = next(iter(log), 0)
            yield log_dump(name, start, leo, image.values.get, _batches(log))

    def _sync(self, ops: list[Op]) -> None:
        if self.failing:
            raise StorageError(self.failing)
        for op in ops:
            self._synced.apply(op)

    # -- for the core

    def partitions(self) -> list[str]:
        """Partitions that have a log here, sorted."""
        return sorted(self._now.logs)

    def batches(self, partition: str) -> Iterator[StoredBatch]:
        """Headers of a log in offset order."""
        for base, (chain, data) in sorted(self._now.logs.get(partition, {}).items()):
            epoch, count = -1, 0
            if len(data) >= HEADER.size:
                _, epoch, _, _, _, count = HEADER.unpack_from(data)
            yield StoredBatch(base, count, epoch, len(data), chain)

    def append(
        self, partition: str, base_offset: int, chain: bytes, data: bytes, *, durable: bool
    ) -> None:
        """Keep one batch and its chained prefix hash."""
        self._write(("log", partition), Append(partition, base_offset, chain, data), durable)

    def truncate(self, partition: str, from_offset: int, *, durable: bool) -> None:
        """Forget all batches that start at or above `from_offset`."""
        self._write(("log", partition), Truncate(partition, from_offset), durable)

    def read(self, partition: str, base_offset: int) -> bytes:
        """The bytes of the batch that starts exactly there. Raises StorageError if none does."""
        found = self._now.logs.get(partition, {}).get(base_offset)
        if found is None:
            raise StorageError(f"{partition}: no batch starts at {base_offset}")
        return found[1]

    def delete(self, partition: str, *, durable: bool) -> None:
        """Forget a log altogether."""
        self._write(("log", partition), Delete(partition), durable)

    def put(self, key: str, value: bytes, *, durable: bool) -> None:
        """Keep a small value."""
        self._write(("key", key), Put(key, value), durable)

    def get(self, key: str) -> bytes | None:
        """A small value, None if never put."""
        return self._now.values.get(key)

    def _write(self, place: tuple[str, str], op: Op, durable: bool) -> None:
        """Add a write to the turn. A log or key with a deferred write stays deferred, and a durable
        write to it makes the turn end in a flush. One written durably in this
        turn stays durable."""
        self._now.apply(op)
        if durable and place in self._deferred:
            self._must_flush = True
            durable = False
        elif not durable and place in self._turn:
            durable = True
        if durable:
            self._turn[place] = None
            self._durable_ops.append(op)
        else:
            self._deferred[place] = None
            self._deferred_ops.append(op)


def _place(op: Op) -> tuple[str, str]:
    return ("key", op.key) if isinstance(op, Put) else ("log", op.partition)


def _batches(log: dict[int, _Batch]) -> Iterator[BatchDump]:
    chain = EMPTY_CHAIN
    for base, (stored, data) in log.items():
        one = batch_dump(base, stored, data, chain)
        chain = one.chain
        yield one
