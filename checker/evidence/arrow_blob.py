"""Facts in transfer from the process that reads a source file to the one that judges their group.

An Arrow blob is the facts of one kind that one source has about one partition of a run, as a batch
of Arrow. So few rows are moved, and the group can use the columns without decoding them. Between
processes of one machine, large blobs are in files of a shared folder (`BlobFile`), which the
receiver maps into memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa

from checker.evidence.columns import KINDS, Facts, Name, Rows, Text, Words
from checker.evidence.sorting import I64, is_constant, is_sorted, order_of

# Compressing small blobs costs more than it saves, and so does a file of them.
_COMPRESS_FROM_ROWS: Final = 4096
_FILED_FROM_ROWS: Final = 4096
_ALIGNMENT: Final = 64
# The first bytes of a blob that is in a file; the bytes of Arrow begin otherwise.
_ELSEWHERE: Final = b"in file "


class ArrowBlob(NamedTuple):
    """The facts of one kind about one partition of a run; `run` is the number of the run among
    those that are judged together."""

    run: int
    partition: str
    kind: type[Facts]
    facts: pa.RecordBatch


def arrow_blobs(facts: Iterable[Rows]) -> Iterator[ArrowBlob]:
    """Yield facts as blobs, one for each partition, without columns in which no value is known."""
    for part in facts:
        if not part.count:
            continue
        names, ends, order = _by_partition(part)
        columns = _arrow_columns(part if order is None else part.take(order))
        every = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
        for partition, begin, end in zip(names, [0, *ends[:-1]], ends, strict=True):
            if begin < end:
                body = every.slice(begin, end - begin)
                yield ArrowBlob(part.run, partition, part.kind, body)


def _by_partition(part: Rows) -> tuple[Sequence[str], list[int], I64 | None]:
    """Return the partitions of some facts, where the rows of each end in the order returned, and
    that order; None for the order they are in."""
    codes, names = part.words("partition")
    ends = np.cumsum(np.bincount(codes, minlength=len(names))).tolist()
    if is_sorted([codes]):
        return names, ends, None
    if len(names) <= 1 << 16:
        # Sixteen bits are sorted by counting.
        return names, ends, np.argsort(codes.astype(np.uint16), kind="stable")
    return names, ends, order_of([codes])


def _arrow_columns(part: Rows) -> dict[str, pa.Array]:
    """Return the columns of some facts that have any known value."""
    made = {}
    for name in part.columns:
        column = part.kind.columns[name]
        if isinstance(column, Text):
            made[name] = pa.array(part.texts(name), pa.string())
        elif not isinstance(column, Name):
            numbers = part.numbers(name)
            if len(numbers) and _says_something(numbers, column.unknown):
                made[name] = pa.array(numbers)
        else:
            codes, words = part.words(name)
            made[name] = pa.DictionaryArray.from_arrays(
                pa.array(codes.astype(np.int32)), pa.array(words, pa.string())
            )
    if not made:
        made[""] = pa.nulls(part.count)
    return made


def _says_something(numbers: I64, unknown: int) -> bool:
    """Return whether any number differs from the one that stands for unknown."""
    if is_constant(numbers) or numbers[0] != unknown:
        return bool(numbers[0] != unknown)
    return bool(numbers.min() != unknown or numbers.max() != unknown)


class BlobFile:
    """A new file, in a folder that all processes can read, for the large blobs of one task."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / f"{uuid4().hex}.arrow"
        self._file: pa.NativeFile | None = None

    def __enter__(self) -> BlobFile:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, facts: pa.RecordBatch) -> bytes:
        """Write facts, and return bytes that say where in the file. Raises OSError."""
        if self._file is None:
            self._file = pa.BufferedOutputStream(pa.OSFile(str(self._path), "wb"), 1 << 20)
        file = self._file
        file.write(bytes(-file.tell() % _ALIGNMENT))
        begin = file.tell()
        with pa.ipc.new_stream(file, facts.schema) as writer:
            writer.write_batch(facts)
        return b"%s%d %d %s" % (_ELSEWHERE, begin, file.tell() - begin, bytes(self._path))


class PackedBlob(NamedTuple):
    """A blob in transfer: its bytes, or their place in a file. The blobs of a group may arrive in
    any order; they are joined in that of `order`."""

    run: int
    partition: str
    kind: str
    rows: int
    body: bytes
    order: str = ""

    @property
    def key(self) -> tuple[int, str]:
        """The run and the partition that the facts are about."""
        return self.run, self.partition


def packed(
    found: Iterable[ArrowBlob], file: BlobFile | None = None, order: str = ""
) -> Iterator[PackedBlob]:
    """Yield blobs as bytes; a large one is written to `file`, if given, and its place yielded."""
    for blob in found:
        rows = blob.facts.num_rows
        filed = file is not None and rows >= _FILED_FROM_ROWS
        body = file.add(blob.facts) if file is not None and filed else _bytes(blob.facts)
        yield PackedBlob(blob.run, blob.partition, blob.kind.__name__, rows, body, order)


def _bytes(facts: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    compression = "lz4" if facts.num_rows >= _COMPRESS_FROM_ROWS else None
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, facts.schema, options=options) as writer:
        writer.write_batch(facts)
    made: bytes = sink.getvalue().to_pybytes()
    return made


def unpacked(blobs: Iterable[PackedBlob]) -> Iterator[Rows]:
    """Yield the facts that the blobs of one group hold. Raises OSError if their file is gone."""
    with contextlib.ExitStack() as files:
        mapped: dict[bytes, pa.MemoryMappedFile] = {}
        for blob in blobs:
            body = pa.py_buffer(blob.body)
            if blob.body.startswith(_ELSEWHERE):
                begin, size, path = blob.body[len(_ELSEWHERE) :].split(b" ", 2)
                if path not in mapped:
                    mapped[path] = files.enter_context(pa.memory_map(path.decode()))
                mapped[path].seek(int(begin))
                body = mapped[path].read_buffer(int(size))
            with pa.ipc.open_stream(body) as reader:
                for facts in reader:
                    yield _of_arrow(blob, facts)


def _of_arrow(blob: PackedBlob, facts: pa.RecordBatch) -> Rows:
    kind = KINDS[blob.kind]
    columns: dict[str, Any] = {}
    for name, column in zip(facts.schema.names, facts.columns, strict=True):
        if pa.types.is_dictionary(column.type):
            codes = column.indices.to_numpy(zero_copy_only=False)
            columns[name] = Words(codes, column.dictionary.to_pylist())
        elif name:
            is_text = isinstance(kind.columns[name], Text)
            columns[name] = column.to_pylist() if is_text else column.to_numpy(zero_copy_only=False)
    return Rows(kind, blob.run, blob.partition, columns, facts.num_rows)
