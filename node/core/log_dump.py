"""What a replica's log on disk comes to, batch by batch, whatever the disk is. Pure.

Damage is reported and passed over, never an exception: after a run this is the evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from node.core import batch as batches
from node.core.batch import BatchView
from node.formats.errors import WireError
from node.formats.log_dump import BatchDump, LogDump

HW_KEY: Final = "hw/"
"""Before a partition's name: its HW checkpoint, 8 bytes big endian."""
EPOCHS_KEY: Final = "epochs/"
"""Before a partition's name: its epoch cache, a msgpack list of [epoch, start offset]."""

CHAIN_BYTES: Final = 8
_epochs = msgspec.msgpack.Decoder(tuple[tuple[int, int], ...])


def log_dump(
    name: str,
    start: int,
    leo: int,
    value: Callable[[str], bytes | None],
    found: Iterator[BatchDump],
    problem: str = "",
) -> LogDump:
    """A log from its ends and batches; `value` gives the small values kept beside it."""
    hw, epochs = value(HW_KEY + name), value(EPOCHS_KEY + name)
    problems = [problem] if problem else []
    cache: tuple[tuple[int, int], ...] = ()
    try:
        cache = _epochs.decode(epochs) if epochs else ()
    except msgspec.DecodeError as error:
        problems.append(f"epoch cache not understood: {error}")
    return LogDump(
        partition=name,
        start=max(start, 0),
        leo=leo,
        hw=int.from_bytes(hw, "big") if hw else -1,
        epochs=cache,
        batches=found,
        problem="; ".join(problems),
    )


def batch_dump(base: int, stored_chain: bytes, data: bytes, previous: bytes) -> BatchDump:
    """Judge one stored batch, given the recomputed hash before it. One whose checksum alone is
    wrong is still read and hashed."""
    problems = []
    found: BatchView | None = None
    for check in (True, False):
        try:
            found = batches.view(data, check_crc=check)
            break
        except WireError as error:
            problems.append(str(error))
    if found is None:
        chain = stored_chain if len(stored_chain) == CHAIN_BYTES else previous
        return BatchDump(
            base_offset=base,
            count=0,
            epoch=-1,
            stored_chain=stored_chain,
            chain=chain,
            payload=data,
            problem=problems[-1] if problems else "empty",
        )
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
    )
