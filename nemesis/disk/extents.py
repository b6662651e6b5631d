"""Saved parts of files, from which a power cut restores them: in memory, or in a file."""

from __future__ import annotations

import os
import tempfile
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

MEMORY_BYTES: Final = 16 << 20
"""How much a disk keeps in memory."""
_CHUNK_BYTES: Final = 1 << 20


class Spilled(NamedTuple):
    """Bytes of an extent that are in the file of its `ExtentStore`."""

    position: int
    length: int


class Zeros(NamedTuple):
    """Bytes of an extent that are all zero; only their number is kept."""

    length: int


Kept = bytes | Spilled | Zeros


class Extent(NamedTuple):
    """The bytes that a file had at `offset`, wherever they are kept."""

    offset: int
    kept: Kept

    @property
    def end(self) -> int:
        """The offset after the last byte."""
        kept = self.kept
        return self.offset + (len(kept) if isinstance(kept, bytes) else kept.length)

    def part(self, start: int, end: int) -> Extent:
        """Return the part of the extent between two offsets, which must have at least one byte."""
        start, end = max(start, self.offset), min(end, self.end)
        kept, skip = self.kept, start - self.offset
        if isinstance(kept, Spilled):
            return Extent(start, Spilled(kept.position + skip, end - start))
        if isinstance(kept, Zeros):
            return Extent(start, Zeros(end - start))
        return Extent(start, kept[skip : skip + end - start])


class ExtentStore:
    """The bytes of all extents of one disk. Each extent that `save` returns must be released once,
    whole or in parts."""

    def __init__(self, folder: Path, memory_bytes: int = MEMORY_BYTES) -> None:
        """Make the file for extents beyond `memory_bytes`: in `folder`, without a name, so that it
        is gone with this process."""
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
        self._limit = memory_bytes
        self._end = 0
        self.in_file = 0
        self.in_memory = 0

    def save(self, source: int, offset: int, length: int) -> tuple[Extent, ...]:
        """Copy `length` bytes at `offset` of the file with the descriptor `source`."""
        if length <= _CHUNK_BYTES and self.in_memory + length <= self._limit:
            data = os.pread(source, length, offset)
            self.in_memory += len(data)
            return (Extent(offset, data),)
        found = []
        for at in range(offset, offset + length, _CHUNK_BYTES):
            data = os.pread(source, min(_CHUNK_BYTES, offset + length - at), at)
            os.pwrite(self._file.fileno(), data, self._end)
            found.append(Extent(at, Spilled(self._end, len(data))))
            self._end += len(data)
            self.in_file += len(data)
        return tuple(found)

    def write_back(self, extents: Iterable[Extent], file: int) -> None:
        """Write the bytes of extents to their offsets in the file with the descriptor `file`."""
        for offset, kept in extents:
            if isinstance(kept, Spilled):
                os.pwrite(file, os.pread(self._file.fileno(), kept.length, kept.position), offset)
            elif isinstance(kept, Zeros):
                for at in range(offset, offset + kept.length, _CHUNK_BYTES):
                    os.pwrite(file, bytes(min(_CHUNK_BYTES, offset + kept.length - at)), at)
            else:
                os.pwrite(file, kept, offset)

    def release(self, extents: Iterable[Extent]) -> None:
        """Drop the bytes of extents."""
        for _, kept in extents:
            if isinstance(kept, Spilled):
                self.in_file -= kept.length
            elif isinstance(kept, bytes):
                self.in_memory -= len(kept)
        if self._end and not self.in_file:
            self._file.truncate(0)
            self._end = 0

    def close(self) -> None:
        """Drop all bytes, and close the file."""
        self._file.close()


class ExtentMap:
    """Extents of one file that do not overlap, in the order of their offsets."""

    def __init__(self, store: ExtentStore) -> None:
        self._store = store
        self._offsets: list[int] = []
        self._extents: list[Extent] = []

    def __iter__(self) -> Iterator[Extent]:
        return iter(self._extents)

    def __len__(self) -> int:
        return len(self._extents)

    def add(self, extent: Extent) -> None:
        """Add the parts of an extent that are not covered by others; release the covered parts."""
        at = extent.offset
        for known in self._overlapping(extent.offset, extent.end):
            if at < known.offset:
                self._insert(extent.part(at, known.offset))
            both = known.part(extent.offset, extent.end)
            self._store.release((extent.part(both.offset, both.end),))
            at = known.end
        if at < extent.end:
            self._insert(extent.part(at, extent.end))

    def remove(self, offset: int, end: int) -> None:
        """Remove and release the bytes between two offsets."""
        if end <= offset:
            return
        for known in self._overlapping(offset, end):
            place = bisect_left(self._offsets, known.offset)
            del self._offsets[place], self._extents[place]
            self._store.release((known.part(offset, end),))
            if known.offset < offset:
                self._insert(known.part(known.offset, offset))
            if end < known.end:
                self._insert(known.part(end, known.end))

    def _overlapping(self, offset: int, end: int) -> list[Extent]:
        first = max(0, bisect_right(self._offsets, offset) - 1)
        last = bisect_left(self._offsets, end)
        return [each for each in self._extents[first:last] if each.end > offset]

    def _insert(self, extent: Extent) -> None:
        place = bisect_left(self._offsets, extent.offset)
        self._offsets.insert(place, extent.offset)
        self._extents.insert(place, extent)
