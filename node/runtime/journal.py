"""The journal of deferred writes: a plain append-only file beside LMDB, never synced.

It is in the page cache: a SIGKILL loses nothing of it, a power cut any part of its tail. It is read
once, at start, and emptied whenever its content has been committed to LMDB.

    header:  magic (8), generation (8), digest of the host's boot id (16), CRC-32 (4)
    frame:   payload length (4), CRC-32 of the payload seeded with the generation (4), payload

A frame is one turn: a msgpack list of the operations of `node.runtime.overlay`. So a turn is
replayed whole or not at all. The generation is also kept in LMDB and rises with every flush: a
journal of an older generation, whose content LMDB has already, is ignored."""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import zlib
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Final

import msgspec

from node.formats.errors import StorageError
from node.formats.host_errors import cannot
from node.formats.wire import NOT_A_HEADER
from node.runtime.overlay import Op

FILE_NAME: Final = "journal"
_MAGIC: Final = b"fmjrnl01"
_HEADER: Final = struct.Struct(">8sQ16sI")
_FRAME: Final = struct.Struct(">II")
HEADER_BYTES: Final = _HEADER.size
FRAME_BYTES: Final = _FRAME.size
_ANOTHER_BOOT: Final = bytes(16)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Op])


def boot_digest(boot_id: str) -> bytes:
    """Return a digest of 16 bytes that identifies one boot of the host."""
    return blake2b(boot_id.encode(), digest_size=16, usedforsecurity=False).digest()


class JournalContents(msgspec.Struct, frozen=True):
    """A journal file: `boot` identifies the host's boot, `generation` counts the flushes before it,
    -1 without a sound header. The first `valid_bytes` hold `turns`; `torn`: more bytes follow."""

    generation: int
    boot: bytes
    turns: list[list[Op]]
    valid_bytes: int
    torn: bool


def read(path: Path) -> JournalContents:
    """Return the valid prefix of the journal at `path`; an absent file reads as an empty one.
    Raises StorageError."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        content = b""
    except OSError as error:
        raise cannot(f"read the journal {path}", error) from None
    if len(content) < HEADER_BYTES:
        return JournalContents(-1, _ANOTHER_BOOT, [], 0, bool(content))
    magic, generation, boot, crc = _HEADER.unpack_from(content)
    if magic != _MAGIC or crc != zlib.crc32(content[: HEADER_BYTES - 4]):
        return JournalContents(-1, _ANOTHER_BOOT, [], 0, True)
    turns, position = [], HEADER_BYTES
    while position + FRAME_BYTES <= len(content):
        length, crc = _FRAME.unpack_from(content, position)
        start = position + FRAME_BYTES
        payload = content[start : start + length]
        if not length or len(payload) < length or crc != _crc(payload, generation):
            break
        try:
            turns.append(_decoder.decode(payload))
        except NOT_A_HEADER as error:
            raise StorageError(
                f"journal {path} is not floodmark's, at byte {position}: {error}"
            ) from None
        position = start + length
    return JournalContents(generation, boot, turns, position, position < len(content))


class Journal:
    """A journal open for writing. `size` is its length in bytes, header included. Opening it
    changes nothing; `resume` or `settle` must say where to go on before the first `append`."""

    def __init__(self, path: Path, boot: bytes) -> None:
        self.path = path
        self._boot = boot
        self.size = 0
        self._generation = 0
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise cannot(f"open the journal {path}", error) from None

    def resume(self, generation: int, size: int) -> None:
        """Append after the first `size` bytes, which are the whole file and of this boot."""
        self._generation, self.size = generation, size

    def settle(self, generation: int, valid_bytes: int) -> None:
        """Drop everything after the first `valid_bytes` bytes and continue there, as of this boot.
        With `valid_bytes` 0 the file is empty then: `begin` must come before the first `append`."""
        self._generation = generation
        try:
            os.ftruncate(self._fd, valid_bytes)
        except OSError as error:
            raise cannot(f"cut the journal {self.path}", error) from None
        self.size = valid_bytes
        if valid_bytes:
            self._pwrite([_header(self._generation, self._boot)], 0)

    def begin(self) -> None:
        """Write the header if the file is empty."""
        if not self.size:
            self.size = self._pwrite([_header(self._generation, self._boot)], 0)

    def append(self, turn: list[Op]) -> None:
        """Add the operations of one turn with one write(). Raises StorageError if the disk refuses;
        then the file is as before."""
        payload = _encoder.encode(turn)
        frame = _FRAME.pack(len(payload), _crc(payload, self._generation))
        self.size += self._pwrite([frame, payload], self.size)

    def close(self) -> None:
        """Close the file. Raises StorageError if the disk is gone."""
        try:
            os.close(self._fd)
        except OSError as error:
            raise cannot(f"close the journal {self.path}", error) from None

    def _pwrite(self, pieces: Sequence[bytes], at: int) -> int:
        expected = sum(map(len, pieces))
        refusal = OSError(errno.ENOSPC, "")
        try:
            if os.pwritev(self._fd, pieces, at) == expected:
                return expected
        except OSError as error:
            refusal = error
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, self.size)
        raise cannot(f"write the journal {self.path}", refusal)


def cut(data_dir: str | Path, keep: float) -> tuple[int, int]:
    """Do to a dead node's journal what a power cut does: keep only its first share `keep` (0 to 1).
    Return its length in bytes before and after. The rest also reads as written under another boot
    of the host, so that the next start knows of the power cut even if the prefix ends between two
    frames. The caller makes sure that no process has the store open: see `datadir.power_cut`."""
    path = Path(data_dir) / FILE_NAME
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0, 0
    try:
        before = os.fstat(fd).st_size
        after = round(before * keep)
        os.ftruncate(fd, after)
        head = os.pread(fd, HEADER_BYTES, 0)
        if len(head) == HEADER_BYTES:
            os.pwrite(fd, _header(_HEADER.unpack(head)[1], _ANOTHER_BOOT), 0)
    finally:
        os.close(fd)
    return before, after


def _header(generation: int, boot: bytes) -> bytes:
    head = _HEADER.pack(_MAGIC, generation, boot, 0)[:-4]
    return head + struct.pack(">I", zlib.crc32(head))


def _crc(payload: bytes, generation: int) -> int:
    # Seeded, so that frames of an earlier generation that a crash brings back never pass.
    return zlib.crc32(payload, generation & 0xFFFFFFFF)
