"""Disk errors that the harness injects into a running process: a sync that fails or takes long, a
full disk.

The store asks before each write; a correct store ends its process at the first error. The faults
come through the pipe of `node.runtime.breakpoints`. Damage to the files of a node that is down is
in `node.runtime.disk_damage`."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from node.formats.errors import StorageError
from node.formats.host_errors import cannot

DiskFailure = Literal["error", "slow", "full", "full-map"]
"""Each sync fails, or takes `delay_ms` longer; nothing more fits into the file system, or into the
map of the store."""


class DiskFault(msgspec.Struct, frozen=True, kw_only=True):
    """One fault of a disk. `delay_ms` is the delay of each sync under "slow"; with `written`, a
    sync that fails ("error") has written its data nevertheless."""

    number: int
    what: DiskFailure
    delay_ms: int = 0
    written: bool = False


class FailingDisk:
    """The disk of one process with the faults in force on it. `writes` counts, by the number of the
    fault, the writes that it made fail or delayed. `tell` is called at the first write of each
    fault."""

    def __init__(
        self, faults: Sequence[DiskFault] = (), sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._sleep = sleep
        self._faults: tuple[DiskFault, ...] = ()
        self.writes: dict[int, int] = {}
        self.tell: Callable[[], None] = lambda: None
        self.replace(faults)

    def replace(self, faults: Sequence[DiskFault]) -> None:
        self._faults = tuple(faults)

    @property
    def map_full(self) -> bool:
        """Return whether the map of the store must not grow."""
        return any(fault.what == "full-map" for fault in self._faults)

    def write(self, path: Path) -> None:
        """Let a write that is not synced fail if a fault says so. Raises StorageError."""
        for fault in self._faults:
            if fault.what == "full":
                self._fail(fault, "write", path, errno.ENOSPC)

    def sync(self, path: Path, write: Callable[[], None]) -> None:
        """Call `write`, a synced write, and let it fail or take longer if a fault says so. Raises
        StorageError."""
        self.write(path)
        for fault in self._faults:
            if fault.what == "error":
                if fault.written:
                    write()
                self._fail(fault, "sync", path, errno.EIO)
        for fault in self._faults:
            if fault.what == "slow":
                # Before the write: what a kill or a power cut finds here is not on the disk.
                self._count(fault)
                self._sleep(fault.delay_ms / 1000)
        try:
            write()
        except StorageError:
            for fault in self._faults:
                if fault.what == "full-map":
                    self._count(fault)
            raise

    def _fail(self, fault: DiskFault, what: str, path: Path, number: int) -> None:
        self._count(fault)
        raise cannot(f"{what} the store in {path}", OSError(number, ""))

    def _count(self, fault: DiskFault) -> None:
        self.writes[fault.number] = self.writes.get(fault.number, 0) + 1
        if self.writes[fault.number] == 1:
            self.tell()
