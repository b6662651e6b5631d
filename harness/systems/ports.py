"""Free ports, leased for a run, so that simultaneous runs and test workers never collide.

A lease locks bytes of a file of the user's own, a byte for each port; the kernel frees a lock when
its process ends. Ports lie below the range from which the kernel picks the local ends of
connections, so a broker that was killed finds its port still free when it restarts."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import socket
import stat
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

from node.formats.errors import FloodmarkError
from node.formats.host_errors import reason
from node.formats.removal import try_to_remove

LOWEST: Final = 10_000
HIGHEST: Final = 32_000
_SOCKETS: Final = "floodmark-sockets-"
_LONGEST_FOLDER: Final = 60
"""In bytes: the name of a socket, a path, has at most 107."""
_EPHEMERAL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")


class NoFreePort(FloodmarkError):
    """Raised when every port of the range is taken."""


class PortLease:
    """Ports that no other process leases until `release`, or until this process ends."""

    def __init__(self, count: int, folder: Path | None = None) -> None:
        """Lease `count` ports; the locks live in `folder` (default: one that belongs to the user).

        Raises NoFreePort when there are not enough.
        """
        self._file = _lock_file(folder_of_locks() if folder is None else folder)
        self.ports: list[int] = []
        for port in _candidates():
            if len(self.ports) == count:
                return
            if _try_lock(self._file, port):
                if is_free(port):
                    self.ports.append(port)
                else:
                    _set_lock(self._file, fcntl.F_UNLCK, port)
        if len(self.ports) < count:
            self.release()
            raise NoFreePort(
                f"{count} free ports are needed between {LOWEST} and {HIGHEST}, but there are fewer"
            )

    def release(self) -> None:
        """Free the ports for other processes."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        self.ports.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


@contextlib.contextmanager
def socket_folder() -> Iterator[Path]:
    """Make a folder for the Unix sockets of a run, which only this user may enter, and remove it at
    the end. First remove those of runs that were killed."""
    place = tempfile.gettempdir()
    home = Path(place if len(os.fsencode(place)) <= _LONGEST_FOLDER else "/tmp")
    for left in home.glob(f"{_SOCKETS}*"):
        with contextlib.suppress(OSError), _locked(left):
            if left.lstat().st_uid == os.getuid():
                try_to_remove(left)
    made = Path(tempfile.mkdtemp(dir=home))
    with _locked(made):
        # It gets its name when it is locked.
        folder = made.rename(home / f"{_SOCKETS}{made.name}")
        try:
            yield folder
        finally:
            try_to_remove(folder)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a folder, until this process ends at the latest. Raises OSError if another has it."""
    opened = os.open(folder, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(opened)


def folder_of_locks() -> Path:
    """Return the folder of this user's locks; make it if it is missing. It is in the temporary
    folder, or in the home folder if another user has taken its name there. Raises FloodmarkError if
    it cannot be made in either."""
    places = [
        Path(tempfile.gettempdir()) / f"floodmark-ports-{os.getuid()}",
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "floodmark" / "ports",
    ]
    reasons = []
    for place in places:
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = place.lstat()
        except OSError as error:
            reasons.append(f"{place}: {reason(error)}")
            continue
        if found.st_uid == os.getuid() and stat.S_ISDIR(found.st_mode):
            return place
        reasons.append(f"{place}: belongs to somebody else")
    raise FloodmarkError(f"no folder for the locks of ports can be had ({'; '.join(reasons)})")


def _lock_file(folder: Path) -> int:
    """Return the open file whose bytes are locked; other leases, in this process too, open it
    again."""
    try:
        return os.open(folder / "ports.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise FloodmarkError(
            f"{folder}: the locks of ports cannot be kept there: {reason(error)}"
        ) from None


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


def _try_lock(file: int, port: int) -> bool:
    """Return whether the lock of a port could be had."""
    try:
        _set_lock(file, fcntl.F_WRLCK, port)
    except OSError:
        return False
    return True


def _set_lock(file: int, kind: int, port: int) -> None:
    """Lock or unlock the byte of a port. The lock belongs to the open file, not to the process: so
    two leases of one process exclude each other, and each gives back only its own."""
    # struct flock: type, whence, start, length, process (must be 0).
    fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack("hhqqq", kind, os.SEEK_SET, port, 1, 0))


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Return whether a server could listen there now (as ZeroMQ does, with SO_REUSEADDR)."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
