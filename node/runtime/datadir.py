"""A node's data directory: the files in it, and the lock that keeps a second process out.

    data.mdb   LMDB: all durable writes             (node.runtime.tables)
    journal    deferred writes since the flush      (node.runtime.journal)
    lock       locked (flock) by the process that has the store open

The kernel unlocks the directory when that process dies."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final, Self

from node.formats.errors import StorageError
from node.formats.host_errors import cannot
from node.runtime import journal

LOCK_NAME: Final = "lock"


class DataDir:
    """A locked data directory. Raises StorageError at once if another process has it."""

    def __init__(self, path: str | Path, *, create: bool = True) -> None:
        self.path = Path(path)
        try:
            if create:
                self.path.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
            self._fd = os.open(self.path / LOCK_NAME, flags, 0o644)
        except FileNotFoundError:
            raise StorageError(f"there is no store in {self.path}") from None
        except OSError as error:
            raise cannot(f"use {self.path} for a store", error) from None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._fd)
            raise StorageError(
                f"the store in {self.path} is open in another process; stop that"
            ) from None

    @property
    def journal(self) -> Path:
        return self.path / journal.FILE_NAME

    def close(self) -> None:
        """Unlock the directory. Raises StorageError if the disk is gone."""
        try:
            os.close(self._fd)
        except OSError as error:
            raise cannot(f"unlock the store in {self.path}", error) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def power_cut(path: str | Path, keep: float) -> tuple[int, int]:
    """Remove from a dead node's disk what a power cut loses: the tail of its unsynced writes.
    `keep` is the share of them that remains, 0 to 1. Return the journal's length in bytes before
    and after. Raises StorageError while a process has the store open."""
    with DataDir(path, create=False):
        return journal.cut(path, keep)


def host_boot_id() -> str:
    """Return the kernel's id of this boot of the host, "unknown" if it has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"
