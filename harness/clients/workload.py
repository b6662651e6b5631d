"""The writes of clients and their times: the record payload, the numbering of values, and the pace
(pure).

A batch payload is the record size (4 bytes, big endian) and then records of exactly that size:
value (8), tag of the partition it was meant for (4), CRC-32 over both (4), filler. A record so
says by itself what it is, and one that shows up in a foreign partition keeps its value: the
checker names it misrouted. One that cannot be understood is read as a negative value.

Values are globally unique: process * 2**32 + k, where k counts the records of that process.
"""

from __future__ import annotations

import functools
import random
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from harness.formats.history import VALUES_PER_PROCESS, RecordRun
from nemesis.formats.schedule import Workload
from node.core import batch

UNREADABLE: Final = -1
MIN_RECORD_BYTES: Final = 16

_SIZE: Final = struct.Struct(">I")
_IDENTITY: Final = struct.Struct(">qI")
_RECORD: Final = struct.Struct(">qII")
_CRC_OF_LAST_BYTE: Final = tuple(
    zlib.crc32(_IDENTITY.pack(byte, 0)) ^ zlib.crc32(_IDENTITY.pack(0, 0)) for byte in range(256)
)

_HIGHEST: Final = (1 << 63) - (1 << 32)

MAX_POLL_PARTITIONS: Final = 8


def first_value(process: int) -> int:
    """Return the first value that `process` writes; each next record has the next value."""
    return process * VALUES_PER_PROCESS


@functools.lru_cache(maxsize=20_000)
def partition_tag(partition: str) -> int:
    """Return the 4 bytes in a record that identify its partition."""
    return zlib.crc32(partition.encode())


def encode_batch(
    partition: str,
    value: int,
    count: int,
    record_bytes: int,
    produced: batch.Produced | None = None,
) -> bytes:
    """Return a producer's batch: records value .. value+count-1, each of `record_bytes` (at least
    16)."""
    assert record_bytes >= MIN_RECORD_BYTES
    payload = _payload(partition_tag(partition), value, count, record_bytes)
    return batch.build(count, payload, produced=produced)


def _payload(tag: int, value: int, count: int, record_bytes: int) -> bytes:
    filler = bytes(record_bytes - MIN_RECORD_BYTES)
    records: list[bytes] = []
    pack = _RECORD.pack
    end = value + count
    while value < end:
        # CRC is linear: values that differ in their last byte only differ by a known CRC.
        crc = zlib.crc32(_IDENTITY.pack(value & ~0xFF, tag))
        stop = min(end, (value | 0xFF) + 1)
        records += [pack(v, tag, crc ^ _CRC_OF_LAST_BYTE[v & 0xFF]) for v in range(value, stop)]
        value = stop
    return _SIZE.pack(record_bytes) + filler.join(records) + filler


def encode_record(partition: str, value: int, record_bytes: int) -> bytes:
    """Return one record by itself, for systems whose unit is the record."""
    assert record_bytes >= MIN_RECORD_BYTES
    return _payload(partition_tag(partition), value, 1, record_bytes)[_SIZE.size :]


def decode_record(data: bytes, record_bytes: int) -> int:
    """Return the value in one encoded record; UNREADABLE if it is incomplete or damaged."""
    return _values(_SIZE.pack(record_bytes) + data, 1)[0]


def record_runs(records: Iterable[tuple[int, bytes]], record_bytes: int) -> Iterator[RecordRun]:
    """Yield runs of single records: neighbours with consecutive offsets and values are one run."""
    run: RecordRun | None = None
    for offset, payload in records:
        value = decode_record(bytes(payload), record_bytes)
        if (
            run is not None
            and value != UNREADABLE
            and (offset, value) == (run.offset + run.count, run.value + run.count)
        ):
            run = RecordRun(run.offset, run.value, run.count + 1)
            continue
        if run is not None:
            yield run
        run = RecordRun(offset, value)
    if run is not None:
        yield run


def decode_batch(data: batch.BatchView) -> tuple[RecordRun, ...]:
    """Return the records of a batch as runs of consecutive values; offsets count from its base
    offset. Empty for a control batch. Never raises: a record that no client of ours wrote is a run
    of one with the value UNREADABLE."""
    if data.control:
        return ()
    return decode_payload(data.payload, data.count, data.base_offset, data.epoch)


def decode_payload(payload: bytes, count: int, base: int, epoch: int) -> tuple[RecordRun, ...]:
    """Return the records of a batch's payload as `decode_batch` does: `count` records, the first of
    them at offset `base`."""
    if len(payload) <= _LONGEST_REMEMBERED:
        found = _remembered(payload, count)
    else:
        found = _decode_payload(payload, count)
    return tuple([RecordRun(base + start, value, count, epoch) for start, value, count in found])


_LONGEST_REMEMBERED: Final = 4096
_Runs = list[tuple[int, int, int]]


def _decode_payload(payload: bytes, count: int) -> _Runs:
    """(place of the first record, its value, how many) of each run of consecutive values."""
    if len(payload) >= _SIZE.size + MIN_RECORD_BYTES:
        (size,) = _SIZE.unpack_from(payload)
        value, tag, _ = _RECORD.unpack_from(payload, _SIZE.size)
        # Nearly always the batch is what one producer wrote: writing it again is the quickest test.
        if (
            size >= MIN_RECORD_BYTES
            and len(payload) == _SIZE.size + count * size
            and 0 <= value < _HIGHEST
            and payload == _payload(tag, value, count, size)
        ):
            return [(0, value, count)]
    values = _values(payload, count)
    runs: _Runs = []
    start = 0
    for index in range(1, len(values) + 1):
        joined = (
            index < len(values)
            and values[index] == values[index - 1] + 1
            and values[index - 1] != UNREADABLE
        )
        if not joined:
            runs.append((start, values[start], index - start))
            start = index
    return runs


# Each batch is read by several consumers and lies on several replicas: decoded once it is enough.
_remembered = functools.lru_cache(maxsize=2048)(_decode_payload)


def _values(payload: bytes, count: int) -> list[int]:
    """Return the value of each record, UNREADABLE for an incomplete or damaged one."""
    size = _SIZE.unpack_from(payload)[0] if len(payload) >= _SIZE.size else 0
    if size < MIN_RECORD_BYTES or len(payload) != _SIZE.size + count * size:
        return [UNREADABLE] * count
    values = []
    end_of_identity = _IDENTITY.size
    for place in range(_SIZE.size, len(payload), size):
        value, _, crc = _RECORD.unpack_from(payload, place)
        sound = value >= 0 and crc == zlib.crc32(payload[place : place + end_of_identity])
        values.append(value if sound else UNREADABLE)
    return values


class SendPlan:
    """The partitions, batch sizes and pauses of a producer thread.

    It goes through all partitions in rounds, each in another order, so that every partition is
    written to equally often. With `zipf` the n-th partition is drawn 1/n times as often as the
    first; with `batch_most` batches differ in size."""

    def __init__(
        self,
        partitions: Sequence[str],
        interval_us: int,
        rng: random.Random,
        *,
        zipf: bool = False,
        batch_most: int = 0,
    ) -> None:
        """`interval_us` is the mean pause between sends; 0 sends as fast as answers come."""
        self._partitions = list(partitions)
        self._interval_us = interval_us
        self._rng = rng
        self._batch_most = batch_most
        self._weights = [1 / n for n in range(1, len(self._partitions) + 1)] if zipf else None
        self._round: list[str] = []

    def records(self, batch: int) -> int:
        """Return how many records the next batch has: `batch`, or with `batch_most` a size from
        `batch` to that. Each size has the same share of all records, so that most batches are
        small."""
        if self._batch_most <= batch:
            return batch
        size: float = batch * (self._batch_most / batch) ** self._rng.random()
        return min(self._batch_most, round(size))

    def partition(self) -> str:
        if self._weights is not None:
            return self._rng.choices(self._partitions, self._weights)[0]
        if not self._round:
            self._round = self._rng.sample(self._partitions, len(self._partitions))
        return self._round.pop()

    def pause_us(self) -> int:
        """Return the time from one send to the next: the mean interval, plus or minus up to half of
        it."""
        if self._interval_us == 0:
            return 0
        return round(self._interval_us * self._rng.uniform(0.5, 1.5))


def send_plan(workload: Workload, partitions: Sequence[str], rng: random.Random) -> SendPlan:
    """Return the plan of a producer thread of the workload."""
    return SendPlan(
        partitions,
        send_interval_us(workload),
        rng,
        zipf=workload.spread == "zipf",
        batch_most=workload.batch_most,
    )


def send_interval_us(workload: Workload) -> int:
    """Return the mean time between sends of one of a client's `in_flight` threads; 0: no limit."""
    if workload.rate == 0:
        return 0
    return round(1_000_000 * workload.in_flight / workload.rate)


def polled_partitions(partitions: Sequence[str], index: int, consumers: int) -> tuple[str, ...]:
    """Return the partitions that consumer `index` of `consumers` reads, in the order it reads
    them.

    Each partition is read by several consumers if there are enough of them, so that two
    witnesses can disagree.
    """
    total = len(partitions)
    share = -(-total // max(1, consumers))
    width = min(total, max(share, MAX_POLL_PARTITIONS))
    return tuple(partitions[(index * share + step) % total] for step in range(width))
