"""Writing files that outlive their writer: a file is replaced as a whole, or whole lines are
appended."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from node.formats.errors import StorageError
from node.formats.host_errors import NO_PERMISSION, reason


class AppendOnlyFile:
    """A file to which whole lines are appended, with one write() a call. After the disk has refused
    a write, every later one is refused with the same sentence: no line ever follows half a line."""

    def __init__(self, path: Path) -> None:
        """Create `path`, or go on at its end. Raises StorageError if it cannot be opened."""
        self.path = path
        self.broken = ""
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._descriptor = os.open(path, flags, 0o644)
        except OSError as error:
            raise StorageError(cannot_write(path, error)) from None

    def write(self, lines: bytes) -> None:
        """Append `lines`, each with its newline. Raises StorageError if the disk refuses, and then
        for every later call; what was written by then stays good, up to a last half line."""
        if self.broken:
            raise StorageError(self.broken)
        try:
            while lines:
                lines = lines[os.write(self._descriptor, lines) :]
        except OSError as error:
            self.broken = cannot_write(self.path, error)
            raise StorageError(self.broken) from None

    def close(self) -> None:
        """Close the file; what was written is already with the kernel."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file so that a reader, even after a crash, sees the old or the new content, never a
    part. Raises StorageError if the disk refuses."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        # What has that name is a draft of a dead process, or a link that somebody put there.
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(draft, flags, 0o666), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise StorageError(cannot_write(path, error)) from None


def make_folder(folder: Path) -> Path:
    """Make a folder and its parents, if missing, and return it. Raises StorageError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(cannot_write(folder, error)) from None
    return folder


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
