"""Histories that other tools recorded, and the run folders that are made of them to judge them.

Such a history is Jepsen's (`history.edn`, or its operations as JSON lines), or one in our own form
without the other files of a run. The run folder is made beside it and named `<file>.floodmark`, so
that results are beside the history that they are about. It is made again each time.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from checker.evidence.run_meta import RunMeta
from checker.formats.errors import CheckerError
from checker.ingest.ingest import tables_of
from checker.ingest.lines import Line, Problems, read_lines
from checker.ingest.source import HISTORIES, Source
from harness.formats.history import GROUP_STATES
from node.formats.files import make_folder, why_not_writable, write_whole
from node.formats.host_errors import reason
from node.formats.json_input import MOST_FILE_BYTES, JsonReader, Unreadable, read_bytes
from node.formats.owned_folder import OwnedFolder
from node.formats.reading import hole_in, open_file
from node.formats.removal import try_to_remove
from node.formats.run_folder_entries import foreign_entry

SUFFIX: Final = ".floodmark"
_jepsen: Final = JsonReader(Any)
_PROBED_LINES: Final = 20
_SEARCHED_LINES: Final = 10_000
PACKED: Final = ".gz"
_MOST_UNPACKED: Final = 16 << 30
_COPIED_BYTES: Final = 1 << 20
NAMES: Final = tuple(f"{name}{end}" for name in HISTORIES for end in ("", PACKED))
"""The names of a history in a folder of another tool."""
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
    for name in NAMES:
        # history.jsonl alone may be ours, of a run whose run.json was lost.
        if (file := path / name).is_file() and (name != "history.jsonl" or form_of(file) != "own"):
            return file
    return None


def histories_in(store: Path) -> list[Path]:
    """Return the folders with histories of other tools in a store: `<test>/<time>/`, as Jepsen
    makes them, or `<time>/`. Links, such as `latest`, lead to none."""
    found = {
        file.parent for name in NAMES for at in ("*", "*/*") for file in store.glob(f"{at}/{name}")
    }
    reached = (each for each in found if not (each.is_symlink() or each.parent.is_symlink()))
    return sorted(each for each in reached if external_history_in(each) and not _is_made(each))


def _is_made(folder: Path) -> bool:
    return folder.name.endswith(SUFFIX)


def is_history(file: Path) -> bool:
    """Return whether a file has a line that is an operation, or the start of one; or no line at
    all. Of a long file only the beginning is looked at. Raises CheckerError."""
    with unpacked(file) as plain, contextlib.suppress(OSError):
        lines = 0
        for lines, line in enumerate(read_lines(plain.resolve()), 1):
            if b":type" in line.data or b":process" in line.data:
                return True
            with contextlib.suppress(Unreadable):
                found = _jepsen.decode(line.data)
                if isinstance(found, dict) and ("type" in found or "op" in found):
                    return True
            if lines == _SEARCHED_LINES:
                break
        return not lines
    return False


@contextlib.contextmanager
def unpacked(file: Path) -> Iterator[Path]:
    """Yield a history as a plain file: itself or, for as long as it is needed, what is packed in a
    `.gz` file. Raises CheckerError."""
    if file.suffix != PACKED:
        yield file
        return
    with OwnedFolder() as folder:
        plain = folder / file.stem
        try:
            # A person named the file, which may be a link.
            with (
                open_file(file, follow=True) as opened,
                gzip.open(opened) as packed,
                plain.open("wb") as text,
            ):
                while block := packed.read(_COPIED_BYTES):
                    text.write(block)
                    if text.tell() > _MOST_UNPACKED:
                        raise CheckerError(f"{file} holds more than {_MOST_UNPACKED >> 30} GiB.")
        except (OSError, EOFError, zlib.error) as error:
            raise CheckerError(f"{file} cannot be unpacked: {error}.") from None
        yield plain


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
    promises. It is beside the history, or in a temporary place if nothing can be written there.
    Raises CheckerError if the folder cannot be written."""
    folder = file.with_name(file.name + SUFFIX)
    if why_not_writable(folder):
        folder = Path(tempfile.mkdtemp(prefix="floodmark-")) / folder.name
    if why := hole_in(file):
        raise CheckerError(f"{file} {why}.")
    if folder.is_symlink():
        raise CheckerError(
            f"{folder} is a link: results are not written where it leads; remove it."
        )
    for name in (*HISTORIES, GROUP_STATES):
        try_to_remove(folder / name, folder.parent)
    if why := foreign_entry(folder):
        raise CheckerError(f"{folder}: {why}: results are not written there; remove it.")
    with unpacked(file) as plain:
        form = form_of(plain)
        about: dict[str, Any] = {
            "format": 2,
            "run": file.name,
            "name": plain.stem,
            "state": "finished",
            "source": form,
            "promise": {**_PROMISE, **promise},
            "capabilities": [],
            "complete_reads": True,
        }
        try:
            make_folder(folder, folder.parent)
            _place(plain, folder / next(name for name, of in HISTORIES.items() if of == form))
            states = file.parent / "states" / file.name
            if form == "own" and states.is_file():
                write_whole(folder / GROUP_STATES, _found_beside(states), folder.parent)
            write_whole(folder / "run.json", msgspec.json.encode(about) + b"\n", folder.parent)
        except OSError as error:
            raise CheckerError(f"{folder} cannot be written: {reason(error)}.") from None
    return folder


def _found_beside(states: Path) -> bytes:
    """Return what a file beside a history holds. Raises CheckerError."""
    try:
        return read_bytes(states, MOST_FILE_BYTES)
    except (OSError, Unreadable) as error:
        raise CheckerError(f"{states} cannot be read: {reason(error)}.") from None


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
    with unpacked(file.resolve()) as plain:
        form = form_of(plain)
        source = Source(0, plain.parent, "history", plain, form=form)
        # Of our own form more is known: that operations have all numbers, and end.
        known = RunMeta(source="" if form == "own" else form)
        made = tables_of(source, known, Problems(in_full=_ALL))
    return [*made.problems.sentences(), *made.problems.notes]
