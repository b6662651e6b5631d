"""Damage to the files of a node that is down: a flipped bit, a torn write, an empty disk, an old
copy. Only the harness uses it; the lock of the data directory refuses it while the node runs."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import lmdb

from node.formats.errors import FloodmarkError
from node.formats.host_errors import cannot
from node.runtime import journal
from node.runtime.damage import DiskDamage, flip, flipped, pick, pick_last, torn
from node.runtime.datadir import LOCK_NAME, DataDir
from node.runtime.read_logs import stored_batches
from node.runtime.tables import CHAIN_BYTES, DATA_FILE, Tables, scan

_LOG: Final = struct.Struct(">cIQ")
_MAP_BYTES: Final = 1 << 40


def damage(path: Path, wanted: DiskDamage) -> str:
    """Damage a synced batch or a small value, or remove everything; return a description of the
    damage. Raises FloodmarkError if the data that should be damaged does not exist."""
    if wanted.what == "empty":
        return f"{_empty(path)} batches are gone"
    if wanted.part == "value":
        return _flip_value(path, wanted)
    tears = wanted.what == "tear"
    with _store(path) as (txn, ids):
        found = (pick_last if tears else pick)(_synced(txn, ids), wanted.which)
        if found is None:
            raise FloodmarkError(
                f"{path.name} has no synced batch on its disk yet: there is nothing to damage"
            )
        name, base = found
        key = _LOG.pack(b"L", ids[name], base)
        both = bytes(txn.get(key) or b"")
        if tears:
            txn.put(key, torn(both, wanted.bit))
            return f"{name} at {base} is torn"
        txn.put(key, b"".join(flipped(both[:CHAIN_BYTES], both[CHAIN_BYTES:], wanted)))
        return f"a bit of the {wanted.part} of {name} at {base} is flipped"


def _empty(path: Path) -> int:
    """Remove all logs and values; return how many batches there were."""
    lost = len(stored_batches(path))
    with DataDir(path, create=False):
        for file in path.iterdir():
            if file.name != LOCK_NAME:
                file.unlink()
    return lost


def copy(path: Path, to: Path) -> None:
    """Copy the disk of a node that is down into the folder `to`."""
    with DataDir(path, create=False):
        to.mkdir(parents=True, exist_ok=True)
        for name in (DATA_FILE, journal.FILE_NAME):
            if (path / name).exists():
                shutil.copyfile(path / name, to / name)


def restore(path: Path, copied: Path) -> int:
    """Replace a node's disk by a copy made earlier; return how many batches are lost by that."""
    before = stored_batches(path)
    with DataDir(path, create=False):
        for name in (DATA_FILE, journal.FILE_NAME):
            (path / name).unlink(missing_ok=True)
            if (copied / name).exists():
                shutil.copyfile(copied / name, path / name)
    return len(before - stored_batches(path))


def _flip_value(path: Path, place: DiskDamage) -> str:
    with _store(path) as (txn, _):
        keys = [bytes(key) for key, _ in scan(txn, b"V")]
        wanted = [key for key in keys if place.key in ("", key[1:].decode())]
        if not wanted:
            raise FloodmarkError(
                f"{path.name} has no value '{place.key}' on its disk: there is nothing to damage"
            )
        key = wanted[min(len(wanted) - 1, int(place.which * len(wanted)))]
        txn.put(key, flip(bytes(txn.get(key) or b""), place.bit))
        return f"a bit of the value '{key[1:].decode()}' is flipped"


@contextmanager
def _store(path: Path) -> Iterator[tuple[lmdb.Transaction, dict[str, int]]]:
    """Open the store of a node that is down for damage; yield it with the numbers of its
    partitions."""
    with DataDir(path, create=False):
        with closing(Tables(path, map_bytes=1 << 20, map_limit=_MAP_BYTES, readonly=True)) as table:
            ids = dict(table.ids)
        try:
            with (
                lmdb.open(str(path), lock=False, map_size=_MAP_BYTES) as env,
                env.begin(write=True) as txn,
            ):
                yield txn, ids
        except lmdb.Error as error:
            raise cannot(f"damage the store in {path}", error) from None


def _synced(txn: lmdb.Transaction, ids: dict[str, int]) -> list[tuple[str, int]]:
    """Return the batches in the tables: partition and base offset, in order."""
    names = {number: name for name, number in ids.items()}
    places = [_LOG.unpack(key) for key, _ in scan(txn, b"L")]
    return sorted((names[number], base) for _, number, base in places if number in names)
