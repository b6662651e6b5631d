"""One node's LMDB environment: logs, small values, and the table of partition names.

Everything is in the one unnamed database, and the first byte of a key is its kind: a commit
rewrites fewer pages than with a database for each kind. The module knows nothing of turns or of the
journal.

    L <partition id, 4> <base offset, 8>   ->  <chain, 8> <batch>
    V <key>                                ->  <CRC-32 of key and value, 4> <small value>
    N <partition name>                     ->  <partition id, 4>
    M <name>                               ->  <unsigned number, 8> (the store's own counters)

Numbers are big endian, so that keys sort as offsets do."""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NoReturn

import lmdb

from node.formats.errors import DamagedStore, StorageError
from node.formats.host_errors import cannot
from node.runtime.overlay import LogOverlay, Overlay

FORMAT: Final = 2
CHAIN_BYTES: Final = 8
MAX_NAME_BYTES: Final = 500
"""Longest name of a partition or small value: LMDB's limit is 511 for a whole key."""

_LOG: Final = struct.Struct(">cIQ")
_LOG_PREFIX: Final = struct.Struct(">cI")
_ID: Final = struct.Struct(">I")
_NUMBER: Final = struct.Struct(">Q")
_CRC: Final = struct.Struct(">I")
DATA_FILE: Final = "data.mdb"
_OPEN_HINT: Final = "it is damaged or is not a floodmark store"


class Tables:
    """The durable part of a store. One commit is one call of `write`. `path` is the environment's
    directory. The map starts at `map_bytes` and doubles as needed, up to `map_limit` bytes.
    `readonly` never changes a byte. Raises StorageError if the directory cannot be opened as a
    store of floodmark."""

    def __init__(
        self, path: Path, *, map_bytes: int, map_limit: int, readonly: bool = False
    ) -> None:
        self.path = path
        self._limit = map_limit
        self._map_bytes = min(map_bytes, map_limit)
        self._reader: lmdb.Transaction | None = None
        self._full = False
        if not (path / DATA_FILE).exists():
            if readonly:
                raise StorageError(f"there is no store in {path}")
            _create(path)
        try:
            # One process opens a store (the caller holds its lock), and no transaction outlives a
            # write: LMDB's own reader table would only cost.
            options = {"readonly": readonly, "create": False, "meminit": False, "lock": False}
            self._env = lmdb.open(str(path), map_size=self._map_bytes, **options)
        except (lmdb.Error, OSError) as error:
            raise cannot(f"open the store in {path}", error, _OPEN_HINT) from None
        try:
            self._check_length()
            self._map_bytes = max(self._map_bytes, int(self._env.info()["map_size"]))
            self.ids = self._load_ids()
            self._check_format()
        except lmdb.Error as error:
            self._env.close()
            raise cannot(f"read the store in {path}", error, _OPEN_HINT) from None
        except StorageError:
            self._env.close()
            raise

    def value(self, key: str) -> bytes | None:
        """Return a small value, None if it was never stored. Raises DamagedStore if its checksum is
        wrong."""
        name = b"V" + key.encode()
        found = self._get(name)
        if found is None:
            return None
        if found[: _CRC.size] != _crc(name, found[_CRC.size :]):
            raise DamagedStore("its checksum does not match", key=key)
        return found[_CRC.size :]

    def number(self, name: str) -> int:
        """Return one of the store's own counters, 0 if never written."""
        found = self._get(b"M" + name.encode())
        if found is not None and len(found) != _NUMBER.size:
            raise StorageError(f"the counter '{name}' in {self.path} has {len(found)} bytes, not 8")
        return 0 if found is None else int(_NUMBER.unpack(found)[0])

    def batch(self, partition: str, base_offset: int) -> bytes | None:
        """Return the bytes of the batch that starts exactly at `base_offset`, None if none does."""
        number = self.ids.get(partition)
        if number is None or base_offset < 0:
            return None
        found = self._find(_LOG.pack(b"L", number, base_offset))
        return None if found is None else bytes(found[CHAIN_BYTES:])

    def batches(self, partition: str, *, whole: bool = False) -> Iterator[tuple[int, bytes, int]]:
        """Yield (base offset, start of the stored bytes, their full length) in offset order. The
        stored bytes are the prefix hash, then the batch: all of them if `whole`, else the first 64.
        No write may happen until the iterator is exhausted or closed."""
        number = self.ids.get(partition)
        if number is None:
            return
        prefix = _LOG_PREFIX.pack(b"L", number)
        try:
            with self._env.begin(buffers=True) as txn:
                for key, value in scan(txn, prefix):
                    base = int(_NUMBER.unpack_from(key, len(prefix))[0])
                    yield base, bytes(value if whole else value[:64]), len(value)
        except lmdb.Error as error:
            self._refuse("read", error)

    def write(self, overlays: Iterable[Overlay], numbers: dict[str, int]) -> None:
        """Write the net effect of `overlays`, in order, and the counters `numbers` to disk in one
        synced commit. It is all or nothing. The map grows if it is full. Raises StorageError if the
        disk refuses."""
        overlays = list(overlays)
        self._end_read()
        while True:
            ids = dict(self.ids)
            try:
                self._write_once(overlays, numbers, ids)
            except lmdb.MapFullError:
                # Any commit can need pages, even one that only deletes (copy on write).
                self._grow()
            except (lmdb.Error, OSError) as error:
                self._refuse("write", error)
            else:
                self.ids = ids
                return

    def close(self) -> None:
        """Close the files. Nothing is lost if this is never called."""
        self._end_read()
        self._env.close()

    def _write_once(
        self, overlays: list[Overlay], numbers: dict[str, int], ids: dict[str, int]
    ) -> None:
        txn = self._env.begin(write=True)
        try:
            for overlay in overlays:
                for name, log in overlay.logs.items():
                    _write_log(txn, name, log, ids)
                for key, value in overlay.values.items():
                    txn.put(b"V" + key.encode(), _crc(b"V" + key.encode(), value) + value)
            for name, number in numbers.items():
                txn.put(b"M" + name.encode(), _NUMBER.pack(number))
            txn.commit()
        except BaseException:
            # Where the commit itself failed there is nothing left to abort.
            with contextlib.suppress(lmdb.Error):
                txn.abort()
            raise

    def limit_map(self, *, full: bool) -> None:
        """If `full`, limit the map to its present use and let it not grow; else lift that limit."""
        if full == self._full:
            return
        self._full = full
        self._end_read()
        used = (int(self._env.info()["last_pgno"]) + 1) * int(self._env.stat()["psize"])
        self._env.set_mapsize(used if full else self._map_bytes)

    def copy(self, to: Path) -> None:
        """Write a copy of the environment into the folder `to`, which must be there and empty."""
        try:
            self._env.copy(str(to))
        except (lmdb.Error, OSError) as error:
            self._refuse("copy", error)

    def _grow(self) -> None:
        if self._full:
            raise StorageError(f"the store in {self.path} is full: its map may not grow")
        if self._map_bytes >= self._limit:
            raise StorageError(
                f"the store in {self.path} is full: it may not grow above {self._limit} bytes"
            )
        self._map_bytes = min(self._map_bytes * 2, self._limit)
        self._env.set_mapsize(self._map_bytes)

    def _get(self, key: bytes) -> bytes | None:
        found = self._find(key)
        return None if found is None else bytes(found)

    def _find(self, key: bytes) -> bytes | memoryview | None:
        if self._reader is None:
            self._reader = self._env.begin(buffers=True)
        try:
            return self._reader.get(key)
        except lmdb.Error as error:
            self._refuse("read", error)

    def _end_read(self) -> None:
        if self._reader is not None:
            self._reader.abort()
            self._reader = None

    def _refuse(self, what: str, error: Exception) -> NoReturn:
        raise cannot(f"{what} the store in {self.path}", error) from None

    def _check_length(self) -> None:
        # Reading a page beyond the file's end is no error but a SIGBUS, so look before.
        needed = (int(self._env.info()["last_pgno"]) + 1) * int(self._env.stat()["psize"])
        found = os.stat(self.path / DATA_FILE).st_size
        if found < needed:
            raise StorageError(
                f"the store in {self.path} was cut short: {found} bytes of at least {needed}"
            )

    def _check_format(self) -> None:
        found = self.number("format")
        if found != FORMAT:
            raise StorageError(
                f"the store in {self.path} has format {found}, expected {FORMAT}; {_OPEN_HINT}"
            )

    def _load_ids(self) -> dict[str, int]:
        ids: dict[str, int] = {}
        with self._env.begin() as txn:
            for key, value in scan(txn, b"N"):
                if len(value) != _ID.size:
                    raise StorageError(f"a partition's number in {self.path} is damaged")
                ids[key[1:].decode(errors="replace")] = _ID.unpack(value)[0]
        return ids


def scan(txn: lmdb.Transaction, prefix: bytes) -> Iterator[tuple[Any, Any]]:
    """Yield the keys that begin with `prefix` and their values, in order."""
    with txn.cursor() as cursor:
        more = cursor.set_range(prefix)
        while more and cursor.key()[: len(prefix)] == prefix:
            yield cursor.item()
            more = cursor.next()


def _crc(key: bytes, value: bytes) -> bytes:
    return _CRC.pack(zlib.crc32(value, zlib.crc32(key)))


def _create(path: Path) -> None:
    """Make an empty environment under another name, then rename it: a kill or a full disk must not
    leave half of one behind, which could never be opened."""
    new, data = path / f"{DATA_FILE}.new", path / DATA_FILE
    try:
        new.unlink(missing_ok=True)
        with lmdb.open(str(new), subdir=False, lock=False) as env, env.begin(write=True) as txn:
            txn.put(b"Mformat", _NUMBER.pack(FORMAT))
            # "dirty" is absent, so 0, which is no generation.
            txn.put(b"Mgeneration", _NUMBER.pack(1))
        new.replace(data)
        directory = os.open(path, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except (lmdb.Error, OSError) as error:
        raise cannot(f"make a store in {path}", error) from None


def _write_log(txn: lmdb.Transaction, name: str, log: LogOverlay, ids: dict[str, int]) -> None:
    number = ids.get(name)
    if number is not None and log.cut is not None:
        _delete(txn, _LOG.pack(b"L", number, max(log.cut, 0)), _LOG_PREFIX.pack(b"L", number + 1))
    if number is not None and log.head:
        _delete(txn, _LOG_PREFIX.pack(b"L", number), _LOG.pack(b"L", number, log.head))
    if log.present is False:
        if number is not None:
            txn.delete(b"N" + name.encode())
            del ids[name]
        return
    if log.present and number is None:
        number = max(ids.values(), default=0) + 1
        ids[name] = number
        txn.put(b"N" + name.encode(), _ID.pack(number))
    if number is None:
        return
    for base in sorted(log.batches):
        kept = log.batches[base]
        txn.put(_LOG.pack(b"L", number, base), kept.chain + kept.data)


def _delete(txn: lmdb.Transaction, first: bytes, end: bytes) -> None:
    with txn.cursor() as cursor:
        more = cursor.set_range(first)
        while more and bytes(cursor.key()) < end:
            more = cursor.delete()
