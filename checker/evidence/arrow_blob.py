"""Facts on their way to the group they belong to: columns in one piece, not rows.

An Arrow blob is what one source knows of one kind about one (run, partition), as Arrow's own bytes.
Spark moves a few such rows where it would have to move, sort and convert millions, and the group
gets columns that it can use as they are. Columns that say nothing are left out.

Where all tasks are on one machine, large blobs do not pass through Spark at all: they are in files
of a folder (`BlobFile`), which the tasks that need them map into memory, and Spark moves where they
are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checker.evidence.facts import I64, NUMBERS, UNKNOWN, Kind
from checker.evidence.sorting import is_sorted, joined, order_of

SPARK_SCHEMA: Final = "run int, partition string, kind tinyint, rows bigint, body binary"
SCHEMA: Final = pa.schema(
    [
        ("run", pa.int32()),
        ("partition", pa.string()),
        ("kind", pa.int8()),
        ("rows", pa.int64()),
        ("body", pa.binary()),
    ]
)

# Compressing small blobs costs more than it saves, and so does a file of them.
_COMPRESS_FROM_ROWS: Final = 4096
_FILED_FROM_ROWS: Final = 4096
_ALIGNMENT: Final = 64
# What begins the bytes of a blob that is in a file; Arrow's own begin otherwise.
_ELSEWHERE: Final = b"in file "
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
        names, ends, order = _by_partition(block, kind)
        if order is None:
            facts = kept
        else:
            columns = [taken(column, order) for column in kept.columns]
            facts = pa.RecordBatch.from_arrays(columns, names=kept.schema.names)
        for partition, begin, end in zip(names, [0, *ends[:-1]], ends, strict=True):
            if begin < end:
                yield ArrowBlob(run, partition, kind, facts.slice(begin, end - begin))


def _by_partition(block: pa.RecordBatch, kind: Kind) -> tuple[list[str], list[int], I64 | None]:
    """The partitions of a block, where the rows of each end once they are in the order given, and
    that order; None for the order they are in. Reads are put in the order of process as well."""
    column = block.column("partition")
    column = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    codes: I64 = column.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    names = column.dictionary.to_pylist()
    ends = np.cumsum(np.bincount(codes, minlength=len(names))).tolist()
    keys = [codes]
    if kind is Kind.READ and "process" in block.schema.names:
        keys.append(block.column("process").to_numpy(zero_copy_only=False))
    if is_sorted(keys):
        return names, ends, None
    key = joined(keys)
    if key is not None and key.max() < 1 << 16:
        # Sixteen bits are sorted by counting.
        return names, ends, np.argsort(key.astype(np.uint16), kind="stable")
    return names, ends, order_of(keys)


def taken(column: pa.Array, order: I64) -> pa.Array:
    """The rows of a column in this order."""
    if pa.types.is_dictionary(column.type):
        return pa.DictionaryArray.from_arrays(taken(column.indices, order), column.dictionary)
    if column.null_count or not pa.types.is_integer(column.type):
        return column.take(pa.array(order))
    return pa.array(column.to_numpy().take(order))


def _says_something(block: pa.RecordBatch, name: str) -> bool:
    """Whether a column holds anything but the value that stands for unknown."""
    if name in _KEYS:
        return False
    column = block.column(name)
    if name in NUMBERS:
        found = pc.min_max(column).as_py()
        return bool(found["min"] != UNKNOWN[name] or found["max"] != UNKNOWN[name])
    return True


class BlobFile:
    """A new file in a folder that all tasks can read, for the large blobs of one task."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / f"{uuid4().hex}.arrow"
        self._file: pa.NativeFile | None = None

    def __enter__(self) -> BlobFile:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, facts: pa.RecordBatch) -> bytes:
        """Write facts; where they are. Raises OSError."""
        if self._file is None:
            self._file = pa.BufferedOutputStream(pa.OSFile(str(self._path), "wb"), 1 << 20)
        file = self._file
        file.write(bytes(-file.tell() % _ALIGNMENT))
        begin = file.tell()
        with pa.ipc.new_stream(file, facts.schema) as writer:
            writer.write_batch(facts)
        return b"%s%d %d %s" % (_ELSEWHERE, begin, file.tell() - begin, bytes(self._path))


class PackedBlob(NamedTuple):
    """A blob on its way: its bytes, or where they are. Blobs of a group are put together by
    `order`, whatever order they come in."""

    run: int
    partition: str
    kind: int
    rows: int
    body: bytes | pa.Buffer
    order: str = ""


def packed(
    found: Iterable[ArrowBlob], file: BlobFile | None = None, order: str = ""
) -> Iterator[PackedBlob]:
    """Blobs to be sent elsewhere. Large ones go to `file`, if there is one."""
    for blob in found:
        rows = blob.facts.num_rows
        filed = file is not None and rows >= _FILED_FROM_ROWS
        body = file.add(blob.facts) if file is not None and filed else _bytes(blob.facts)
        yield PackedBlob(blob.run, blob.partition, int(blob.kind), rows, body, order)


def as_rows(found: Iterable[PackedBlob]) -> Iterator[pa.RecordBatch]:
    """Blobs as rows of `SCHEMA`, one a batch: each may be large."""
    for blob in found:
        columns = zip(blob[: len(SCHEMA)], SCHEMA, strict=True)
        yield pa.RecordBatch.from_arrays([pa.array([c], f.type) for c, f in columns], schema=SCHEMA)


def of_rows(rows: pa.Table) -> Iterator[PackedBlob]:
    """The blobs of rows of `SCHEMA`, not copied."""
    run, partition, kind, size = (rows.column(name).to_pylist() for name in SCHEMA.names[:-1])
    for blob in zip(run, partition, kind, size, _buffers(rows.column("body")), strict=True):
        yield PackedBlob(*blob)


def _bytes(facts: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    compression = "lz4" if facts.num_rows >= _COMPRESS_FROM_ROWS else None
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, facts.schema, options=options) as writer:
        writer.write_batch(facts)
    made: bytes = sink.getvalue().to_pybytes()
    return made


def unpacked(blobs: Iterable[PackedBlob]) -> dict[Kind, list[pa.RecordBatch]]:
    """The facts of the blobs of one (run, partition), by kind. Raises OSError if a file of them is
    gone."""
    found: dict[Kind, list[pa.RecordBatch]] = {}
    with contextlib.ExitStack() as files:
        mapped: dict[bytes, pa.MemoryMappedFile] = {}
        for blob in blobs:
            body = pa.py_buffer(blob.body)
            if body.slice(0, len(_ELSEWHERE)).to_pybytes() == _ELSEWHERE:
                begin, size, path = body.to_pybytes()[len(_ELSEWHERE) :].split(b" ", 2)
                if path not in mapped:
                    mapped[path] = files.enter_context(pa.memory_map(path.decode()))
                mapped[path].seek(int(begin))
                body = mapped[path].read_buffer(int(size))
            with pa.ipc.open_stream(body) as reader:
                found.setdefault(Kind(blob.kind), []).extend(reader)
    return found


def _buffers(column: pa.ChunkedArray) -> Iterator[pa.Buffer]:
    """The bytes of each row, not copied."""
    for chunk in column.chunks:
        for value in chunk:
            yield value.as_buffer()
