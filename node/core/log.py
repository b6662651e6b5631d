"""One partition's log on one replica: batches, chained prefix hash, epoch cache, log start.

The module knows storage and batches, and nothing of roles, peers or high watermarks. The index
(where each batch starts and ends) is in memory, the bytes are in storage.

Invariants: batches are contiguous, start <= ... <= leo; epochs never fall between neighbours that
have one; chains[i] is the prefix hash at the end of batch i."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Annotated, Final, NamedTuple

import msgspec

from node.core import batch as batches
from node.core.batch import EMPTY_CHAIN, BatchView, Produced
from node.core.epochs import EpochCache
from node.core.storage import Storage, StoredBatch
from node.formats.errors import DamagedStore, WireError
from node.formats.wire_bounds import MAX_EPOCH, MAX_OFFSET, Position, StoredEpoch

TAIL_CACHE_BYTES: Final = 1 << 20
"""Bytes of newest batches kept in memory: followers and tailing consumers read just these."""


START_KEY: Final = "start/"
"""Before a partition's name: its log start, a msgpack list of offset, epoch before it, hash there.
A log that begins at offset 0 has none, or one that says so."""
_Chain = Annotated[bytes, msgspec.Meta(min_length=len(EMPTY_CHAIN), max_length=len(EMPTY_CHAIN))]


class LogStart(NamedTuple):
    """The first offset of a log, the leader epoch of the record before it (-1: there never was
    one), and the prefix hash of all records below: a log whose head was deleted is compared with
    others by these two, like the last included index and term of a snapshot in Raft."""

    offset: int = 0
    epoch: int = -1
    chain: bytes = EMPTY_CHAIN


ORIGIN: Final = LogStart()
"""Nothing was deleted."""
_decoder = msgspec.msgpack.Decoder(tuple[Position, StoredEpoch, _Chain])


def encoded(start: LogStart) -> bytes:
    """Return the stored form of a log start."""
    return msgspec.msgpack.encode(start)


def decoded(key: str, saved: bytes | None) -> LogStart:
    """Return the log start from its stored form, ORIGIN (offset 0) if `saved` is None or empty.
    Raises DamagedStore, naming `key`, if it cannot be decoded."""
    if not saved:
        return ORIGIN
    try:
        return LogStart(*_decoder.decode(saved))
    except msgspec.MsgspecError as error:
        raise DamagedStore(f"it is no log start: {error}", key=key) from None


class Damage(NamedTuple):
    """The first offset at which a stored log is damaged, and `what` is wrong there."""

    offset: int
    what: str


class Log:
    """An append-only sequence of batches whose tail can be truncated and whose head can be deleted.
    Each batch read from the disk is checked: its checksum, its place, its prefix hash. If one
    fails, neither it nor any later batch is used, and `damage` says why; the bytes stay on the disk
    until `repair`."""

    def __init__(
        self,
        partition: str,
        storage: Storage,
        *,
        durable: bool,
        holes: bool = False,
        checked: bool = True,
    ) -> None:
        """Open a log on its disk. `durable`: its writes are synced at each commit. `holes`: a cut
        inside a batch leaves the log end at the cut, and a stored log may have such a hole;
        otherwise a hole is damage. Without `checked` all data from the disk is believed."""
        self.partition = partition
        # Log end offset: the next offset to be written. Read at every turn, so it is kept.
        self.leo = 0
        self.begins = ORIGIN
        # The first offset that was not deleted, and the leader epoch of the last record, deleted
        # or not; -1 when there never was one. Kept for the same reason.
        self.start = ORIGIN.offset
        self.last_epoch = ORIGIN.epoch
        self.cache = EpochCache()
        self._storage = storage
        self.durable = durable
        self._holes = holes
        self._checked = checked
        self._hole_end = 0
        self.damage: Damage | None = None
        self._start_is_lost = False
        self._bases: list[int] = []
        self._ends: list[int] = []
        self._epochs: list[int] = []
        self._sizes: list[int] = []
        self._chains: list[bytes] = []
        self._produced: dict[int, Produced] = {}
        self._tail: dict[int, bytes] = {}
        self._tail_bytes = 0
        self._load_start()
        for stored in storage.batches(partition) if self.damage is None else ():
            if what := self._wrong(stored):
                self.damage = Damage(min(self.leo, stored.base_offset), what)
                break
            end = stored.base_offset + stored.count
            self._index(stored.base_offset, end, stored.epoch, stored.size, stored.chain)
            if stored.produced is not None:
                self._produced[stored.base_offset] = stored.produced

    def use(self, storage: Storage) -> None:
        """Continue on another disk that has the same log."""
        self._storage = storage

    @property
    def chain(self) -> bytes:
        """The prefix hash of the whole log, 8 bytes."""
        return self._chains[-1] if self._chains else self.begins.chain

    def hash_at(self, offset: int) -> tuple[int, str]:
        """Return (end, prefix hash in hexadecimal) of the last batch that ends at or below
        `offset`. If there is none, the end is the start of the log; the hash is "" for an offset of
        0 or below the start."""
        last = bisect_right(self._ends, offset) - 1
        if last < 0:
            return self.start, self.begins.chain.hex() if offset >= self.start > 0 else ""
        return self._ends[last], self._chains[last].hex()

    def hashes(self, above: int, upto: int) -> list[tuple[int, str]]:
        """Return (end, prefix hash in hexadecimal) of each batch that ends above `above` and at or
        below `upto`."""
        first, last = bisect_right(self._ends, above), bisect_right(self._ends, upto)
        return [(self._ends[i], self._chains[i].hex()) for i in range(first, last)]

    def places(self, above: int) -> list[tuple[int, int]]:
        """Return (base offset, end) of each batch that ends above `above`."""
        first = bisect_right(self._ends, above)
        return list(zip(self._bases[first:], self._ends[first:], strict=True))

    def produced(self) -> Iterator[tuple[int, int, Produced]]:
        """Yield (base offset, end, producer) of the batches of idempotent producers, in order."""
        for base, end in zip(self._bases, self._ends, strict=True):
            produced = self._produced.get(base)
            if produced is not None:
                yield base, end, produced

    def begin_epoch(self, epoch: int) -> None:
        """Enter a new leader's `epoch` at the log end at once, not at its first record."""
        if self.cache.note(epoch, self.leo):
            self._save_cache()

    def append_as_leader(self, batch: BatchView, epoch: int) -> BatchView:
        """Stamp a producer's batch with its base offset and `epoch`, append and return it."""
        stamped = batches.placed(batch, self.leo, epoch)
        self._append(stamped)
        return stamped

    def append_as_follower(self, fetched: Sequence[BatchView]) -> None:
        """Append batches of the leader unchanged. Raises WireError if one does not start at the log
        end, has an epoch below the last record's, or an epoch or offset that is too large."""
        leo, epoch = self.leo, self.last_epoch
        for one in fetched:
            if one.base_offset != leo:
                raise WireError(f"{self.partition}: batch at {one.base_offset}, but log end {leo}")
            if 0 <= one.epoch < epoch:
                raise WireError(f"{self.partition}: epoch {one.epoch} at {leo} follows {epoch}")
            if one.epoch > MAX_EPOCH or one.end > MAX_OFFSET:
                raise WireError(f"{self.partition}: epoch {one.epoch} or end {one.end} too large")
            leo, epoch = one.end, one.epoch
        for one in fetched:
            self._append(one)

    def truncate(self, target: int) -> int:
        """Cut all records at or above offset `target`; a cut inside a batch removes the whole
        batch. Return the new log end. Entries of the epoch cache at or above it go even if no
        record is cut. If `target` is below the start of the log, the log starts over, empty, at
        0."""
        if target < self.start:
            self.restart_at(ORIGIN)
            return self.leo
        keep = bisect_right(self._ends, target)
        if self._holes and target < self.leo:
            self._hole_end = target
        if keep < len(self._ends):
            cut_from = self._bases[keep]
            self._storage.truncate(self.partition, cut_from, durable=self.durable)
            self._forget(keep)
        self.leo = max(self._ends[-1] if self._ends else self.start, self._hole_end)
        if self.cache.truncate(self.leo):
            self._save_cache()
        return self.leo

    def delete_head(self, upto: int) -> bool:
        """Delete the batches that end at or below `upto`; return whether there were any."""
        gone = bisect_right(self._ends, upto)
        if not gone:
            return False
        start = LogStart(self._ends[gone - 1], self._epochs[gone - 1], self._chains[gone - 1])
        self._unindex(slice(gone))
        self._storage.delete_head(self.partition, start.offset, durable=self.durable)
        self.cache.begin_at(start.offset, start.epoch)
        self._begin_at(start)
        return True

    def restart_at(self, start: LogStart) -> None:
        """Delete all batches and start over at `start`, where the leader's log begins."""
        self._storage.truncate(self.partition, 0, durable=self.durable)
        self._forget(0)
        self._hole_end = 0
        self.cache.truncate(0)
        if start.offset:
            self.cache.begin_at(start.offset, start.epoch)
        self._begin_at(start)
        self.leo = start.offset

    def read(self, offset: int, *, max_bytes: int, below: int) -> tuple[list[bytes], int]:
        """Return whole batches from the one that contains `offset` on, all ending at or below
        `below`, and the offset after the last (`offset` if there are none). They have at most
        `max_bytes` in all, but the first is always returned. Raises DamagedStore at a batch that is
        not what was written; it and all behind it are not used any more."""
        found: list[bytes] = []
        if offset >= below:
            return found, offset
        first = bisect_right(self._ends, offset)
        last = bisect_right(self._ends, below)
        size, end = 0, offset
        for i in range(first, last):
            if found and size + self._sizes[i] > max_bytes:
                break
            data = self._tail.get(self._bases[i])
            found.append(self._read(i) if data is None else data)
            size += self._sizes[i]
            end = self._ends[i]
        return found, end

    def repair(self) -> None:
        """Remove from the disk the damaged batch and all behind it, and continue from there."""
        assert self.damage is not None, self.partition
        self._storage.truncate(self.partition, self.damage.offset, durable=self.durable)
        self.damage = None
        if self._start_is_lost:
            self._begin_at(ORIGIN)
        self._save_cache()

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch of the record at `offset` (start <= offset < leo)."""
        return self._epochs[bisect_right(self._ends, offset)]

    def epoch_before(self, offset: int) -> int:
        """Return the leader epoch of the record before `offset` (start <= offset <= leo), deleted
        or not; -1 if there never was one."""
        return self.epoch_at(offset - 1) if offset > self.start else self.begins.epoch

    def _load_start(self) -> None:
        key = START_KEY + self.partition
        try:
            self.begins = decoded(key, self._storage.get(key))
            self.start, self.last_epoch = self.begins.offset, self.begins.epoch
        except DamagedStore as error:
            self.damage = Damage(0, f"its start is not known: {error.what}")
            self._start_is_lost = True
        self.leo = self.start
        if self.start:
            self.cache.begin_at(self.start, self.begins.epoch)

    def _begin_at(self, start: LogStart) -> None:
        self.begins = start
        self.start = start.offset
        self._note_last_epoch()
        self._start_is_lost = False
        key = START_KEY + self.partition
        self._storage.put(key, encoded(start), durable=self.durable)
        self._save_cache()

    def _wrong(self, stored: StoredBatch) -> str:
        """Return why a stored batch does not continue this log, "" if it does."""
        if not self._checked:
            return ""
        if stored.base_offset != self.leo and not self._holes:
            return f"records are missing before the next batch, at {stored.base_offset}"
        if stored.epoch < self.last_epoch and stored.epoch != batches.NO_EPOCH:
            return f"leader epoch {stored.epoch} after {self.last_epoch}"
        data = self._storage.read(self.partition, stored.base_offset)
        before = self._chain_before(len(self._ends))
        return batches.damage(data, stored.base_offset, before, stored.chain)

    def _chain_before(self, i: int) -> bytes:
        return self._chains[i - 1] if i else self.begins.chain

    def _read(self, i: int) -> bytes:
        base = self._bases[i]
        data = self._storage.read(self.partition, base)
        what = ""
        if self._checked:
            what = batches.damage(data, base, self._chain_before(i), self._chains[i])
        if what:
            self._lose(i, Damage(base, what))
            raise DamagedStore(what, partition=self.partition, offset=base)
        return data

    def _lose(self, keep: int, damage: Damage) -> None:
        """Use only the first `keep` batches from now on; the disk stays as it is."""
        self.damage = damage
        self._forget(keep)
        self.leo = self._ends[-1] if self._ends else self.start
        self.cache.truncate(self.leo)

    def _forget(self, keep: int) -> None:
        """Take all batches but the first `keep` out of the index."""
        self._unindex(slice(keep, None))
        self._note_last_epoch()

    def _unindex(self, part: slice) -> None:
        for base in self._bases[part]:
            self._tail_bytes -= len(self._tail.pop(base, b""))
            self._produced.pop(base, None)
        for column in (self._bases, self._ends, self._epochs, self._sizes, self._chains):
            del column[part]

    def _note_last_epoch(self) -> None:
        self.last_epoch = self._epochs[-1] if self._epochs else self.begins.epoch

    def _append(self, one: BatchView) -> None:
        assert one.base_offset == self.leo, (one.base_offset, self.leo)
        assert one.epoch >= self.last_epoch or one.epoch < 0, (one.epoch, self.last_epoch)
        chain = batches.chain(self.chain, one)
        self._storage.append(self.partition, one.base_offset, chain, one.data, durable=self.durable)
        if self._index(one.base_offset, one.end, one.epoch, len(one.data), chain):
            self._save_cache()
        if one.produced is not None:
            self._produced[one.base_offset] = one.produced
        self._tail[one.base_offset] = one.data
        self._tail_bytes += len(one.data)
        while self._tail_bytes > TAIL_CACHE_BYTES and len(self._tail) > 1:
            self._tail_bytes -= len(self._tail.pop(next(iter(self._tail))))

    def _index(self, base: int, end: int, epoch: int, size: int, chain: bytes) -> bool:
        """Enter a batch into the index; return whether the epoch cache changed."""
        changed = self.cache.note(epoch, base)
        self._bases.append(base)
        self._ends.append(end)
        self.leo = max(end, self._hole_end)
        self._epochs.append(epoch)
        self.last_epoch = epoch
        self._sizes.append(size)
        self._chains.append(chain)
        return changed

    def _save_cache(self) -> None:
        entries = msgspec.msgpack.encode(self.cache.entries())
        self._storage.put(f"epochs/{self.partition}", entries, durable=self.durable)
