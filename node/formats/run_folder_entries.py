"""Entries that no run leaves in its folder: links, devices, FIFOs, files with holes.

A run folder may come from anybody. A link in it leads out of it, so results written there end up
elsewhere; a FIFO or a device in the place of a file makes a reader wait for ever; a file of ten
gigabytes may be nothing but a hole. So nothing is read or written in a folder that has such an
entry."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from node.formats.host_errors import reason
from node.formats.reading import LINK, NO_FILE, hole_in

RUN_FILES: Final = frozenset(
    {
        *("run.json", "seal.json", "schedule.json", "history.jsonl", "faults.jsonl"),
        *("exits.jsonl", "messages.jsonl", "probes.jsonl", "results.json", "checked.json"),
        "group-states.jsonl",
        *("story.json", "report.html", "history.edn", "history.json"),
    }
)
RUN_FOLDERS: Final = frozenset({"trace", "logs", "tables"})
_TEXTS: Final = (".json", ".jsonl", ".edn")
_MOST_ENTRIES: Final = 100_000
_DEPTH: Final = 3


def foreign_entry(folder: Path) -> str:
    """Return a phrase that names the first entry of a run folder that no run leaves there, and why
    ("trace/n1.jsonl is a link"); "" if there is none. The folder itself may be a link. Only regular
    files in it are opened, and their contents are not read."""
    for count, (entry, inside) in enumerate(_entries(folder)):
        name = f"{inside}{entry.name}"
        if count == _MOST_ENTRIES:
            return f"it has more than {_MOST_ENTRIES:,} entries"
        if why := _why_foreign(entry, is_folder=not inside and entry.name in RUN_FOLDERS):
            return f"{_shown(name)} {why}"
    return ""


def _entries(folder: Path) -> Iterator[tuple[os.DirEntry[str], str]]:
    """Yield the entries that a checker or a page reads or replaces, each with the folder that it is
    in; what is in a link is not listed."""
    waiting: list[tuple[Path, str]] = [(folder, "")]
    while waiting:
        place, inside = waiting.pop()
        try:
            found = sorted(os.scandir(place), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in found:
            if (
                not inside
                and entry.name not in RUN_FILES | RUN_FOLDERS
                and not entry.name.startswith(".")
            ):
                continue
            yield entry, inside
            if entry.is_dir(follow_symlinks=False) and inside.count("/") < _DEPTH:
                waiting.append((place / entry.name, f"{inside}{entry.name}/"))


def _why_foreign(entry: os.DirEntry[str], *, is_folder: bool) -> str:
    try:
        entry.name.encode()
    except UnicodeEncodeError:
        return "has a name that is no text"
    try:
        mode = entry.stat(follow_symlinks=False).st_mode
    except OSError as error:
        return f"cannot be looked at: {reason(error)}"
    if stat.S_ISLNK(mode):
        return LINK
    if is_folder:
        return "" if stat.S_ISDIR(mode) else "is no folder"
    if stat.S_ISDIR(mode):
        return "is a folder" if entry.name in RUN_FILES else ""
    if not stat.S_ISREG(mode):
        return NO_FILE
    return hole_in(Path(entry.path)) if entry.name.endswith(_TEXTS) else ""


def _shown(name: str) -> str:
    """Return a name without control characters."""
    text = name.encode("utf-8", "backslashreplace").decode()
    return text if text.isprintable() else ascii(text)[1:-1]
