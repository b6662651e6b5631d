"""Failures of a disk that the harness injects while a node runs: syncs that fail, take long or lie,
a full disk, reads that fail.

Without a disk in user space the store itself asks before each write; a correct store ends its
process at the first error. The faults come through the pipe of `node.runtime.breakpoints` then.
Damage to the files of a node that is down is in `node.runtime.disk_damage`."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from node.formats.errors import StorageError
from node.formats.host_errors import cannot


class DiskFails(msgspec.Struct, frozen=True):
    """A failure of a disk. "error": each sync fails (with `written` its data is on the disk
    nevertheless). "slow": each sync takes `delay_ms` longer. "full", "full-map": no more data fits
    into the file system, or into the map of the store. "lying": syncs are confirmed and not done,
    so the next power cut takes everything written meanwhile. "unreadable": reads fail."""

    what: Literal["error", "slow", "full", "full-map", "lying", "unreadable"]
    delay_ms: int = 0
    written: bool = False


class DiskFaults:
    """The faults in force on a disk, by number, and how many writes or requests each has affected.
    `tell` is called when a fault affects its first one."""

    def __init__(self, in_force: Mapping[int, DiskFails] = {}) -> None:
        self.in_force = dict(in_force)
        self.affected: dict[int, int] = {}
        self.tell: Callable[[], None] = lambda: None

    def first(self, what: str) -> int:
        """Return the number of the first fault of kind `what`; 0 if there is none."""
        return next((number for number, one in self.in_force.items() if one.what == what), 0)

    def affecting(self, what: str) -> DiskFails | None:
        """Return the first fault of kind `what` (or None), and count a write that it affects."""
        if not (number := self.first(what)):
            return None
        self.count(number)
        return self.in_force[number]

    def count(self, number: int, more: int = 1) -> None:
        """Count `more` writes that a fault has affected."""
        is_first = number not in self.affected
        self.affected[number] = self.affected.get(number, 0) + more
        if is_first:
            self.tell()


class FailingDisk(DiskFaults):
    """The disk of one process, which fails, without a disk in user space, at its own writes."""

    def __init__(
        self, in_force: Mapping[int, DiskFails] = {}, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        super().__init__(in_force)
        self._sleep = sleep

    def write(self, path: Path) -> None:
        """Let a write that is not synced fail if a fault says so. Raises StorageError."""
        if self.affecting("full"):
            raise _refused("write", path, errno.ENOSPC)

    def sync(self, path: Path, write: Callable[[], None]) -> None:
        """Call `write`, a synced write, and let it fail or take longer if a fault says so. Raises
        StorageError."""
        self.write(path)
        if failing := self.affecting("error"):
            if failing.written:
                write()
            raise _refused("sync", path, errno.EIO)
        for number, fault in self.in_force.items():
            if fault.what == "slow":
                # Before the write: what a kill or a power cut finds here is not on the disk.
                self.count(number)
                self._sleep(fault.delay_ms / 1000)
        try:
            write()
        except StorageError:
            self.affecting("full-map")
            raise


def _refused(what: str, path: Path, number: int) -> StorageError:
    return cannot(f"{what} the store in {path}", OSError(number, ""))
