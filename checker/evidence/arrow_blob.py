"""Facts on their way to the group they belong to: columns in one piece, not rows.

An Arrow blob is what one source knows of one kind about one (run, partition), as Arrow's own bytes.
Spark moves a few such rows where it would have to move, sort and convert millions, and the group
gets columns that it can use as they are. Columns that say nothing are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checker.evidence.facts import NUMBERS, UNKNOWN, Kind

SPARK_SCHEMA: Final = (
    "run int, partition string, offset_range int, kind tinyint, rows bigint, body binary"
)
SCHEMA: Final = pa.schema(
    [
        ("run", pa.int32()),
        ("partition", pa.string()),
        ("offset_range", pa.int32()),
        ("kind", pa.int8()),
        ("rows", pa.int64()),
        ("body", pa.binary()),
    ]
)

# Compressing small blobs costs more than it saves.
_COMPRESS_FROM_ROWS: Final = 4096
_KEYS: Final = frozenset({"run", "partition", "kind"})


class ArrowBlob(NamedTuple):
    """Facts of one kind about one (run, partition)."""

    run: int
    partition: str
    kind: Kind
    facts: pa.RecordBatch


def arrow_blobs(blocks: Iterable[pa.RecordBatch]) -> Iterator[ArrowBlob]:
    """Blocks of facts, taken apart by partition.

    Each block is of one run and one kind; it may lack columns of which nothing is known.
    """
    for block in blocks:
        if not block.num_rows:
            continue
        run, kind = block.column("run")[0].as_py(), Kind(block.column("kind")[0].as_py())
        kept = block.select([n for n in block.schema.names if _says_something(block, n)])
        for partition, rows in _by_partition(block.column("partition")):
            facts = kept if rows is None else kept.take(rows)
            yield ArrowBlob(run, partition, kind, facts)


def _by_partition(column: pa.Array) -> Iterator[tuple[str, pa.Array | None]]:
    """The rows of each partition, in their order; None stands for all of them."""
    codes = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    numbers = codes.indices.to_numpy(zero_copy_only=False)
    names = codes.dictionary.to_pylist()
    # Sixteen bits are sorted by counting.
    small = numbers.astype(np.int16) if len(names) < 1 << 15 else numbers
    order = np.argsort(small, kind="stable")
    counts = np.bincount(numbers, minlength=len(names))
    ends = np.cumsum(counts)
    present = np.flatnonzero(counts).tolist()
    if len(present) == 1:
        yield names[present[0]], None
        return
    for code in present:
        yield names[code], pa.array(order[ends[code] - counts[code] : ends[code]])


def _says_something(block: pa.RecordBatch, name: str) -> bool:
    """Whether a column holds anything but the value that stands for unknown."""
    if name in _KEYS:
        return False
    column = block.column(name)
    if name in NUMBERS:
        found = pc.min_max(column).as_py()
        return bool(found["min"] != UNKNOWN[name] or found["max"] != UNKNOWN[name])
    return True


def packed(found: Iterable[ArrowBlob], part: int = -1) -> Iterator[pa.RecordBatch]:
    """Parcels as rows of `SCHEMA`, one a batch: each may be large. `part` is the range of offsets
    they are of, -1 for all."""
    for blob in found:
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([blob.run], pa.int32()),
                pa.array([blob.partition]),
                pa.array([part], pa.int32()),
                pa.array([int(blob.kind)], pa.int8()),
                pa.array([blob.facts.num_rows], pa.int64()),
                pa.array([_bytes(blob.facts)], pa.binary()),
            ],
            schema=SCHEMA,
        )


def _bytes(facts: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    compression = "lz4" if facts.num_rows >= _COMPRESS_FROM_ROWS else None
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, facts.schema, options=options) as writer:
        writer.write_batch(facts)
    made: bytes = sink.getvalue().to_pybytes()
    return made


def unpacked(rows: pa.Table) -> dict[Kind, list[pa.RecordBatch]]:
    """The facts of the rows of one (run, partition), by kind."""
    found: dict[Kind, list[pa.RecordBatch]] = {}
    for kind, body in zip(
        rows.column("kind").to_pylist(), _buffers(rows.column("body")), strict=True
    ):
        with pa.ipc.open_stream(body) as reader:
            found.setdefault(Kind(kind), []).extend(reader)
    return found


def _buffers(column: pa.ChunkedArray) -> Iterator[pa.Buffer]:
    """The bytes of each row, not copied."""
    for chunk in column.chunks:
        for value in chunk:
            yield value.as_buffer()
