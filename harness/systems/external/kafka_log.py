"""The log of a partition as Kafka's brokers write it, in each of the three formats of records.

Messages (0 before 0.10, 1 before 0.11) stand one by one, records since then in batches."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

_ENTRY: Final = struct.Struct(">qi")
"""Offset, size of the rest."""
_MESSAGE: Final = struct.Struct(">Ibb")
"""Checksum of the rest, magic, attributes."""
_BATCH: Final = struct.Struct(">ibIhiqqqhii")
"""Leader epoch, magic, checksum of the rest, attributes, last offset delta, two times, producer and
its epoch, sequence number, count of records."""
_BATCHES, _COMPRESSED, _CONTROL = 2, 7, 32


def _crc32c_of(value: int) -> int:
    for _ in range(8):
        value = value >> 1 ^ 0x82F63B78 * (value & 1)
    return value


_CRC32C: Final = tuple(map(_crc32c_of, range(256)))


def read_log(folder: Path, partition: str) -> Iterator[tuple[int, bytes]] | None:
    """Return the records of a partition on a stopped broker. None if it has no replica. `folder` is
    its `log.dirs`. Raises ValueError for damaged files, and for records that are not below the high
    watermark that it stored: a broker stores it from time to time and when it stops in peace, so
    whether they are committed is unknown."""
    log = folder / f"{partition}-0"
    if not log.is_dir():
        return None
    checkpoint = folder / "replication-offset-checkpoint"
    marks = checkpoint.read_text().splitlines()[2:]
    ends = {name: int(end) for name, number, end in map(str.split, marks) if number == "0"}
    files = sorted(log.glob("*.log"))
    if partition not in ends and any(file.stat().st_size for file in files):
        raise ValueError(f"{checkpoint} has no high watermark of {partition}, which has records")
    return _below(ends.get(partition, 0), files)


def _below(end: int, files: Sequence[Path]) -> Iterator[tuple[int, bytes]]:
    for file in files:
        for offset, value in _read_segment(file):
            if offset >= end:
                raise ValueError(
                    f"{file} has offset {offset}, above the stored high watermark {end}"
                )
            yield offset, value


def _read_segment(file: Path) -> Iterator[tuple[int, bytes]]:
    data, at = file.read_bytes(), 0
    while at < len(data):
        try:
            offset, size = _ENTRY.unpack_from(data, at)
            start, at = at + _ENTRY.size, at + _ENTRY.size + size
            if not 0 < size <= len(data) - start:
                raise ValueError
            rest = data[start:at]
            found = _in_batch(offset, rest) if rest[4] == _BATCHES else _in_message(offset, rest)
        except (struct.error, ValueError, IndexError):
            raise ValueError(f"{file} has an unreadable record at or before byte {at}") from None
        yield from found


def _in_message(offset: int, rest: bytes) -> list[tuple[int, bytes]]:
    crc, magic, attributes = _MESSAGE.unpack_from(rest)
    if magic not in (0, 1) or attributes & _COMPRESSED or zlib.crc32(rest[4:]) != crc:
        raise ValueError
    key = _MESSAGE.size + 8 * magic
    # Neither key nor value has more than its size before it.
    value = key + 4 + max(0, *struct.unpack_from(">i", rest, key))
    return [(offset, rest[value + 4 :])]


def _in_batch(offset: int, rest: bytes) -> list[tuple[int, bytes]]:
    _, _, crc, attributes, *_, count = _BATCH.unpack_from(rest)
    if attributes & _COMPRESSED or _crc32c(rest[9:]) != crc:
        raise ValueError
    found, at = [], _BATCH.size
    for _ in range(0 if attributes & _CONTROL else count):
        size, at = _varint(rest, at)
        end = at + size
        _, at = _varint(rest, at + 1)
        delta, at = _varint(rest, at)
        key, at = _varint(rest, at)
        length, at = _varint(rest, at + max(0, key))
        value, at = rest[at : at + max(0, length)], end
        found.append((offset + delta, value))
    if found and at != len(rest):
        raise ValueError
    return found


def unsigned(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of several bytes, and where it ends. Raises IndexError."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a signed number of several bytes, and where it ends."""
    value, at = unsigned(data, at)
    return value >> 1 ^ -(value & 1), at


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC32C[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF
