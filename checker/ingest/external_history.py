"""Histories that other tools recorded, and the run folders that are made of them to judge them.

Such a history is Jepsen's (`history.edn`, or its operations as JSON lines), or one in our own form
without the other files of a run. The run folder is made beside it and named `<file>.floodmark`, so
that results are beside the history that they are about. It is made again each time.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from checker.evidence.run_meta import RunMeta
from checker.formats.errors import CheckerError
from checker.ingest.ingest import tables_of
from checker.ingest.lines import Line, Problems, read_lines
from checker.ingest.source import HISTORIES, Source
from harness.formats.group_state import GROUP_STATES
from node.formats.files import make_folder, write_whole
from node.formats.host_errors import reason
from node.formats.json_input import JsonReader, Unreadable
from node.formats.reading import hole_in
from node.formats.removal import try_to_remove
from node.formats.run_folder_entries import foreign_entry

SUFFIX: Final = ".floodmark"
_jepsen: Final = JsonReader(Any)
_PROBED_LINES: Final = 20
_ALL: Final = 1 << 30
# The system may put markers of transactions into its log, so offsets may have gaps.
_PROMISE: Final = {"contiguous_offsets": False}


def external_history_in(path: Path) -> Path | None:
    """Return the history that `path` is, or that the folder `path` has; None if there is none, or
    if `path` is a run folder of ours."""
    if path.is_file():
        return path
    if (path / "run.json").exists():
        return None
    for name in HISTORIES:
        # history.jsonl alone may be ours, of a run whose run.json was lost.
        if (file := path / name).is_file() and (name != "history.jsonl" or form_of(file) != "own"):
            return file
    return None


def form_of(file: Path) -> str:
    """Return the form of a history by its first lines: "edn", "jepsen" (JSON lines) or "own"."""
    if file.suffix == ".edn":
        return "edn"
    for line in _first_lines(file):
        try:
            found = _jepsen.decode(line.data)
        except Unreadable:
            if line.data.lstrip()[:2] in (b"{:", b"#j", b"[{"):
                return "edn"
            continue
        if isinstance(found, dict):
            return "jepsen" if "op" not in found and "type" in found else "own"
    return "own"


def _first_lines(file: Path) -> Iterator[Line]:
    try:
        # A person named the file, which may be a link.
        for number, line in enumerate(read_lines(file.resolve())):
            if number == _PROBED_LINES:
                return
            yield line
    except OSError:
        return


def run_folder_of(file: Path, promise: Mapping[str, Any] = _PROMISE) -> Path:
    """Make the run folder of an external history and return it. `promise` is what its system
    promises. Raises CheckerError if the folder cannot be written."""
    folder = file.with_name(file.name + SUFFIX)
    if why := hole_in(file):
        raise CheckerError(f"{file} {why}.")
    if folder.is_symlink():
        raise CheckerError(
            f"{folder} is a link: results are not written where it leads; remove it."
        )
    form = form_of(file)
    for name in (*HISTORIES, GROUP_STATES):
        try_to_remove(folder / name, folder.parent)
    if why := foreign_entry(folder):
        raise CheckerError(f"{folder}: {why}: results are not written there; remove it.")
    try:
        make_folder(folder, folder.parent)
        about: dict[str, Any] = {
            "format": 2,
            "run": file.name,
            "name": file.stem,
            "state": "finished",
            "source": form,
            "promise": {**_PROMISE, **promise},
            "capabilities": [],
            "complete_reads": True,
        }
        _place(file, folder / next(name for name, of in HISTORIES.items() if of == form))
        states = file.parent / "states" / file.name
        if form == "own" and states.is_file():
            write_whole(folder / GROUP_STATES, states.read_bytes(), folder.parent)
        write_whole(folder / "run.json", msgspec.json.encode(about) + b"\n", folder.parent)
    except OSError as error:
        raise CheckerError(f"{folder} cannot be written: {reason(error)}.") from None
    return folder


def _place(file: Path, target: Path) -> None:
    """Put a history into its run folder unchanged: as a hard link, or as a copy if the file system
    has none. Raises OSError."""
    try:
        os.link(file.resolve(), target)
    except OSError:
        shutil.copyfile(file, target)


def validate(file: Path) -> list[str]:
    """Return a sentence for each mistake in a history, with its line; empty if there is none. Here
    unknown fields are mistakes too, and each mistake is listed, however many there are. Raises
    OSError."""
    file = file.resolve()
    form = form_of(file)
    source = Source(0, file.parent, "history", file, form=form)
    # Of our own form more is known: that operations have all numbers, and end.
    known = RunMeta(source="" if form == "own" else form)
    made = tables_of(source, known, Problems(in_full=_ALL))
    return [*made.problems.sentences(), *made.problems.notes]
