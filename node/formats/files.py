"""Writing files that outlive their writer: a file is replaced as a whole, or whole lines are
appended.

No write leaves the folder that a person named. Below that folder (`within`) every part of a path is
opened by its name in the part before it, and a link is an error (`folder_of`)."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from node.formats.errors import StorageError
from node.formats.host_errors import NO_PERMISSION, reason
from node.formats.reading import LINK, NotOurs, refuse_unless_regular

_NOT_IN_A_PART: Final = re.compile(r"[^A-Za-z0-9._+-]+")


class AppendOnlyFile:
    """A file to which whole lines are appended, with one write() a call. After the disk has refused
    a write, every later one is refused with the same sentence: no line ever follows half a line."""

    def __init__(self, path: Path, within: Path | None = None) -> None:
        """Create `path`, or go on at its end. Raises StorageError if it cannot be opened."""
        self.path = path
        self.broken = ""
        try:
            self.descriptor = open_to_append(path, within)
        except OSError as error:
            raise StorageError(cannot_write(path, error)) from None

    def write(self, lines: bytes) -> None:
        """Append `lines`, each with its newline. Raises StorageError if the disk refuses, and then
        for every later call; what was written by then stays good, up to a last half line."""
        if self.broken:
            raise StorageError(self.broken)
        try:
            while lines:
                lines = lines[os.write(self.descriptor, lines) :]
        except OSError as error:
            self.broken = cannot_write(self.path, error)
            raise StorageError(self.broken) from None

    def truncate(self, size: int = 0) -> None:
        """Remove everything after `size` bytes. Raises StorageError."""
        try:
            os.ftruncate(self.descriptor, size)
        except OSError as error:
            raise StorageError(cannot_write(self.path, error)) from None

    def close(self) -> None:
        """Close the file; what was written is already with the kernel."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


@contextlib.contextmanager
def folder_of(path: Path, within: Path | None = None, *, make: bool = False) -> Iterator[int]:
    """Open the folder of `path`, and give its descriptor. The path to `within` is a person's and
    may have links; of the parts below it none may be a link or `..`. If `within` is None, only the
    last part is below it. With `make`, missing folders are made. Raises OSError."""
    base = path.parent if within is None else within
    if make:
        with contextlib.suppress(FileExistsError):
            base.mkdir(parents=True)
    try:
        parts = path.relative_to(base).parts
    except ValueError:
        raise NotOurs(path, f"is not in {base}") from None
    if not parts or ".." in parts:
        raise NotOurs(path, f"leads out of {base}")
    flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
    folder = os.open(base, flags)
    try:
        for part in parts[:-1]:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=folder)
            base /= part
            try:
                below = os.open(part, flags | os.O_NOFOLLOW, dir_fd=folder)
            except OSError as error:
                if error.errno in (errno.ENOTDIR, errno.ELOOP) and base.is_symlink():
                    raise NotOurs(base, LINK) from None
                error.filename = str(base)
                raise
            os.close(folder)
            folder = below
        yield folder
    finally:
        os.close(folder)


def open_to_append(path: Path, within: Path | None = None) -> int:
    """Open a file, made if missing, to append to it, and return its descriptor. Raises OSError, and
    NotOurs for a link, a hard link, a FIFO and a device."""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    with folder_of(path, within) as folder:
        try:
            descriptor = os.open(path.name, flags, 0o644, dir_fd=folder)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise NotOurs(path, LINK) from None
            error.filename = str(path)
            raise
    try:
        refuse_unless_regular(descriptor, path, alone=True)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


@contextlib.contextmanager
def replacing(path: Path, within: Path | None = None) -> Iterator[IO[bytes]]:
    """Give an open draft that takes the place of `path` at the end, whatever that is: a link or a
    second name is replaced, and what it leads to is not changed. Raises OSError."""
    draft = f".{path.name}.{os.getpid()}"
    with folder_of(path, within) as folder:
        # What has that name is a draft of a dead process, or a link that somebody put there.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(draft, flags, 0o666, dir_fd=folder), "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.rename(draft, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException as error:
            with contextlib.suppress(OSError):
                os.unlink(draft, dir_fd=folder)
            if isinstance(error, OSError):
                error.filename = str(path)
            raise


def write_whole(path: Path, content: bytes, within: Path | None = None) -> None:
    """Replace a file so that a reader, even after a crash, sees the old or the new content, never a
    part. Raises StorageError if the disk refuses."""
    try:
        with replacing(path, within) as file:
            file.write(content)
    except OSError as error:
        raise StorageError(cannot_write(path, error)) from None


def make_folder(folder: Path, within: Path | None = None) -> Path:
    """Make a folder and its parents, if missing, and return it. Raises StorageError."""
    try:
        with folder_of(folder / "_", within or folder, make=True):
            return folder
    except OSError as error:
        raise StorageError(cannot_write(folder, error)) from None


def as_part(text: str) -> str:
    """Return a text from anywhere as one part of a path: of letters, digits, `.`, `_`, `+` and `-`,
    not hidden, and at most 200 long."""
    return _NOT_IN_A_PART.sub("_", text).lstrip(".")[:200] or "_"


def cannot_write(path: Path, error: OSError) -> str:
    """Return the sentence for a write to `path` that failed."""
    return f"{path}: cannot be written: {reason(error)}"


def why_not_writable(folder: Path) -> str:
    """Return why nothing can be written into a folder, existing or not; "" if files can be. Raises
    OSError for a path that no system could have."""
    for place in (folder, *folder.absolute().parents):
        if place.is_dir():
            return "" if os.access(place, os.W_OK | os.X_OK) else NO_PERMISSION
        if place.exists():
            return f"{place} is a file"
    return ""
