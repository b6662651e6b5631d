"""How much memory this process and all that it started hold, now and at most."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import psutil

from harness.runs.clock import PeriodicThread

_EVERY_S: Final = 0.2
_FAMILY_EVERY: Final = 10
"""To look for new processes takes as long as to ask some hundred for their memory."""
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class MemoryMonitor(PeriodicThread):
    """Watches the resident memory of a process and its descendants while it is entered.

    Pages that processes share count once for each, so the figure is an upper bound.
    """

    def __init__(self) -> None:
        super().__init__(self._note, _EVERY_S, "memory")
        self.peak_bytes = 0
        self._turn = 0
        self._members: list[int] = []

    def _note(self) -> None:
        if self._turn % _FAMILY_EVERY == 0:
            self._members = _family()
        self._turn += 1
        self.peak_bytes = max(self.peak_bytes, sum(map(_resident, self._members)))


def _family() -> list[int]:
    """Return this process and all its descendants."""
    me = psutil.Process()
    return [me.pid, *(child.pid for child in me.children(recursive=True))]


def _resident(pid: int) -> int:
    """Resident bytes of a process, 0 if it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0
