"""How much memory this process and all that it started hold, now and at most (Linux)."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_EVERY_S: Final = 0.1
_PROC: Final = Path("/proc")


class Footprint:
    """Watches the resident memory of a family of processes while it is entered.

    Pages that processes share count once for each, so the figure is an upper bound.
    """

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="footprint", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self.peak_bytes = max(self.peak_bytes, family_bytes())
            if self._done.wait(_EVERY_S):
                return


def family_bytes() -> int:
    """Resident bytes of this process and all its descendants; 0 where that cannot be known."""
    children: dict[int, list[int]] = {}
    resident: dict[int, int] = {}
    for process, parent, pages in _processes():
        children.setdefault(parent, []).append(process)
        resident[process] = pages
    found, waiting = 0, [os.getpid()]
    while waiting:
        process = waiting.pop()
        found += resident.get(process, 0)
        waiting += children.get(process, [])
    return found * os.sysconf("SC_PAGE_SIZE")


def _processes() -> Iterator[tuple[int, int, int]]:
    """Every process: its number, its parent's, its resident pages."""
    if not _PROC.is_dir():
        return
    for entry in os.listdir(_PROC):
        if not entry.isdigit():
            continue
        try:
            # The name of a program may hold spaces and brackets: fields are counted behind it.
            fields = (_PROC / entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        yield int(entry), int(fields[1]), int(fields[21])
