"""The only place that opens a file which may come from anybody.

A link leads elsewhere, a FIFO or a device makes a reader wait for ever, and a file of ten gigabytes
may be nothing but a hole. So a file is looked at before it is opened, and only a regular one is."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import IO, Final

LINK: Final = "is a link"
ANOTHER_NAME: Final = "has a second name elsewhere, a hard link"
NO_FILE: Final = "is no file, but a device, a socket or a FIFO"


class NotOurs(OSError):
    """A refusal to open what no command of ours leaves: a link, a device, a file with a hole."""

    def __init__(self, path: Path, why: str) -> None:
        """Prepare the error; `why` follows the name of the file, as in "is a link"."""
        super().__init__(f"it {why}")
        self.filename, self.why = str(path), why

    def __str__(self) -> str:
        return f"it {self.why}"


def open_file(path: Path, *, follow: bool = False, sparse: bool = False) -> IO[bytes]:
    """Open a regular file for reading. `follow`: a person named this path, so it may be
    a link. `sparse`: it may have holes. Raises OSError, and NotOurs for anything else."""
    looked = os.open(path, os.O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
    try:
        refuse_unless_regular(looked, path)
        # That which was looked at, whatever has its name meanwhile.
        file = open(f"/proc/self/fd/{looked}", "rb")  # noqa: SIM115
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        os.close(looked)
    if not sparse and (why := _hole_of(file.fileno())):
        file.close()
        raise NotOurs(path, why)
    return file


def refuse_unless_regular(descriptor: int, path: Path, *, alone: bool = False) -> None:
    """Raise NotOurs unless what was opened at `path` is a regular file, and IsADirectoryError for a
    folder. `alone`: the file may have no second name, since it is going to be changed."""
    about = os.fstat(descriptor)
    if stat.S_ISDIR(about.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if stat.S_ISLNK(about.st_mode):
        raise NotOurs(path, LINK)
    if not stat.S_ISREG(about.st_mode):
        raise NotOurs(path, NO_FILE)
    if alone and about.st_nlink > 1:
        raise NotOurs(path, ANOTHER_NAME)


def hole_in(path: Path) -> str:
    """Return a phrase that says where a part of a file was never written; "" if it has no hole, or
    cannot be opened. No text file of a run has a hole, and one with a hole may claim any size."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return _hole_of(descriptor)
    finally:
        os.close(descriptor)


def _hole_of(descriptor: int) -> str:
    size = os.fstat(descriptor).st_size
    try:
        hole = os.lseek(descriptor, 0, os.SEEK_HOLE) if size else size
        os.lseek(descriptor, 0, os.SEEK_SET)
    except OSError:
        return ""
    return f"has a hole at byte {hole:,} of {size:,}: it was not written whole" * (hole < size)
