"""Copies of the simulated world: each is a process that continues with other choices.

`os.fork` copies nodes, disks, links, clients and the event queue at once, whatever they are made
of, and the copy is exact: compiled and uncompiled, with closures and random generators. One copy
runs at a time, and the world that it is a copy of waits. So there are never more processes than
worlds, and the memory of two worlds at most. A copy dies with its world, and ends after its limit.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import select
import signal
import time
from collections.abc import Iterator
from typing import Any, Final

from node.runtime.children import die_with_parent

LIMIT_S: Final = 600.0
"""How long a copy may run."""
MORE_BYTES: Final = 1 << 30
"""How much more memory a copy may use than its world has."""
_CHUNK: Final = 1 << 16


class WorldCopies:
    """The copies of one world. In a copy `is_copy` is true, and `deliver` ends the process."""

    def __init__(self) -> None:
        self.is_copy = False
        self.delivered: dict[int, Any] = {}
        """What each copy that did not fail has delivered, by its number."""
        self._out = -1

    def copy(self, number: int) -> bool:
        """Make a copy. True in the copy; False in the world itself, when the copy has ended."""
        reader, writer = os.pipe()
        parent = os.getpid()
        child = os.fork()
        if child:
            os.close(writer)
            with contextlib.suppress(EOFError, pickle.UnpicklingError):
                self.delivered[number] = pickle.loads(_whole(reader, child))
            return False
        try:
            os.close(reader)
            die_with_parent(parent)
            _limit_memory()
        except BaseException:
            os._exit(1)
        self.is_copy, self._out = True, writer
        return True

    def deliver(self, value: object) -> None:
        """End this copy with a value. Never returns."""
        with contextlib.suppress(BaseException), os.fdopen(self._out, "wb") as out:
            pickle.dump(value, out, protocol=pickle.HIGHEST_PROTOCOL)
        os._exit(0)

    @contextlib.contextmanager
    def nothing_escapes(self) -> Iterator[None]:
        """Whatever is raised here in a copy ends it without a value."""
        try:
            yield
        except BaseException:
            if self.is_copy:
                os._exit(1)
            raise


def _whole(reader: int, child: int) -> bytes:
    """All that a child writes until it ends; it is killed at its limit, and always reaped."""
    parts: list[bytes] = []
    end_s = time.monotonic() + LIMIT_S
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    try:
        while poll.poll(max(0.0, end_s - time.monotonic()) * 1000):
            part = os.read(reader, _CHUNK)
            if not part:
                return b"".join(parts)
            parts.append(part)
        return b""
    finally:
        os.close(reader)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _limit_memory() -> None:
    """A copy cannot take much more memory than it began with."""
    with open("/proc/self/statm", encoding="ascii") as file:
        pages = int(file.read().split()[0])
    limit = pages * resource.getpagesize() + MORE_BYTES
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard == resource.RLIM_INFINITY or limit <= hard:
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
