"""Damage to files of a disk that no process serves: a flipped bit, nothing left, an old copy."""

from __future__ import annotations

import os
import shutil
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from node.formats.errors import FloodmarkError

MOST_FILES: Final = 100_000


def flip_bit(
    folder: Path, files: str, which: float, bit: float, within: tuple[int, int] | None = None
) -> str:
    """Flip a bit of one byte; return which, as a phrase. Raises FloodmarkError if there is none.
    The byte is at the share `which` (0 to 1) of all bytes in the files whose name or path matches
    the pattern `files`; of each file only the bytes `within` two offsets count, if given. `bit` is
    the share (0 to 1) of its eight bits."""
    first, end = within or (0, 1 << 62)
    sizes = {
        file: min(file.stat().st_size, end) - first
        for file in _regular(folder)
        if fnmatch(file.name, files) or fnmatch(str(file.relative_to(folder)), files)
    }
    total = sum(size for size in sizes.values() if size > 0)
    if not total:
        raise FloodmarkError(f"the disk of {folder.name} has no byte to flip in files {files}")
    place = min(total - 1, int(which * total))
    for file, size in sizes.items():
        if 0 <= place < size:
            return _flip(file, file.relative_to(folder), first + place, min(7, int(bit * 8)))
        place -= max(0, size)
    raise AssertionError("the place is in one of them")


def empty(folder: Path) -> int:
    """Remove all files; return how many there were."""
    files = _regular(folder)
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    return len(files)


def restore(folder: Path, copied: Path) -> int:
    """Replace the files of `folder` by those of the copy; return how many files changed."""
    before = {file.relative_to(folder): file.stat() for file in _regular(folder)}
    changed = 0
    for file, status in before.items():
        other = copied / file
        changed += not other.is_file() or _differ(folder / file, other, status.st_size)
    empty(folder)
    shutil.copytree(copied, folder, symlinks=True, dirs_exist_ok=True)
    return changed


def _differ(file: Path, other: Path, size: int) -> bool:
    if other.stat().st_size != size:
        return True
    with file.open("rb") as one, other.open("rb") as two:
        while data := one.read(1 << 20):
            if data != two.read(1 << 20):
                return True
    return False


def _flip(file: Path, name: Path, offset: int, bit: int) -> str:
    with file.open("r+b") as opened:
        (value,) = os.pread(opened.fileno(), 1, offset)
        os.pwrite(opened.fileno(), bytes((value ^ 1 << bit,)), offset)
    return f"bit {bit} of byte {offset} of {name} is flipped"


def _regular(folder: Path) -> list[Path]:
    """Return all files, in an order that is always the same."""
    found = []
    for file in folder.rglob("*"):
        if file.is_file() and not file.is_symlink():
            found.append(file)
            if len(found) > MOST_FILES:
                raise FloodmarkError(f"{folder}: more than {MOST_FILES} files")
    return sorted(found)
