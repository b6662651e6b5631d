"""Free ports, leased for a run, so that runs side by side and test workers never collide.

A lease is a locked file per port in a folder of the user's own; the lock ends with the process
that holds it, however that ends. Ports lie below the range from which the kernel picks the local
ends of connections: a broker that was killed finds its port still free when it comes back.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

from node.formats.errors import FloodmarkError

LOWEST: Final = 10_000
HIGHEST: Final = 32_000
_EPHEMERAL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")


class NoFreePort(FloodmarkError):
    """Every port of the range is taken."""


class PortLease:
    """Some ports that nobody else will lease until `release`, or until this process ends."""

    def __init__(self, count: int, folder: Path | None = None) -> None:
        """Lease `count` ports; the locks live in `folder` (default: a temporary folder per user).

        Raises NoFreePort when there are not enough.
        """
        self._locks: list[int] = []
        self.ports: list[int] = []
        folder = lock_folder() if folder is None else folder
        for port in _candidates():
            if len(self.ports) == count:
                return
            lock = _try_lock(folder / f"{port}.lock")
            if lock is None:
                continue
            if not _is_free(port):
                os.close(lock)
                continue
            self._locks.append(lock)
            self.ports.append(port)
        if len(self.ports) < count:
            self.release()
            raise NoFreePort(
                f"{count} free ports are needed between {LOWEST} and {HIGHEST}, but there are fewer"
            )

    def release(self) -> None:
        """Give the ports back."""
        while self._locks:
            os.close(self._locks.pop())
        self.ports.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def lock_folder() -> Path:
    """The folder of this user's locks, made when it is missing."""
    folder = Path(tempfile.gettempdir()) / f"floodmark-ports-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise FloodmarkError(f"{folder}: cannot be made: {error.strerror}") from None
    return folder


def _candidates() -> Iterator[int]:
    """All ports of the range once, from a random place on: neighbours rarely meet."""
    top = HIGHEST
    with contextlib.suppress(OSError, ValueError, IndexError):
        lowest_ephemeral = int(_EPHEMERAL.read_text().split()[0])
        if lowest_ephemeral > LOWEST + 1000:
            top = min(HIGHEST, lowest_ephemeral)
    span = top - LOWEST
    start = random.SystemRandom().randrange(span)
    return (LOWEST + (start + step) % span for step in range(span))


def _try_lock(file: Path) -> int | None:
    """The descriptor that holds the lock; None when somebody else has it."""
    lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock


def _is_free(port: int) -> bool:
    """Whether a server could listen there now (as ZeroMQ does, with SO_REUSEADDR)."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
