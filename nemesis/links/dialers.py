"""Who is at the other end of a connection on this machine, without anybody's help.

The kernel's table of TCP sockets has the inode of the socket that dialed, and the folder of open
files of a process shows which inodes it holds. Nodes are known by their processes: the one that was
started, and all of its process group or session.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

_MAPPED: Final = b"0000000000000000FFFF0000"
"""What stands before an IPv4 address in the table of IPv6 sockets."""


class Ends(NamedTuple):
    """The two addresses of a connection (host, port), as the one who dialed sees them."""

    dialer: tuple[str, int]
    dialed: tuple[str, int]


class Dialers:
    """Names the owners of sockets. `proc` is the kernel's /proc."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._pids: dict[int, str] = {}
        self._last: list[int] = []

    def set_processes(self, name: str, pids: Sequence[int]) -> None:
        """From now on these processes, with their process groups and sessions, are `name`."""
        self._pids = {pid: who for pid, who in self._pids.items() if who != name}
        self._pids.update(dict.fromkeys(pids, name))

    def is_open(self, ends: Ends) -> bool:
        """Whether the one who dialed still has its socket."""
        return self._inode(ends) is not None

    def name_of(self, ends: Ends) -> str | None:
        """Who dialed; None when its process is unknown, or it is gone."""
        inode = self._inode(ends)
        if inode is None:
            return None
        wanted = f"socket:[{inode}]"
        for pid, name in self._candidates():
            if self._holds(pid, wanted):
                # The next to dial is often the one that dialed last.
                self._last = [pid]
                return name
        return None

    def _inode(self, ends: Ends) -> str | None:
        """The inode of the socket that dialed; None when it is closed."""
        for table, before in (("tcp", b""), ("tcp6", _MAPPED)):
            try:
                text = (self._proc / "self/net" / table).read_bytes()
            except OSError:
                continue
            at = text.find(b" ".join(b"%s%s" % (before, _hex(end)) for end in ends))
            if at >= 0:
                row = text[at : text.find(b"\n", at)].split()
                # local remote state queues timer retransmits uid timeout inode
                inode = row[8].decode() if len(row) > 8 else "0"
                return inode if inode != "0" else None
        return None

    def _candidates(self) -> list[tuple[int, str]]:
        """The processes that belong to a name, the one that dialed last first."""
        running = [int(entry) for entry in os.listdir(self._proc) if entry.isdigit()]
        found = []
        for pid in (*self._last, *(pid for pid in running if pid not in self._last)):
            name = self._name(pid)
            if name is not None:
                found.append((pid, name))
        return found

    def _name(self, pid: int) -> str | None:
        """Whose process it is: by itself, else by its group, else by its session."""
        if pid in self._pids:
            return self._pids[pid]
        try:
            return self._pids.get(os.getpgid(pid)) or self._pids.get(os.getsid(pid))
        except OSError:
            return None

    def _holds(self, pid: int, wanted: str) -> bool:
        folder = self._proc / str(pid) / "fd"
        try:
            entries = os.listdir(folder)
        except OSError:
            return False
        for entry in entries:
            try:
                if os.readlink(folder / entry) == wanted:
                    return True
            except OSError:
                continue
        return False


def _hex(end: tuple[str, int]) -> bytes:
    """An IPv4 address as the kernel's table writes it: the number in this machine's byte order."""
    host, port = end
    (number,) = struct.unpack("=I", socket.inet_aton(host))
    return b"%08X:%04X" % (number, port)
