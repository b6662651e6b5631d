"""Tolerant reading of the files of a run folder that the checker makes no table of.

A killed harness leaves half lines, a full disk leaves empty files. Neither may cost the page: each
file that cannot be read adds a sentence to the `Notes`, and the rest is used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from checker.ingest.lines import read_lines
from node.formats.errors import UsageError
from node.formats.host_errors import reason
from node.formats.json_input import JsonReader, Unreadable, read_file

T = TypeVar("T")


class Notes:
    """Sentences about evidence that could not be read or is shown in part, in order."""

    def __init__(self) -> None:
        self.sentences: list[str] = []

    def add(self, sentence: str) -> None:
        if sentence not in self.sentences:
            self.sentences.append(sentence)


def shown(path: Path) -> str:
    """Return the name of a file inside the run folder, such as `finding/schedule.json`."""
    return f"{path.parent.name}/{path.name}" if path.parent.name == "finding" else path.name


def json_file(path: Path, kind: type[T], notes: Notes, *, needed: bool = False) -> T | None:
    """Read one JSON file as `kind`; None, with a note, if it cannot be read or understood. A
    missing file gives None too, with a note only if it is `needed`."""
    return tolerantly(path, lambda: read_file(path, kind), notes, "." if needed else "")


def tolerantly(path: Path, read: Callable[[], T], notes: Notes, missing: str) -> T | None:
    """Return what `read` returns; None, with a note, if the file cannot be read or understood. The
    note about a missing file ends with `missing`; there is none if that is empty."""
    try:
        return read()
    except FileNotFoundError:
        if missing:
            notes.add(f"{shown(path)} is missing{missing}")
    except OSError as error:
        notes.add(f"{shown(path)} cannot be read: {reason(error)}.")
    except Unreadable as error:
        notes.add(f"{shown(path)} cannot be understood: {error}.")
    except UsageError as error:
        notes.add(f"{error}.")
    return None


def json_lines(path: Path, kind: type[T], notes: Notes) -> Iterator[tuple[int, T]]:
    """Yield each line of a small file as (its number from 1, `kind`). Lines that are not understood
    are counted in one note; a missing file has none."""
    decoder = JsonReader(kind)
    bad: list[int] = []
    try:
        for line in read_lines(path):
            try:
                yield line.number, decoder.decode(line.data)
            except Unreadable:
                if line.whole:
                    bad.append(line.number)
                else:
                    notes.add(f"{path.name} ends in half a line (line {line.number:,}), left out.")
    except FileNotFoundError:
        return
    except OSError as error:
        notes.add(f"{path.name} cannot be read to its end: {reason(error)}.")
    if bad:
        lines = "1 line" if len(bad) == 1 else f"{len(bad):,} lines"
        notes.add(f"{path.name}: {lines} not understood and left out, first line {bad[0]:,}.")
