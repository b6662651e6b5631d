"""Free ports, leased for a run, so that simultaneous runs and test workers never collide.

A lease has an abstract Unix socket for each port, whose name the kernel frees when its process
ends; like a port it belongs to a network namespace. Ports lie below the range from which the kernel
picks the local ends of connections, so a broker that was killed finds its port still free when it
restarts."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

from node.formats.errors import FloodmarkError
from node.formats.host_errors import reason
from node.formats.owned_folder import OwnedFolder

LOWEST: Final = 10_000
HIGHEST: Final = 32_000
_LONGEST_FOLDER: Final = 60
"""In bytes: the name of a socket, a path, has at most 107."""
_EPHEMERAL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")


class NoFreePort(FloodmarkError):
    """Raised when every port of the range is taken."""


class PortLease:
    """Ports that no other process leases until `release`, or until this process ends."""

    def __init__(self, count: int) -> None:
        """Lease `count` ports. Raises NoFreePort when there are not enough, and FloodmarkError when
        this process may open no more sockets."""
        self._locks: list[socket.socket] = []
        self.ports: list[int] = []
        try:
            self._lease(count)
        except OSError as error:
            self.release()
            raise FloodmarkError(f"cannot lease {count} ports: {reason(error)}") from None
        if len(self.ports) < count:
            self.release()
            raise NoFreePort(
                f"{count} free ports are needed between {LOWEST} and {HIGHEST}, but there are fewer"
            )

    def _lease(self, count: int) -> None:
        for port in _candidates():
            if len(self.ports) == count:
                return
            if (lock := _lock_of(port)) is None:
                continue
            if is_free(port):
                self._locks.append(lock)
                self.ports.append(port)
            else:
                lock.close()

    def release(self) -> None:
        """Free the ports for other processes."""
        while self._locks:
            self._locks.pop().close()
        self.ports.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def socket_folder() -> OwnedFolder:
    """Make a folder for the Unix sockets of a run, in a place whose name is short."""
    place = tempfile.gettempdir()
    return OwnedFolder(Path(place if len(os.fsencode(place)) <= _LONGEST_FOLDER else "/tmp"))


def _candidates() -> Iterator[int]:
    """Return all ports of the range once, from a random place on: neighbours rarely meet."""
    top = HIGHEST
    with contextlib.suppress(OSError, ValueError, IndexError):
        lowest_ephemeral = int(_EPHEMERAL.read_text().split()[0])
        if lowest_ephemeral > LOWEST + 1000:
            top = min(HIGHEST, lowest_ephemeral)
    span = top - LOWEST
    start = random.SystemRandom().randrange(span)
    return (LOWEST + (start + step) % span for step in range(span))


def _lock_of(port: int) -> socket.socket | None:
    """Return a socket with the name that stands for a port, None if another lease has it."""
    lock = socket.socket(socket.AF_UNIX)
    try:
        lock.bind(f"\0floodmark-port-{port}")
    except OSError:
        lock.close()
        return None
    return lock


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Return whether a server could listen there now (as ZeroMQ does, with SO_REUSEADDR)."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
