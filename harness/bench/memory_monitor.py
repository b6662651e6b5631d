"""How much memory this process and all that it started hold, now and at most."""

from __future__ import annotations

import contextlib
import threading
from typing import Final, Self

import psutil

_EVERY_S: Final = 0.1


class MemoryMonitor:
    """Watches the resident memory of a process and its descendants while it is entered.

    Pages that processes share count once for each, so the figure is an upper bound.
    """

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self.peak_bytes = max(self.peak_bytes, resident_bytes())
            if self._done.wait(_EVERY_S):
                return


def resident_bytes() -> int:
    """Resident bytes of this process and all its descendants."""
    me, found = psutil.Process(), 0
    for process in [me, *me.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            found += process.memory_info().rss
    return found
