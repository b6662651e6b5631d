"""`LmdbStorage`: the real world's disk for the core (`node.core.storage.Storage`).

Writes of a turn are kept in memory and read back at once. `commit` ends the turn: durable writes go
to LMDB in one synced commit, deferred ones to the journal in one write(). `flush` moves everything
deferred to LMDB and empties the journal.

Two overlays lie over the tables: `_turn` (durable writes of this turn) and `_deferred` (deferred
writes since the last flush). A log or key is in one of them at most. Should one be written with
another durability than before (the flush setting changed at a restart), the turn ends in a flush,
so that the order of its writes holds on disk.

**Clean** means that no write is missing. The counter `dirty` in LMDB is set to `generation` before
the first deferred write after a flush. If they differ, there was none, and the store is clean. If
they are equal, it is clean if the journal is of that generation, of this boot of the host, and not
torn. Starting changes nothing on disk until the first commit, so a process that starts unclean and
dies before is followed by one that also starts unclean. What the core must drop after an unclean
start, it drops durably in its first turn."""

from __future__ import annotations

import contextlib
import shutil
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from node.core.batch import HEADER, produced_by
from node.core.storage import StoredBatch
from node.formats.errors import StorageError
from node.runtime import journal
from node.runtime.datadir import DataDir, host_boot_id
from node.runtime.failing_disk import FailingDisk
from node.runtime.journal import Journal, JournalContents
from node.runtime.overlay import Append, Delete, DeleteHead, Kept, Op, Overlay, Put, Truncate
from node.runtime.tables import CHAIN_BYTES, MAX_NAME_BYTES, Tables

MAP_BYTES: Final = 64 << 20
MAP_LIMIT: Final = 1 << 40
JOURNAL_LIMIT: Final = 64 << 20


class LmdbStorage:
    """One node's disk in `data_dir`, which no other process may have open.

    `boot_id` identifies the boot of the host (None: ask the kernel). The LMDB map starts at
    `map_bytes` and grows up to `map_limit`; a journal above `journal_limit` bytes is flushed. Every
    method may raise StorageError, also because of the faults of `disk`. After one from `commit` or
    `flush` memory and disk differ, so the store refuses all further work. With `retries` (a bug) it
    goes on as if a second try of the sync had succeeded."""

    clean: bool
    path: Path

    def __init__(
        self,
        data_dir: str | Path,
        boot_id: str | None = None,
        *,
        map_bytes: int = MAP_BYTES,
        map_limit: int = MAP_LIMIT,
        journal_limit: int = JOURNAL_LIMIT,
        disk: FailingDisk | None = None,
        retries: bool = False,
    ) -> None:
        boot = journal.boot_digest(host_boot_id() if boot_id is None else boot_id)
        self.disk = disk or FailingDisk()
        self._retries = retries
        self._limit = journal_limit
        self._turn = Overlay()
        self._deferred = Overlay()
        self._ops: list[Op] = []
        self._must_flush = False
        self._failed = ""
        self._unsettled: int | None = None
        with contextlib.ExitStack() as stack:
            dir_ = stack.enter_context(DataDir(data_dir))
            self.path = dir_.path
            self._tables = Tables(dir_.path, map_bytes=map_bytes, map_limit=map_limit)
            stack.callback(self._tables.close)
            self._journal = Journal(dir_.journal, boot)
            stack.callback(self._journal.close)
            replay = journal.read(dir_.journal)
            # An object that is dropped without `close`, as in a crash, must unlock too.
            self._closer = weakref.finalize(self, stack.pop_all().close)
        self._generation = self._tables.number("generation")
        self._dirty = self._tables.number("dirty") == self._generation
        self._replay(replay, boot)

    # -- for the core, see `Storage`

    def partitions(self) -> list[str]:
        return names_of(self._tables, self._deferred, self._turn)

    def batches(self, partition: str) -> Iterator[StoredBatch]:
        overlays = (self._deferred, self._turn)
        found = stored(self._tables, overlays, partition, whole=False)
        return iter([_header(*one) for one in found])

    def append(
        self, partition: str, base_offset: int, chain: bytes, data: bytes, *, durable: bool
    ) -> None:
        if len(chain) != CHAIN_BYTES or base_offset < 0:
            raise StorageError(
                f"{partition}: no batch at {base_offset} with a hash of {len(chain)} bytes"
            )
        self._write(Append(partition, base_offset, chain, data), durable=durable)

    def truncate(self, partition: str, from_offset: int, *, durable: bool) -> None:
        self._write(Truncate(partition, from_offset), durable=durable)

    def delete_head(self, partition: str, below: int, *, durable: bool) -> None:
        self._write(DeleteHead(partition, below), durable=durable)

    def delete(self, partition: str, *, durable: bool) -> None:
        self._write(Delete(partition), durable=durable)

    def put(self, key: str, value: bytes, *, durable: bool) -> None:
        self._write(Put(key, value), durable=durable)

    def read(self, partition: str, base_offset: int) -> bytes:
        for overlay in (self._turn, self._deferred):
            if (log := overlay.logs.get(partition)) is not None:
                if (kept := log.batches.get(base_offset)) is not None:
                    return kept.data
                if log.hides(base_offset):
                    break
        else:
            if (found := self._tables.batch(partition, base_offset)) is not None:
                return found
        raise StorageError(f"{partition}: no batch starts at {base_offset}")

    def get(self, key: str) -> bytes | None:
        for overlay in (self._turn, self._deferred):
            if (found := overlay.values.get(key)) is not None:
                return found
        return self._tables.value(key)

    def commit(self) -> None:
        """End the turn: at most one synced LMDB commit and one write() to the journal."""
        if self._failed:
            raise StorageError(self._failed)
        if self._must_flush:
            self.flush()
            return
        try:
            self._commit()
        except StorageError as error:
            self._failed = str(error)
            raise
        if self._journal.size > self._limit:
            self.flush()

    def flush(self) -> None:
        """End the turn with everything, deferred or not, in LMDB, and the journal empty."""
        if self._failed:
            raise StorageError(self._failed)
        if not self._dirty and not self._deferred and not self._must_flush:
            self.commit()
            return
        try:
            # The tables first: killed in between, the journal's old generation is ignored.
            self._sync([self._deferred, self._turn], {"generation": self._generation + 1})
            self._generation += 1
            self._journal.settle(self._generation, 0)
        except StorageError as error:
            self._failed = str(error)
            raise
        self._unsettled = None
        self._dirty = self._must_flush = False
        self._deferred.clear()
        self._turn.clear()
        self._ops = []

    def copy(self, to: Path) -> None:
        """Write a copy of all that is committed into the folder `to`, which is created. Only
        between two turns."""
        to.mkdir(parents=True)
        self._tables.copy(to)
        shutil.copyfile(self.path / journal.FILE_NAME, to / journal.FILE_NAME)

    def close(self) -> None:
        """Close the files and unlock the directory. Writes that are not committed are lost; nothing
        is flushed."""
        self._failed = "the store is closed"
        self._closer()

    def _write(self, op: Op, *, durable: bool) -> None:
        """Write to the overlay of that durability, unless the log or key is already in the other
        one. Then it stays there, and the turn ends in a flush if that is weaker."""
        name = op.key if isinstance(op, Put) else op.partition
        if not 0 < len(name.encode()) <= MAX_NAME_BYTES:
            size = len(name.encode())
            raise StorageError(
                f"a name of {size} bytes cannot be stored (1 to {MAX_NAME_BYTES}): {name[:40]!r}"
            )
        mine, other = (self._turn, self._deferred) if durable else (self._deferred, self._turn)
        if name in (other.values if isinstance(op, Put) else other.logs):
            self._must_flush |= durable
            mine = other
        mine.apply(op)
        if mine is self._deferred:
            self._ops.append(op)

    def _commit(self) -> None:
        first = bool(self._ops) and not self._dirty
        if first:
            # A kill right after the mark below must find a journal that says "nothing was lost".
            if self._unsettled is not None:
                self._journal.settle(self._generation, self._unsettled)
                self._unsettled = None
            self._journal.begin()
        if self._turn or first:
            numbers = {"dirty": self._generation} if first else {}
            self._sync([self._turn], numbers)
            self._turn.clear()
            self._dirty = self._dirty or first
        if self._unsettled is not None:
            self._journal.settle(self._generation, self._unsettled)
            self._unsettled = None
        if self._ops:
            self.disk.write(self.path)
            self._journal.begin()
            self._journal.append(self._ops)
            self._ops = []

    def _sync(self, overlays: list[Overlay], numbers: dict[str, int]) -> None:
        self._tables.limit_map(full=bool(self.disk.first("full-map")))
        try:
            self.disk.sync(self.path, lambda: self._tables.write(overlays, numbers))
        except StorageError:
            # The bug retry-fsync: the kernel has dropped what it could not write, so that a second
            # sync has nothing to do and succeeds.
            if not self._retries:
                raise

    def _replay(self, replay: JournalContents, boot: bytes) -> None:
        """Replay the journal, and decide whether it has all that was ever written."""
        current = replay.generation == self._generation
        if current:
            self._deferred.replay(replay.turns)
        whole = current and replay.boot == boot and not replay.torn
        self.clean = whole or not self._dirty
        if whole:
            self._journal.resume(self._generation, replay.valid_bytes)
        else:
            self._unsettled = replay.valid_bytes if current else 0


def names_of(tables: Tables, *overlays: Overlay) -> list[str]:
    """Return the names of the logs in tables under overlays, sorted."""
    names = set(tables.ids)
    for overlay in overlays:
        for name, log in overlay.logs.items():
            if log.present is not None:
                (names.add if log.present else names.discard)(name)
    return sorted(names)


def stored(
    tables: Tables, overlays: tuple[Overlay, ...], partition: str, *, whole: bool
) -> Iterator[tuple[int, bytes, int]]:
    """Yield the batches of a log under its overlays, in offset order: base offset, the stored bytes
    (prefix hash and batch), their full length. Without `whole` the bytes may end after the batch's
    header."""
    logs = [o.logs[partition] for o in overlays if partition in o.logs]
    added: dict[int, Kept] = {}
    for log in logs:
        added = {base: kept for base, kept in added.items() if not log.hides(base)}
        added.update(log.batches)
    waiting = sorted(added, reverse=True)
    for base, start, size in tables.batches(partition, whole=whole):
        while waiting and waiting[-1] <= base:
            yield _joined(waiting.pop(), added)
        if not any(log.hides(base) for log in logs):
            yield base, start, size
    while waiting:
        yield _joined(waiting.pop(), added)


def _joined(base: int, added: dict[int, Kept]) -> tuple[int, bytes, int]:
    both = added[base].chain + added[base].data
    return base, both, len(both)


def _header(base: int, start: bytes, size: int) -> StoredBatch:
    """Return the header of a stored batch, to be checked by its reader; a batch that is cut short
    gets a record count of 0."""
    epoch, count, produced = -1, 0, None
    if len(start) >= CHAIN_BYTES + HEADER.size:
        _, epoch, _, _, _, count = HEADER.unpack_from(start, CHAIN_BYTES)
        produced = produced_by(start, CHAIN_BYTES)
    size = max(0, size - CHAIN_BYTES)
    return StoredBatch(base, count, epoch, size, start[:CHAIN_BYTES], produced)
