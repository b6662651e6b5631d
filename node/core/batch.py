"""The record batch: unit of append, replication, storage and truncation, opaque to the broker.

Layout (big endian): base offset (8 bytes), leader epoch (4), version (1), payload length (4),
CRC-32 (4) over count and payload, record count (4), payload. A producer leaves base offset and
epoch 0; the leader stamps both, so the checksum does not cover them. The top bit of the version
marks a control batch: a leader's own, which clients skip. Its checksum covers the version too.

Version 2 is a batch of an idempotent producer: producer id (8), producer epoch (4) and the sequence
of its first record (4) stand before the payload, and are part of its length and checksum; the
checksum covers the version too. Batches of version 1 do not name their producer.

Each replica computes a chained prefix hash: h(previous hash, leader epoch, count, all that follows
the header). Two logs agree up to a batch end iff their hashes there are equal. The hash is never
sent."""

from __future__ import annotations

import functools
import hashlib
import struct
import zlib
from collections.abc import Sequence
from typing import Final, NamedTuple

from node.formats.errors import WireError
from node.formats.wire_bounds import MAX_OFFSET, MAX_PRODUCER_EPOCH, MAX_SEQUENCE

BATCH_VERSION: Final = 1
IDEMPOTENT_VERSION: Final = 2
CONTROL_BIT: Final = 0x80
HEADER: Final = struct.Struct(">qiBIII")
NO_EPOCH: Final = -1
"""The leader epoch of a batch in the message format before KIP-101."""
_HEADER_BYTES: Final = HEADER.size
_COUNT: Final = struct.Struct(">I")
_STAMP: Final = struct.Struct(">qi")
_CHAIN: Final = struct.Struct(">8siI")
_VERSION_AT: Final = _STAMP.size
MAX_PAYLOAD: Final = 16 << 20
EMPTY_CHAIN: Final = bytes(8)
_PRODUCED: Final = struct.Struct(">qii")


class Produced(NamedTuple):
    """The idempotent producer named by a batch: its id and epoch, and the sequence of the first
    record, which counts the records of that producer, epoch and partition from 0."""

    producer: int
    epoch: int
    sequence: int


class BatchView:
    """One batch inside a buffer: its header fields and its bytes, checked when made. `end` is the
    offset after the last record, `produced` None unless the producer is idempotent."""

    __slots__ = ("base_offset", "control", "count", "data", "end", "epoch", "produced")

    def __init__(
        self,
        base_offset: int,
        epoch: int,
        count: int,
        data: bytes,
        *,
        control: bool = False,
        produced: Produced | None = None,
    ) -> None:
        self.base_offset = base_offset
        self.epoch = epoch
        self.count = count
        self.end = base_offset + count
        self.data = data
        self.control = control
        self.produced = produced

    @property
    def payload(self) -> bytes:
        """The records as bytes, as the producer wrote them."""
        return self.data[_HEADER_BYTES if self.produced is None else _RECORDS_AT :]


_RECORDS_AT: Final = _HEADER_BYTES + _PRODUCED.size
"""Where the payload of a batch of version 2 begins."""


def build(
    count: int, payload: bytes, *, control: bool = False, produced: Produced | None = None
) -> bytes:
    """Return a producer's batch of `count` records, or a leader's `control` batch, not yet stamped
    with a base offset and a leader epoch."""
    version = BATCH_VERSION
    if control:
        version |= CONTROL_BIT
    elif produced is not None:
        version, payload = IDEMPOTENT_VERSION, _PRODUCED.pack(*produced) + payload
    return HEADER.pack(0, 0, version, len(payload), _crc(version, count, payload), count) + payload


def produced_by(data: bytes, at: int = 0) -> Produced | None:
    """Return the idempotent producer that the batch at byte `at` of `data` names; None if its
    producer is not idempotent."""
    version = data[at + _VERSION_AT]
    if version != IDEMPOTENT_VERSION or len(data) < at + _RECORDS_AT:
        return None
    return Produced(*_PRODUCED.unpack_from(data, at + _HEADER_BYTES))


def _crc(version: int, count: int, payload: bytes) -> int:
    head = _COUNT.pack(count) if version == BATCH_VERSION else _COUNT.pack(count) + bytes([version])
    return zlib.crc32(payload, zlib.crc32(head))


def stamp(batch: bytes, base_offset: int, epoch: int) -> bytes:
    """Return the bytes of a batch with its base offset and leader epoch, which only the leader
    decides."""
    return _STAMP.pack(base_offset, epoch) + batch[_STAMP.size :]


def placed(batch: BatchView, base_offset: int, epoch: int) -> BatchView:
    """Return a batch stamped with its base offset and leader epoch."""
    data = stamp(batch.data, base_offset, epoch)
    return BatchView(
        base_offset, epoch, batch.count, data, control=batch.control, produced=batch.produced
    )


def view(data: bytes, *, check_crc: bool = True) -> BatchView:
    """Read exactly one batch. Raises WireError on a wrong version, length, count or checksum."""
    batches = split(data, check_crc=check_crc)
    if len(batches) != 1:
        raise WireError(f"expected one batch, found {len(batches)}")
    return batches[0]


def split(data: bytes, *, check_crc: bool = True) -> Sequence[BatchView]:
    """Read batches laid end to end. Raises WireError on the first that is not whole and sound."""
    if check_crc and len(data) <= _LONGEST_REMEMBERED:
        return _split_remembered(data, True)
    return _split(data, check_crc)


_LONGEST_REMEMBERED: Final = 4096
"""Bytes. In a simulated world each node and each reader is sent the same short batches: there they
are checked and hashed once."""
_MOST_REMEMBERED: Final = 512


def _split(data: bytes, check_crc: bool) -> tuple[BatchView, ...]:
    found: list[BatchView] = []
    position, size = 0, len(data)
    while position < size:
        if size - position < _HEADER_BYTES:
            raise WireError("batch header cut short")
        base, epoch, version, length, crc, count = HEADER.unpack_from(data, position)
        if version & ~CONTROL_BIT != BATCH_VERSION and version != IDEMPOTENT_VERSION:
            raise WireError(f"batch version {version}, expected {BATCH_VERSION}")
        end = position + _HEADER_BYTES + length
        records = length - _PRODUCED.size if version == IDEMPOTENT_VERSION else length
        # A record takes a byte at least, so a count reserves no more than the batch itself did.
        fits = records >= 0 and length <= MAX_PAYLOAD and end <= size
        if not fits or not 1 <= count <= max(1, records):
            raise WireError(f"a batch of {count} records in {length} bytes does not fit its data")
        if epoch < NO_EPOCH or not 0 <= base <= MAX_OFFSET:
            raise WireError(f"batch with offset {base} and leader epoch {epoch}: out of range")
        whole = data if position == 0 and end == size else data[position:end]
        if check_crc and crc != _crc(version, count, whole[_HEADER_BYTES:]):
            raise WireError("batch checksum does not match")
        control, produced = bool(version & CONTROL_BIT), produced_by(whole)
        if produced is not None:
            _check_produced(produced, count)
        found.append(BatchView(base, epoch, count, whole, control=control, produced=produced))
        position = end
    return tuple(found)


_split_remembered: Final = functools.lru_cache(maxsize=_MOST_REMEMBERED)(_split)


def _check_produced(produced: Produced, count: int) -> None:
    """Refuse numbers out of range, or that leave no room for the records of the batch."""
    within = 0 <= produced.producer <= MAX_OFFSET and 0 <= produced.epoch <= MAX_PRODUCER_EPOCH
    if not within or not 0 <= produced.sequence <= MAX_SEQUENCE - count:
        raise WireError(
            f"batch of producer {produced.producer}, epoch {produced.epoch}, "
            f"sequence {produced.sequence}: one of these is out of range"
        )


def damage(data: bytes, base_offset: int, previous: bytes | None, stored_chain: bytes) -> str:
    """Return why the bytes of a stored batch are not what was written at `base_offset`; "" if they
    are. `previous` is the prefix hash before the batch (None: not known, the log begins later),
    `stored_chain` the prefix hash that was stored beside it."""
    try:
        found = view(data)
    except WireError as error:
        return str(error)
    if found.base_offset != base_offset:
        return f"it is stamped with offset {found.base_offset}"
    if previous is not None and chain(previous, found) != stored_chain:
        return "the prefix hash does not match"
    return ""


def chain(previous: bytes, batch: BatchView) -> bytes:
    """Return the prefix hash after `batch`, given the one before it (8 bytes each)."""
    assert len(previous) == 8
    if len(batch.data) <= _LONGEST_REMEMBERED:
        return _chain_remembered(previous, batch.epoch, batch.count, batch.data)
    return _chain(previous, batch.epoch, batch.count, batch.data)


def _chain(previous: bytes, epoch: int, count: int, data: bytes) -> bytes:
    head = _CHAIN.pack(previous, epoch, count)
    digest = hashlib.blake2b(head, digest_size=8, usedforsecurity=False)
    digest.update(data[_HEADER_BYTES:])
    return digest.digest()


_chain_remembered: Final = functools.lru_cache(maxsize=_MOST_REMEMBERED)(_chain)
