"""The disk of a simulated node: synced writes, the journal, and writes of the current turn.

It behaves as `node.runtime.store` does: a turn's durable writes are synced when `commit` returns;
its deferred writes are in the journal, which survives a kill; `flush` syncs everything. A power cut
keeps the synced writes and the first part of the journal, in bytes of a real one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from harness.sim.damaged_value import DamagedValue
from node.core.batch import HEADER, produced_by
from node.core.log_dump import CHAIN_BYTES, log_dump
from node.core.storage import StoredBatch
from node.formats.errors import DamagedStore, FloodmarkError, StorageError
from node.formats.log_dump import LogDump
from node.runtime.damage import DiskDamage, flipped, pick, pick_last, torn
from node.runtime.failing_disk import DiskFails
from node.runtime.journal import FRAME_BYTES, HEADER_BYTES
from node.runtime.overlay import Append, Delete, DeleteHead, Op, Put, Truncate

_DEADLY: Final = ("error", "full", "full-map")
_SAID: Final = {
    "error": "Input/output error",
    "full": "No space left on device",
    "full-map": "its map may not grow",
}
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
        elif isinstance(op, DeleteHead):
            log = self.logs.get(op.partition, {})
            for base in [base for base in log if base < op.below]:
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

    def copy(self) -> _Journal:
        return _Journal(self.header, self.same_boot, self.torn, list(self.turns))

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


class DiskState(NamedTuple):
    """All contents of a disk between two turns, as a value that can be compared and hashed."""

    clean: bool
    dirty: bool
    unsettled: bool
    header: bool
    same_boot: bool
    torn: bool
    deferred: tuple[tuple[str, str], ...]
    turns: tuple[tuple[Op, ...], ...]
    logs: tuple[tuple[str, tuple[tuple[int, _Batch], ...]], ...]
    values: tuple[tuple[str, bytes], ...]


class SimDisk:
    """The disk of one simulated node. It implements `node.core.storage.Storage`, and adds power
    cuts and disk faults. While `failing` is not empty, each sync raises StorageError with that
    sentence. `faults` are the disk faults in force, by number, and `writes` counts the writes that
    each affected. `blamed`: a fault changed or removed data that was written. With `retries` (the
    bug retry-fsync) a failed sync counts as successful."""

    clean: bool

    def __init__(self) -> None:
        self._synced = _Image()
        self._journal = _Journal()
        self._dirty = False
        self.failing = ""
        self.faults: dict[int, DiskFails] = {}
        self.writes: dict[int, int] = {}
        self.blamed = False
        self.retries = False
        self._copies: dict[int, tuple[_Image, _Journal, bool]] = {}
        self.open()

    # -- for the world

    def open(self) -> None:
        """Open the disk for a new process, which finds the synced writes and the journal."""
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
        """Keep the first `keep` (0 to 1) of the journal; return its length in bytes before and
        after. First undo all writes since a fault "lying" (false syncs) began."""
        for number, fault in reversed(self.faults.items()):
            if fault.what == "lying":
                self.writes[number] += self.restore(number)
        return self._journal.cut(keep)

    def add_fault(self, number: int, fault: DiskFails) -> None:
        """Add a disk fault. For "lying" the disk is copied; a power cut restores the copy."""
        self.faults[number] = fault
        self.writes[number] = 0
        if fault.what == "lying":
            self.copy(number)

    def remove_fault(self, number: int) -> int:
        """Remove a disk fault; return how many writes it affected."""
        del self.faults[number]
        self._copies.pop(number, None)
        return self.writes.pop(number)

    def state(self) -> DiskState:
        """Return the contents of a disk without faults, between two turns."""
        assert not self.faults
        assert not self._durable_ops
        assert not self._deferred_ops
        journal = self._journal
        return DiskState(
            clean=self.clean,
            dirty=self._dirty,
            unsettled=self._unsettled,
            header=journal.header,
            same_boot=journal.same_boot,
            torn=journal.torn,
            deferred=tuple(self._deferred),
            turns=tuple(tuple(turn) for turn in journal.turns),
            logs=tuple((name, tuple(log.items())) for name, log in self._synced.logs.items()),
            values=tuple(self._synced.values.items()),
        )

    @classmethod
    def of(cls, state: DiskState) -> SimDisk:
        """Return a disk with these contents."""
        disk = cls()
        disk._synced = _Image({name: dict(log) for name, log in state.logs}, dict(state.values))
        turns = [list(turn) for turn in state.turns]
        disk._journal = _Journal(state.header, state.same_boot, state.torn, turns)
        disk._dirty = state.dirty
        disk.open()
        disk.clean, disk._unsettled = state.clean, state.unsettled
        disk._deferred = dict.fromkeys(state.deferred)
        return disk

    def contents(self) -> tuple[object, ...]:
        """Return a sorted value of what a process can read from the disk, and of what it could read
        after a power cut that loses all unsynced writes."""
        after, now = self._synced, self._now
        return (
            (self.clean, self._dirty, self._unsettled, self._journal.whole, self._journal.header),
            tuple(sorted(self._deferred)),
            *(
                (
                    sorted((name, sorted(log.items())) for name, log in image.logs.items()),
                    sorted(image.values.items()),
                )
                for image in ((now, after) if self._deferred else (now,))
            ),
        )

    @property
    def is_broken(self) -> bool:
        """Return whether disk faults may make a process end by itself."""
        return self.blamed or self._fails

    def delay_us(self, *, flush: bool) -> int:
        """Return by how many microseconds faults delay the coming commit (or flush), and count that
        they do. A sync that fails does not wait."""
        deferred = self._dirty or bool(self._deferred)
        syncs = self._durable_ops or (self._deferred_ops and not self._dirty)
        if not (syncs or self._must_flush or (flush and deferred)) or self._fails:
            return 0
        slow = [number for number, fault in self.faults.items() if fault.what == "slow"]
        for number in slow:
            self.writes[number] += 1
        return sum(self.faults[number].delay_ms for number in slow) * 1000

    @property
    def _fails(self) -> bool:
        return any(fault.what in _DEADLY for fault in self.faults.values())

    def copy(self, number: int) -> None:
        """Copy the committed contents, to be restored under this number."""
        self._copies[number] = self._synced.copy(), self._journal.copy(), self._dirty

    def restore(self, number: int) -> int:
        """Restore the copy with this number; return how many batches that removes."""
        before = self._stored()
        synced, journal, self._dirty = self._copies[number]
        self._synced, self._journal = synced.copy(), journal.copy()
        self.blamed = True
        return len(before - self._stored())

    def damage(self, damage: DiskDamage) -> str:
        """Damage synced data as `node.runtime.disk_damage` does. Return a description of the
        damage. Raises FloodmarkError if the data that should be damaged does not exist."""
        self.blamed = True
        if damage.what == "empty":
            lost = len(self._stored())
            self._synced, self._journal, self._dirty = _Image(), _Journal(), False
            return f"{lost} batches are gone"
        if damage.part == "value":
            return self._flip_value(damage)
        stored = sorted((name, base) for name, log in self._synced.logs.items() for base in log)
        tears = damage.what == "tear"
        found = (pick_last if tears else pick)(stored, damage.which)
        if found is None:
            raise FloodmarkError("the disk cannot be damaged: no batch is synced to it yet")
        name, base = found
        log = self._synced.logs[name]
        chain, data = log[base]
        if tears:
            both = torn(chain + data, damage.bit)
            log[base] = both[:CHAIN_BYTES], both[CHAIN_BYTES:]
            return f"{name} at {base} is torn"
        log[base] = flipped(chain, data, damage)
        return f"a bit of the {damage.part} of {name} at {base} is flipped"

    def _flip_value(self, damage: DiskDamage) -> str:
        keys = [key for key in sorted(self._synced.values) if damage.key in ("", key)]
        if not keys:
            raise FloodmarkError(f"the disk cannot be damaged: it has no value '{damage.key}'")
        key = keys[min(len(keys) - 1, int(damage.which * len(keys)))]
        self._synced.values[key] = DamagedValue(self._synced.values[key])
        return f"a bit of the value '{key}' is flipped"

    def _stored(self) -> set[tuple[str, int, bytes]]:
        """Return every committed batch: partition, base offset, prefix hash."""
        logs = self._committed().logs
        return {
            (name, base, chain) for name, log in logs.items() for base, (chain, _) in log.items()
        }

    def _committed(self) -> _Image:
        image = self._synced.copy()
        for turn in self._journal.turns:
            for op in turn:
                image.apply(op)
        return image

    @property
    def is_uncommitted(self) -> bool:
        """Return whether the current turn has writes that are not committed."""
        return bool(self._durable_ops or self._deferred_ops or self._must_flush)

    def synced_base(self, partition: str) -> int:
        """Return the base offset of the last synced batch of a log, -1 if there is none."""
        return next(reversed(self._synced.logs.get(partition, {})), -1)

    def synced_vote(self, partition: str) -> tuple[int, str]:
        """Return the synced term and vote of a voter."""
        term, candidate = self._synced_value(f"vote/{partition}") or (0, "")
        return term, candidate

    def synced_out(self, partition: str) -> int:
        """Return the synced term until which a voter is out, 0 if it is not."""
        return self._synced_value(f"out/{partition}") or 0

    def _synced_value(self, key: str) -> Any:
        found = self._synced.values.get(key)
        return None if found is None else msgspec.msgpack.decode(found)

    def commit(self) -> None:
        """Sync the turn's durable writes, journal its deferred ones. Raises StorageError."""
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
            self._fail_if("full", "full-map")
            journal.begin()
            journal.turns.append(self._deferred_ops)
            self._deferred_ops = []

    def flush(self) -> None:
        """End the turn, and sync everything. Raises StorageError when the disk fails."""
        if not self._dirty and not self._deferred and not self._must_flush:
            self.commit()
            return
        turns = self._journal.turns
        deferred = [*(op for turn in turns for op in turn), *self._deferred_ops]
        self._sync([*deferred, *self._durable_ops])
        self._journal = _Journal()
        self._unsettled = self._dirty = self._must_flush = False
        self._durable_ops, self._deferred_ops = [], []
        self._deferred.clear()
        self._turn.clear()

    def dump(self) -> Iterator[LogDump]:
        """Yield all logs of a stopped node, as `node.runtime.read_logs` reads a real disk."""
        image = self._committed()
        value = partial(_sound, image.values)
        for name in sorted(image.logs):
            yield log_dump(name, partial(_stored, image.logs[name]), value)

    def _sync(self, ops: list[Op]) -> None:
        if self.failing:
            raise StorageError(self.failing)
        if self.faults:
            self._fail_if("full", "full-map")
            if any(fault.what == "error" and fault.written for fault in self.faults.values()):
                self._apply(ops)
            if self.retries and self._has("error"):
                return
            self._fail_if("error")
        self._apply(ops)

    def _apply(self, ops: list[Op]) -> None:
        for op in ops:
            self._synced.apply(op)

    def _has(self, kind: str) -> bool:
        """Return whether the disk has a fault of this kind; if so, count the affected write."""
        for number, fault in self.faults.items():
            if fault.what == kind:
                self.writes[number] += 1
                return True
        return False

    def _fail_if(self, *kinds: str) -> None:
        """Raise StorageError if the disk has a fault of one of these kinds."""
        for number, fault in self.faults.items():
            if fault.what in kinds:
                self.writes[number] += 1
                raise StorageError(f"cannot write the store: {_SAID[fault.what]}")

    # -- for the core, see `Storage`

    def partitions(self) -> list[str]:
        return sorted(self._now.logs)

    def batches(self, partition: str) -> Iterator[StoredBatch]:
        for base, (chain, data) in sorted(self._now.logs.get(partition, {}).items()):
            epoch, count, produced = -1, 0, None
            if len(data) >= HEADER.size:
                _, epoch, _, _, _, count = HEADER.unpack_from(data)
                produced = produced_by(data)
            yield StoredBatch(base, count, epoch, len(data), chain, produced)

    def append(
        self, partition: str, base_offset: int, chain: bytes, data: bytes, *, durable: bool
    ) -> None:
        self._write(("log", partition), Append(partition, base_offset, chain, data), durable)

    def truncate(self, partition: str, from_offset: int, *, durable: bool) -> None:
        self._write(("log", partition), Truncate(partition, from_offset), durable)

    def delete_head(self, partition: str, below: int, *, durable: bool) -> None:
        self._write(("log", partition), DeleteHead(partition, below), durable)

    def read(self, partition: str, base_offset: int) -> bytes:
        found = self._now.logs.get(partition, {}).get(base_offset)
        if found is None:
            raise StorageError(f"{partition}: no batch starts at {base_offset}")
        return found[1]

    def delete(self, partition: str, *, durable: bool) -> None:
        self._write(("log", partition), Delete(partition), durable)

    def put(self, key: str, value: bytes, *, durable: bool) -> None:
        self._write(("key", key), Put(key, value), durable)

    def get(self, key: str) -> bytes | None:
        return _sound(self._now.values, key)

    def _write(self, place: tuple[str, str], op: Op, durable: bool) -> None:
        """Add a write to the turn. A deferred write keeps its log or key deferred, until a durable
        one to the same makes the turn end in a flush. A durable one stays durable."""
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


def _sound(values: dict[str, bytes], key: str) -> bytes | None:
    """Return a value, None if there is none. Raises DamagedStore if its checksum is wrong."""
    found = values.get(key)
    if isinstance(found, DamagedValue):
        raise DamagedStore("its checksum does not match", key=key)
    return found


def _place(op: Op) -> tuple[str, str]:
    return ("key", op.key) if isinstance(op, Put) else ("log", op.partition)


def _stored(log: dict[int, _Batch], *, whole: bool) -> Iterator[tuple[int, bytes, int]]:
    for base, (chain, data) in sorted(log.items()):
        yield base, chain + data, len(chain) + len(data)
