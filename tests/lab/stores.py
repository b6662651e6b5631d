"""Stores of runs on small file systems of their own, which fail at an instant: as root only."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from node.formats import host_tools

STORES: Final = ("full", "briefly-full", "read-only", "gone")
SIZE: Final = "60m"
BRIEF_S: Final = 0.5
_PIECE: Final = bytes(1 << 16)


@dataclass(frozen=True)
class Store:
    """A folder for a run, and what makes its disk fail."""

    folder: Path
    fail: Callable[[], None]


@cache
def can_mount() -> bool:
    """Return whether this process can mount a file system of memory."""
    programs = host_tools.program("unshare"), host_tools.program("mount")
    if os.geteuid() != 0 or None in programs:
        return False
    made = subprocess.run([*programs[:1], "-m", *programs[1:], "-t", "tmpfs", "tmpfs", "/mnt"])
    return made.returncode == 0


@contextlib.contextmanager
def store_of(kind: str, place: Path) -> Iterator[Store]:
    folder = place / "disk"
    folder.mkdir()
    if kind == "good":
        yield Store(folder, lambda: None)
        return
    if kind == "read-only":
        image = place / "image"
        with image.open("wb") as file:
            file.truncate(60 << 20)
        _run("mkfs.ext4", "-q", "-F", str(image))
        _run("mount", "-o", "loop,errors=remount-ro", str(image), str(folder))
    else:
        _run("mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder))
    try:
        yield Store(folder, lambda: _fail(kind, folder))
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False, stderr=subprocess.DEVNULL)


def _fail(kind: str, folder: Path) -> None:
    match kind:
        case "gone":
            _run("umount", "-l", str(folder))
        case "read-only":
            source = _run("findmnt", "-n", "-o", "SOURCE", str(folder)).strip()
            (Path("/sys/fs/ext4") / Path(source).name / "trigger_fs_error").write_text("1")
        case "full" | "briefly-full":
            fill(folder / "filler")
            if kind == "briefly-full":
                # As long as that, no longer: processes that need room meanwhile get none.
                subprocess.run(["sleep", str(BRIEF_S)], check=True)
                (folder / "filler").unlink()


def fill(file: Path) -> None:
    """Write to a file until its disk is full."""
    with contextlib.suppress(OSError), file.open("wb", buffering=0) as out:
        while True:
            out.write(_PIECE)
    with contextlib.suppress(OSError), file.open("ab", buffering=0) as out:
        while True:
            out.write(b"\0")


def _run(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout
