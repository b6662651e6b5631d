"""Append-only files that outlive their writer: one write() a call, and never half a line followed
by another. A full disk stops the writing, once, with a clear sentence."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from node.formats.errors import StorageError


class Appender:
    """Appends whole lines to a file."""

    def __init__(self, path: Path) -> None:
        """Create `path`, or go on at its end. Raises StorageError when it cannot be opened."""
        self.path = path
        self.broken = ""
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._descriptor = os.open(path, flags, 0o644)
        except OSError as error:
            raise StorageError(explain(path, error)) from None

    def write(self, lines: bytes) -> None:
        """Append `lines`, newline included. Raises StorageError, now and ever after, when the disk
        refuses: what is in the file by then stays good, up to a last half line."""
        if self.broken:
            raise StorageError(self.broken)
        try:
            while lines:
                lines = lines[os.write(self._descriptor, lines) :]
        except OSError as error:
            self.broken = explain(self.path, error)
            raise StorageError(self.broken) from None

    def close(self) -> None:
        """Close the file; what was written is already with the kernel."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def explain(path: Path, error: OSError) -> str:
    """One sentence for a file operation that failed."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{path}: the disk is full"
    return f"{path}: cannot be written: {error.strerror or error}"
