"""`seal.json`: a digest of every evidence file of a run, so that a reader can tell whether the
files are unchanged.

When all processes of a run have ended, the harness reads each evidence file and notes its size, its
number of lines, and a digest of each of its chunks. `seal.json` also has a digest of `run.json`,
and `run.json` has the digest of `seal.json`. So a line that is lost, doubled, moved or changed is
noticed. A seal is not a signature: anybody can make a new one.

The tables made of a history have a seal of their own (`tables/seal.json`) if the history was
unchanged when they were made. The checker can then read the tables instead.
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
from node.formats.reading import open_file

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
    """A file's size in bytes, its number of newlines, a digest of each chunk of `chunk_bytes`."""

    bytes: LargeCount
    lines: LargeCount
    chunk_bytes: LargeCount
    chunks: tuple[str, ...]


class Seal(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a seal file. `run` is the digest of run.json; in a seal of tables, the digest
    of the seal of the run."""

    run: str
    files: dict[str, FileSeal]
    format: Number = 1


class Difference(NamedTuple):
    """The difference between a file and its seal. `lines` is the number of lines of the file (-1:
    it cannot be read); the first difference is in the lines from `first` to `last`."""

    lines: int
    first: int
    last: int


def seal_run(folder: Path) -> None:
    """Write the seal of the run in `folder`, and its digest into run.json. Raises OSError or
    StorageError when a file cannot be read or written, Unreadable when run.json is no JSON object.
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
    """Write the seal of the tables of a history in the run folder; `run_seal` is the digest of the
    run's own seal. Raises OSError or StorageError when a file cannot be read or written."""
    names = (
        f"tables/{table}.parquet{inside}" for table in _TABLES for inside in ("", "/*.parquet")
    )
    files = {name: seal_file(folder / name) for name in _names(folder, names)}
    write_whole(folder / TABLES_FILE, msgspec.json.encode(Seal(run=run_seal, files=files)) + b"\n")


def read_seal(path: Path) -> Seal:
    """Return the seal in a file. Raises OSError, Unreadable."""
    return read_file(path, Seal)


def digest_of(content: bytes) -> str:
    """Return a digest of some bytes as 16 hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()[:_DIGITS]


def digest_of_run(about: Mapping[str, Any]) -> str:
    """Return a digest of all fields of a run.json except `seal`; white space and the order of
    fields do not matter."""
    said = {name: value for name, value in about.items() if name != "seal"}
    return digest_of(_encoder.encode(said))


def seal_file(path: Path) -> FileSeal:
    """Read one file and return its seal. Raises OSError."""
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
    chunk_bytes = max(chunk_bytes, _LEAST_CHUNK_BYTES)
    with open_file(path) as file:
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
    """Return the names of the evidence files in a run folder that a seal covers."""
    return list(_names(folder, _SEALED))


def _names(folder: Path, patterns: Iterable[str]) -> Iterator[str]:
    for pattern in patterns:
        for path in sorted(folder.glob(pattern)):
            if path.is_file():
                yield str(path.relative_to(folder))
