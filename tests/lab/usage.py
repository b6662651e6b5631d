"""Use of the machine by this process and its descendants: memory, processor time."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import Final, Self

import psutil

_EVERY_S: Final = 0.2
_FAMILY_EVERY: Final = 10
"""To look for new processes takes as long as to ask some hundred for their memory."""


class MemoryMonitor:
    """A thread that measures the resident memory of this process and its descendants in the
    context; `peak_bytes` is the most. Shared pages count for each process: an upper bound. An error
    ends it and is raised at the end."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._done = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._watch, name="memory", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._done.set()
        self._thread.join()
        if self._failed is not None and kind is None:
            raise self._failed

    def _watch(self) -> None:
        me, members, turn = psutil.Process(), [os.getpid()], 0
        try:
            while not turn or not self._done.wait(_EVERY_S):
                if turn % _FAMILY_EVERY == 0:
                    members = [me.pid, *(child.pid for child in me.children(recursive=True))]
                turn += 1
                self.peak_bytes = max(self.peak_bytes, sum(map(_resident, members)))
        except BaseException as error:
            self._failed = error


def _resident(pid: int) -> int:
    """Return the resident bytes of a process, 0 if it is gone."""
    with contextlib.suppress(psutil.Error):
        return int(psutil.Process(pid).memory_info().rss)
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
