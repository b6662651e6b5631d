"""What a stopped node has on disk, log by log, for the harness to write to `logs/<node>.jsonl`.

Changes nothing: the journal is replayed in memory only. Damage is reported and passed over, never
an exception: after a run this is the evidence.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

from node.core import batch as batches
from node.core.batch import EMPTY_CHAIN, HEADER, BatchView
from node.errors import StorageError, WireError
from node.runtime import journal
from node.runtime.datadir import DataDir
from node.runtime.overlay import Overlay
from node.runtime.store import stored
from node.runtime.tables import CHAIN_BYTES, Tables

HW_KEY: Final = "hw/"
"""Before a partition's name: its HW checkpoint, 8 bytes big endian."""
EPOCHS_KEY: Final = "epochs/"
"""Before a partition's name: its epoch cache, a msgpack list of [epoch, start offset]."""

_epochs = msgspec.msgpack.Decoder(tuple[tuple[int, int], ...])


class BatchDump(msgspec.Struct, frozen=True, kw_only=True):
    """One stored batch.

    `stored_chain` is what the replica kept beside it, `chain` the same recomputed from the bytes of
    the log up to here (8 bytes each). `problem` is "" or says what is wrong; a batch that cannot be
    read at all has `count` 0, and the chain goes on from its stored one. `control`: it is a
    leader's own and holds no client's records.
    """

    base_offset: int
    count: int
    epoch: int
    stored_chain: bytes
    chain: bytes
    payload: bytes
    problem: str = ""
    control: bool = False


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


def dump_logs(data_dir: str | Path) -> Iterator[LogDump]:
    """All logs of the stopped node that has `data_dir`, sorted by partition.

    Raises StorageError if there is no store, if it cannot be opened at all, or if a process has it
    open.
    """
    with DataDir(data_dir, create=False) as dir_:
        tables = Tables(dir_.path, map_bytes=1 << 20, map_limit=1 << 40, readonly=True)
        with closing(tables):
            overlay = _replayed(dir_.journal, tables)
            names = set(tables.ids)
            for name, log in overlay.logs.items():
                if log.present is not None:
                    (names.add if log.present else names.discard)(name)
            for name in sorted(names):
                yield _log(tables, overlay, name)


def _replayed(path: Path, tables: Tables) -> Overlay:
    overlay = Overlay()
    replay = journal.read(path)
    if replay.generation == tables.number("generation"):
        for turn in replay.turns:
            for op in turn:
                overlay.apply(op)
    return overlay


def _log(tables: Tables, overlay: Overlay, name: str) -> LogDump:
    start, leo, problems = -1, 0, []
    try:
        for base, head, _ in stored(tables, (overlay,), name, whole=False):
            start = base if start < 0 else start
            if len(head) >= CHAIN_BYTES + HEADER.size:
                leo = base + int(HEADER.unpack_from(head, CHAIN_BYTES)[5])
    except StorageError as error:
        problems.append(str(error))
    values = {}
    for key in (HW_KEY + name, EPOCHS_KEY + name):
        found = overlay.values.get(key)
        values[key] = tables.value(key) if found is None else found
    hw, epochs = values[HW_KEY + name], values[EPOCHS_KEY + name]
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
        batches=_batches(tables, overlay, name),
        problem="; ".join(problems),
    )


def _batches(tables: Tables, overlay: Overlay, name: str) -> Iterator[BatchDump]:
    chain = EMPTY_CHAIN
    try:
        for base, both, _ in stored(tables, (overlay,), name, whole=True):
            one = _batch(base, both[:CHAIN_BYTES], both[CHAIN_BYTES:], chain)
            chain = one.chain
            yield one
    except StorageError as error:
        yield BatchDump(
            base_offset=-1, count=0, epoch=-1, stored_chain=chain, chain=chain, payload=b"",
            problem=f"the rest cannot be read: {error}",
        )  # fmt: skip


def _batch(base: int, stored_chain: bytes, data: bytes, previous: bytes) -> BatchDump:
    """Judge one stored batch. One whose checksum alone is wrong is still read and hashed."""
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
            base_offset=base, count=0, epoch=-1, stored_chain=stored_chain, chain=chain,
            payload=data, problem=problems[-1] if problems else "empty",
        )  # fmt: skip
    chain = batches.chain(previous, found)
    if found.base_offset != base:
        problems.append(f"stored at {base} but stamped {found.base_offset}")
    if chain != stored_chain:
        problems.append("stored chain differs from the recomputed one")
    return BatchDump(
        base_offset=base, count=found.count, epoch=found.epoch, stored_chain=stored_chain,
        chain=chain, payload=found.payload, problem="; ".join(problems), control=found.control,
    )  # fmt: skip
