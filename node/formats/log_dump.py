"""A replica's log as read from its disk, for the files `logs/<node>.jsonl` of a run."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec


class BatchDump(msgspec.Struct, frozen=True, kw_only=True):
    """One stored batch.

    `stored_chain` is what the replica kept beside it, `chain` the same recomputed from the bytes of
    the log up to here (8 bytes each). `problem` is "" or says what is wrong; a batch that cannot be
    read at all has `count` 0, and the chain goes on from its stored one. One that is not `sound`
    fails its checksum. `control`: it is a leader's own and holds no client's records. `produced`:
    its idempotent producer's id and epoch, and the sequence of its first record.
    """

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
    """One partition's log. `start` and `leo` are the first offset and the one after the last; `hw`
    is the checkpointed high watermark, -1 if there is none; `epochs` is the epoch cache as kept.

    `batches` reads on demand and must be used up before the next log is asked for.
    """

    partition: str
    start: int
    leo: int
    hw: int
    epochs: tuple[tuple[int, int], ...]
    batches: Iterator[BatchDump]
    problem: str = ""
