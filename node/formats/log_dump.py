"""A replica's log as read from its disk, for the files `logs/<node>.jsonl` of a run."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec


class BatchDump(msgspec.Struct, frozen=True, kw_only=True):
    """One stored batch of a log.

    `stored_chain` is the prefix hash that the replica stored beside the batch, `chain` the same
    hash recomputed from the bytes of the log up to this batch (8 bytes each). `problem` says what
    is wrong, "" if nothing. A batch that cannot be read at all has `count` 0, and its
    `stored_chain` is used to compute the next hash. A batch that is not `sound` fails its checksum.
    `control`: the batch is a leader's own and has no client's records. `produced` is the id and
    epoch of its idempotent producer, and the sequence of its first record; None if it has none."""

    base_offset: int
    count: int = 0
    epoch: int = -1
    stored_chain: bytes
    chain: bytes
    payload: bytes = b""
    problem: str = ""
    control: bool = False
    produced: tuple[int, int, int] | None = None
    sound: bool = True


class LogDump(msgspec.Struct, frozen=True, kw_only=True):
    """One partition's log on one disk. `start` is its first offset and `leo` its log end; `hw` is
    the checkpointed high watermark, -1 if there is none; `epochs` are (epoch, start offset) pairs
    of the stored epoch cache; `problem` says what is wrong with the log as a whole, "" if nothing.
    `batches` reads on demand and must be exhausted before the next log is read."""

    partition: str
    start: int
    leo: int
    hw: int
    epochs: tuple[tuple[int, int], ...]
    batches: Iterator[BatchDump]
    problem: str = ""
