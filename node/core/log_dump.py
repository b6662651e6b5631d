"""The contents of a replica's log on disk, batch by batch, from any kind of disk. Pure.

After a run the dump is evidence for the checker, so damage is reported in it and never raised."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Final

import msgspec

from node.core import batch as batches
from node.core.batch import HEADER, BatchView
from node.core.log import ORIGIN, START_KEY, LogStart, decoded
from node.formats.bounds import Number, Offset
from node.formats.errors import StorageError, WireError
from node.formats.log_dump import BatchDump, LogDump

HW_KEY: Final = "hw/"
"""Before a partition's name: its HW checkpoint, 8 bytes big endian."""
EPOCHS_KEY: Final = "epochs/"
"""Before a partition's name: its epoch cache, a msgpack list of [epoch, start offset]."""

CHAIN_BYTES: Final = 8
MAX_EPOCHS: Final = 1 << 16
_Epochs = Annotated[tuple[tuple[Number, Offset], ...], msgspec.Meta(max_length=MAX_EPOCHS)]
_NO_EPOCHS: Final[tuple[tuple[int, int], ...]] = ()
_epochs = msgspec.msgpack.Decoder(_Epochs)


def end_of(base: int, header: bytes, size: int) -> int:
    """Return the end offset of the stored batch of `size` bytes that begins at `base`, by its
    header; `base` if the header is cut short or its record count does not fit the size."""
    if len(header) < HEADER.size:
        return base
    count = int(HEADER.unpack_from(header)[5])
    return base + count if count <= max(1, size - HEADER.size) else base


def start_of(name: str, value: Callable[[str], bytes | None]) -> LogStart:
    """Return the start of the log of partition `name`; ORIGIN (offset 0) if the stored start is
    damaged. `value` returns the value stored under a key."""
    try:
        return decoded(START_KEY + name, value(START_KEY + name))
    except StorageError:
        return ORIGIN


def log_dump(
    name: str,
    stored: Callable[..., Iterator[tuple[int, bytes, int]]],
    value: Callable[[str], bytes | None],
) -> LogDump:
    """Return the dump of the log of partition `name`. `stored(whole=...)` yields its batches: base
    offset, prefix hash with batch (without `whole` perhaps only up to the batch's header), and the
    length of both. `value` returns the value stored under a key (high watermark, epoch cache)."""
    problems = []
    begins = start_of(name, value)
    start, leo = -1, begins.offset
    try:
        for base, head, size in stored(whole=False):
            start = base if start < 0 else start
            leo = end_of(base, head[CHAIN_BYTES:], size - CHAIN_BYTES)
    except StorageError as error:
        problems.append(str(error))
    hw, cache = -1, _NO_EPOCHS
    try:
        if (saved := value(HW_KEY + name)) is not None:
            hw = msgspec.convert(int.from_bytes(saved, "big"), Offset)
    except (StorageError, msgspec.MsgspecError) as error:
        problems.append(f"high watermark not understood: {error}")
    try:
        epochs = value(EPOCHS_KEY + name)
        cache = _epochs.decode(epochs) if epochs else _NO_EPOCHS
    except (StorageError, msgspec.MsgspecError) as error:
        problems.append(f"epoch cache not understood: {error}")
    return LogDump(
        partition=name,
        start=begins.offset if start < 0 else start,
        leo=leo,
        hw=hw,
        epochs=cache,
        batches=_batch_dumps(stored(whole=True), begins.chain),
        problem="; ".join(problems),
    )


def _batch_dumps(stored: Iterator[tuple[int, bytes, int]], chain: bytes) -> Iterator[BatchDump]:
    try:
        for base, both, _ in stored:
            one = batch_dump(base, both[:CHAIN_BYTES], both[CHAIN_BYTES:], chain)
            chain = one.chain
            yield one
    except StorageError as error:
        yield BatchDump(
            base_offset=-1,
            stored_chain=chain,
            chain=chain,
            problem=f"the rest cannot be read: {error}",
        )


def batch_dump(base: int, stored_chain: bytes, data: bytes, previous: bytes) -> BatchDump:
    """Return what one stored batch says and what is wrong with it. `previous` is the recomputed
    prefix hash before it, `stored_chain` the stored one after it. A batch with a wrong checksum but
    a sound layout is still read and hashed."""
    problems = []
    found: BatchView | None = None
    for check in (True, False):
        try:
            found = batches.view(data, check_crc=check)
            break
        except WireError as error:
            problems.append(str(error))
    # What is damaged may say any count, and whoever reads on reserves memory for it.
    if found is None or (problems and found.count > max(1, len(found.payload))):
        chain = stored_chain if len(stored_chain) == CHAIN_BYTES else previous
        return BatchDump(
            base_offset=base,
            stored_chain=stored_chain,
            chain=chain,
            payload=data,
            problem=problems[-1] if problems else "empty",
            sound=False,
        )
    sound = not problems
    chain = batches.chain(previous, found)
    if found.base_offset != base:
        problems.append(f"stored at {base} but stamped {found.base_offset}")
    if chain != stored_chain:
        problems.append("stored chain differs from the recomputed one")
    return BatchDump(
        base_offset=base,
        count=found.count,
        epoch=found.epoch,
        stored_chain=stored_chain,
        chain=chain,
        payload=found.payload,
        problem="; ".join(problems),
        control=found.control,
        produced=found.produced,
        sound=sound,
    )
