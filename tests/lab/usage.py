"""Use of the machine by this process and its descendants: memory, processor time, disk."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

import psutil

BLOCK_BYTES: Final = 512
"""The unit of `st_blocks`."""
_EVERY_S: Final = 0.2
_FAMILY_EVERY: Final = 10
"""To look for new processes takes as long as to ask some hundred for their memory."""
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class PeriodicThread:
    """A thread that calls a function at once and then at intervals within the context. An error of
    the function ends the calls and is raised at the end."""

    def __init__(self, look: Callable[[], object], every_s: float, name: str) -> None:
        """`name` is that of the thread."""
        self._look = look
        self._every_s = every_s
        self._done = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._watch, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._done.set()
        self._thread.join()
        if self._failed is not None and kind is None:
            raise self._failed

    def _watch(self) -> None:
        try:
            self._look()
            while not self._done.wait(self._every_s):
                self._look()
        except BaseException as error:
            self._failed = error


class MemoryMonitor(PeriodicThread):
    """A thread that measures the resident memory of this process and its descendants in the
    context; `peak_bytes` is the most. Shared pages count for each process: an upper bound."""

    def __init__(self) -> None:
        super().__init__(self._note, _EVERY_S, "memory")
        self.peak_bytes = 0
        self._turn = 0
        self._members: list[int] = []

    def _note(self) -> None:
        if self._turn % _FAMILY_EVERY == 0:
            me = psutil.Process()
            self._members = [me.pid, *(child.pid for child in me.children(recursive=True))]
        self._turn += 1
        self.peak_bytes = max(self.peak_bytes, sum(map(_resident, self._members)))


def _resident(pid: int) -> int:
    """Return the resident bytes of a process, 0 if it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0


class ProcessorTime:
    """The processor seconds (`seconds`) that this process and its descendants use within the
    context, also of processes that end in it and are waited for."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> Self:
        self._before = self._now()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = self._now() - self._before

    @staticmethod
    def _now() -> float:
        me = psutil.Process()
        own = me.cpu_times()
        found = own.user + own.system + own.children_user + own.children_system
        for child in me.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                used = child.cpu_times()
                found += used.user + used.system + used.children_user + used.children_system
        return float(found)


def broker_memory() -> int:
    """Return the resident bytes of the brokers among the descendants of this process, by the files
    that they write their output to: `output/n1.txt`."""
    found = 0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error, OSError):
            name = Path(os.readlink(f"/proc/{process.pid}/fd/1")).stem
            if name[:1] == "n" and name[1:].isdigit():
                found += process.memory_info().rss
    return found


def bytes_of(folder: Path) -> int:
    """Return the bytes of all files below a folder."""
    return _sum_of(folder, lambda file: file.st_size)


def taken_by(folder: Path) -> int:
    """Return the bytes of disk space that all files below a folder take."""
    return _sum_of(folder, lambda file: file.st_blocks * BLOCK_BYTES)


def _sum_of(folder: Path, size: Callable[[os.stat_result], int]) -> int:
    total = 0
    # A file that is removed meanwhile counts nothing: `os.walk` passes over a folder that is gone.
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            with contextlib.suppress(OSError):
                total += size(os.lstat(os.path.join(place, name)))
    return total
