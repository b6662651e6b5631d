"""`seal.json`: what is in every evidence file of a run, so that a later reader can tell whether it
is still there.

The harness seals a run when all of its processes have ended: it reads each file once and notes
its size, its lines, and a digest of each of its chunks. `seal.json` also has a digest of what
`run.json` says, and `run.json` has the digest of `seal.json`. So no line of a run can be lost,
doubled, moved or changed unnoticed. A seal is no signature: who makes a new one is believed.

The tables of a history get a seal of their own (`tables/seal.json`) when they were made of a
history that is as it was sealed. They can then stand for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from node.formats.bounds import LargeCount, Number
from node.formats.files import write_whole
from node.formats.json_input import read_file

FILE: Final = "seal.json"
TABLES_FILE: Final = "tables/seal.json"
HISTORY: Final = "history.jsonl"
PROBES: Final = "probes.jsonl"
"""What nodes without traces answered when they were asked who leads, as trace events."""
MOST_CHUNK_BYTES: Final = 32 << 20
_LEAST_CHUNK_BYTES: Final = 512
_MOST_CHUNKS: Final = 256
_DIGITS: Final = 16
_READ_BYTES: Final = 1 << 20
_SEALED: Final = (
    *("schedule.json", HISTORY, "faults.jsonl", "exits.jsonl", "messages.jsonl"),
    *("trace/*.jsonl", "logs/*.jsonl", PROBES),
)
_TABLES: Final = ("ops", "sends", "reads", "assigns")
_encoder: Final = msgspec.json.Encoder(order="deterministic")


class FileSeal(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of one file: bytes, newlines, and a digest of each `chunk_bytes`."""

    bytes: LargeCount
    lines: LargeCount
    chunk_bytes: LargeCount
    chunks: tuple[str, ...]


class Seal(msgspec.Struct, frozen=True, kw_only=True):
    """The whole file. `run` is the digest of what run.json says; of a seal of tables, that of the
    seal of the run that they were made of."""

    run: str
    files: dict[str, FileSeal]
    format: Number = 1


class Difference(NamedTuple):
    """The difference of a file from its seal: `lines` it has (-1: it cannot be read), and the lines
    from `first` to `last` among which the first difference is."""

    lines: int
    first: int
    last: int


def seal_run(folder: Path) -> None:
    """Seal the run in `folder`, and note the seal in its run.json.

    Raises OSError or StorageError when a file cannot be read or written, Unreadable when run.json
    is no JSON object.
    """
    about = read_file(folder / "run.json", dict[str, Any])
    files = {name: seal_file(folder / name) for name in _names(folder, _SEALED)}
    made = msgspec.json.encode(Seal(run=digest_of_run(about), files=files)) + b"\n"
    write_whole(folder / FILE, made)
    about["seal"] = digest_of(made)
    write_whole(
        folder / "run.json", msgspec.json.format(msgspec.json.encode(about), indent=2) + b"\n"
    )


def seal_tables(folder: Path, run_seal: str) -> None:
    """Seal the tables of the history of the run in `folder`, whose own seal has the digest
    `run_seal`. Raises OSError or StorageError when a file cannot be read or written."""
    names = (
        f"tables/{table}.parquet{inside}" for table in _TABLES for inside in ("", "/*.parquet")
    )
    files = {name: seal_file(folder / name) for name in _names(folder, names)}
    write_whole(folder / TABLES_FILE, msgspec.json.encode(Seal(run=run_seal, files=files)) + b"\n")


def read_seal(path: Path) -> Seal:
    """Read a seal. Raises OSError, Unreadable."""
    return read_file(path, Seal)


def digest_of(content: bytes) -> str:
    """Return a digest of bytes, 16 hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()[:_DIGITS]


def digest_of_run(about: Mapping[str, Any]) -> str:
    """Return a digest of everything that run.json says, but for its `seal`; white space and the
    order of fields do not matter."""
    said = {name: value for name, value in about.items() if name != "seal"}
    return digest_of(_encoder.encode(said))


def seal_file(path: Path) -> FileSeal:
    """Seal one file. Raises OSError."""
    size = path.stat().st_size
    chunk_bytes = _LEAST_CHUNK_BYTES
    while chunk_bytes * _MOST_CHUNKS < size and chunk_bytes < MOST_CHUNK_BYTES:
        chunk_bytes *= 2
    chunks, lines, read = [], 0, 0
    for chunk in _chunks(path, chunk_bytes):
        chunks.append(chunk.digest)
        lines += chunk.lines
        read += chunk.bytes
    return FileSeal(bytes=read, lines=lines, chunk_bytes=chunk_bytes, chunks=tuple(chunks))


def difference(path: Path, sealed: FileSeal) -> Difference | None:
    """Return how a file differs from its seal, None if it does not. Raises OSError."""
    first: tuple[int, int] | None = None
    lines = read = number = 0
    for number, chunk in enumerate(_chunks(path, sealed.chunk_bytes), 1):
        known = sealed.chunks[number - 1] if number <= len(sealed.chunks) else ""
        if first is None and chunk.digest != known:
            first = lines + 1, lines + chunk.lines + (not chunk.ends_line)
        lines += chunk.lines
        read += chunk.bytes
    if first is None and (read, number) != (sealed.bytes, len(sealed.chunks)):
        first = lines + 1, lines + 1
    return None if first is None else Difference(lines, *first)


class _Chunk(NamedTuple):
    digest: str
    lines: int
    bytes: int
    ends_line: bool


def _chunks(path: Path, chunk_bytes: int) -> Iterator[_Chunk]:
    """Yield the chunks of a file."""
    chunk_bytes = max(chunk_bytes, _LEAST_CHUNK_BYTES)
    with path.open("rb", buffering=_READ_BYTES) as file:
        while True:
            digest, lines, taken, last = hashlib.sha256(), 0, 0, b""
            while part := file.read(min(chunk_bytes - taken, _READ_BYTES)):
                digest.update(part)
                lines += part.count(b"\n")
                taken += len(part)
                last = part[-1:]
            if not taken:
                return
            yield _Chunk(digest.hexdigest()[:_DIGITS], lines, taken, last == b"\n")


def sealed_names(folder: Path) -> list[str]:
    """Return the evidence files that are in a run folder now, by name."""
    return list(_names(folder, _SEALED))


def _names(folder: Path, patterns: Iterable[str]) -> Iterator[str]:
    for pattern in patterns:
        for path in sorted(folder.glob(pattern)):
            if path.is_file():
                yield str(path.relative_to(folder))
