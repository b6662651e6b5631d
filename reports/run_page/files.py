"""Tolerant reading of a run folder's files: what cannot be read is noted, the rest is used.

A killed harness leaves half lines, a full disk leaves empty files. Neither may cost the page:
every reader here takes a `Notes` and writes one sentence for each thing it had to leave out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from node.formats.json_input import JsonReader, Unreadable, bounded_lines, read_file

T = TypeVar("T")


class Notes:
    """Sentences about what could not be read or was summarised, in the order they came up."""

    def __init__(self) -> None:
        self.sentences: list[str] = []

    def add(self, sentence: str) -> None:
        """Keep `sentence` once."""
        if sentence not in self.sentences:
            self.sentences.append(sentence)


def shown(path: Path) -> str:
    """A file's name as the reader of the page knows it: inside the run folder, `trace/n1.jsonl`."""
    inside = ("trace", "logs", "output", "tables", "finding")
    return f"{path.parent.name}/{path.name}" if path.parent.name in inside else path.name


def json_file(path: Path, kind: type[T], notes: Notes) -> T | None:
    """Read one JSON file as `kind`; None (and a note) when it is missing or not understood."""
    try:
        return read_file(path, kind)
    except FileNotFoundError:
        notes.add(f"{shown(path)} is missing.")
    except OSError as error:
        notes.add(f"{shown(path)} cannot be read: {error.strerror}.")
    except Unreadable as error:
        notes.add(f"{shown(path)} cannot be understood: {error}.")
    return None


def json_lines(path: Path, kind: type[T], notes: Notes) -> Iterator[T]:
    """Yield each line of `path` as `kind`, in file order; see `numbered_lines`."""
    return (value for _, value in numbered_lines(path, kind, notes))


def numbered_lines(
    path: Path,
    kind: type[T],
    notes: Notes,
    *,
    wanted: bool = False,
    needles: tuple[bytes, ...] = (),
) -> Iterator[tuple[int, T]]:
    """Yield each line of `path` as (its number from 1, `kind`), in file order.

    With `needles` only lines that hold one of them are looked at. A half last line is dropped with
    a note; other bad lines are counted into one note. A missing file is noted only when `wanted`.
    """
    decoder = JsonReader(kind)
    bad, first_bad, number = 0, 0, 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(bounded_lines(file), 1):
                if needles and not any(needle in line for needle in needles):
                    continue
                try:
                    yield number, decoder.decode(line)
                except Unreadable:
                    if not line.strip():
                        continue
                    if not line.endswith(b"\n"):
                        notes.add(
                            f"{shown(path)} ends in a half line (line {number:,}), dropped: "
                            "the writer was killed or the disk was full."
                        )
                        continue
                    bad += 1
                    first_bad = first_bad or number
    except FileNotFoundError:
        if wanted:
            notes.add(f"{shown(path)} is missing.")
    except OSError as error:
        notes.add(f"{shown(path)} cannot be read beyond line {number:,}: {error.strerror}.")
    if bad:
        lines = "1 line" if bad == 1 else f"{bad:,} lines"
        notes.add(f"{shown(path)}: {lines} not understood and left out, first line {first_bad:,}.")
