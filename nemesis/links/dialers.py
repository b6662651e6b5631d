"""The process at the other end of a connection on this machine, from the kernel's table of sockets.

The kernel tells the inode of the socket that dialed (sock_diag(7), or else the table
/proc/net/tcp), and the folder of open files of a process shows which inodes it holds. A node is
recognized by its processes: the one that was started, all of its process group or session, and what
they started in the session of theirs."""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import psutil

_MAPPED: Final = b"0000000000000000FFFF0000"
"""What stands before an IPv4 address in the table of IPv6 sockets."""
_SOCK_DIAG: Final = 4
_BY_FAMILY: Final = 20
_REQUEST: Final = 1
_HEADER: Final = struct.Struct("=IHHII")
_QUERY: Final = struct.Struct("=BBBBI")
_NO_COOKIE: Final = b"\xff" * 8
_INODE_AT: Final = _HEADER.size + 4 + 48 + 16
"""In an answer: after family, state and timers, the two ends, and four counters."""
_ANSWER_S: Final = 1.0


class Ends(NamedTuple):
    """The two addresses of a connection (host, port), as the process that dialed sees them."""

    dialer: tuple[str, int]
    dialed: tuple[str, int]


class Dialers:
    """The names of the processes that may dial, and the search for the one that has a socket.
    `proc` is the kernel's /proc; with `ask` the kernel is asked for single sockets."""

    def __init__(self, proc: Path = Path("/proc"), *, ask: bool = True) -> None:
        self._proc = proc
        self._socket = _diagnostics() if ask else None
        self._pids: dict[int, str] = {}
        self._last: list[int] = []

    def set_processes(self, name: str, pids: Sequence[int]) -> None:
        """Give the processes `pids`, and the process groups and sessions that they lead, the name
        `name` from now on."""
        self._pids = {pid: who for pid, who in self._pids.items() if who != name}
        self._pids.update(dict.fromkeys(pids, name))

    def is_open(self, ends: Ends) -> bool:
        """Return whether the process that dialed still has its socket."""
        return self._inode(ends) is not None

    def name_of(self, ends: Ends) -> str | None:
        """Return the name of the process that dialed; None if it is unknown or gone."""
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
        """Return the inode of the socket that dialed; None if it is closed."""
        if self._socket is None:
            return self._inode_in_tables(ends)
        try:
            return _asked_for(self._socket, ends)
        except OSError:
            # A kernel without it, or one that filters it.
            self._socket = None
            return self._inode_in_tables(ends)

    def _inode_in_tables(self, ends: Ends) -> str | None:
        """Return the inode from the table of all sockets, which takes time if there are many."""
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

    def _candidates(self) -> Iterator[tuple[int, str]]:
        """Yield the processes that belong to a name, the likeliest first: the one that dialed last,
        those that were named, then all of their groups."""
        likely = dict.fromkeys((*self._last, *self._pids))
        for pid in likely:
            if (name := self._name(pid)) is not None:
                yield pid, name
        running = (int(entry) for entry in os.listdir(self._proc) if entry.isdigit())
        for pid in running:
            if pid not in likely and (name := self._name(pid)) is not None:
                yield pid, name

    def _name(self, pid: int) -> str | None:
        """Return the name of a process: its own, its group's, its session's, or else that of the
        process that started it, in the same session: a node is started in one of its own."""
        try:
            session, names = os.getsid(pid), self._pids
            if found := names.get(pid) or names.get(os.getpgid(pid)) or names.get(session):
                return found
            while pid > 1 and os.getsid(pid) == session:
                if pid in names:
                    return names[pid]
                pid = self._parent(pid)
        except OSError:
            # It has ended.
            pass
        return None

    def _parent(self, pid: int) -> int:
        """Return the process that started a process. Raises OSError if that has ended."""
        text = (self._proc / str(pid) / "stat").read_text()
        return int(text.rpartition(")")[2].split()[1])

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


def direct_connections(processes: Mapping[str, Collection[int]]) -> list[tuple[str, str, int]]:
    """Return the connections that nodes have with nothing between them, each once: the node that
    dialed, the node that was dialed, and its port. `processes` are those of each node. A port
    without a listener was dialed if the kernel does not give it to dialers."""
    listening, ends = set[tuple[str, int]](), dict[tuple[Any, Any], str]()
    for node, pids in processes.items():
        for pid in pids:
            with suppress(psutil.Error):
                for one in psutil.Process(pid).net_connections("tcp"):
                    if one.status == psutil.CONN_LISTEN:
                        listening.add((node, one.laddr.port))
                    elif one.status == psutil.CONN_ESTABLISHED:
                        ends[_plain(one.laddr), _plain(one.raddr)] = node
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    found = set()
    for (local, remote), node in ends.items():
        dialer, port = ends.get((remote, local), node), local[1]
        if dialer != node and ((node, port) in listening or not first <= port <= last):
            found.add((dialer, node, port))
    return sorted(found)


def _plain(address: Any) -> tuple[str, int]:
    """Return an address; one of IPv4 that a socket of IPv6 has, without its prefix."""
    return address.ip.removeprefix("::ffff:"), address.port


def _diagnostics() -> socket.socket | None:
    """Return a socket to ask the kernel about sockets; None if it has no such interface."""
    try:
        made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG)
    except OSError:
        return None
    made.settimeout(_ANSWER_S)
    return made


def _asked_for(diagnostics: socket.socket, ends: Ends) -> str | None:
    """Return a socket's inode; None if it is closed. Raises OSError if the kernel does not say."""
    ports = struct.pack("!HH", ends.dialer[1], ends.dialed[1])
    hosts = b"".join(socket.inet_aton(host).ljust(16, b"\0") for host, _ in ends)
    query = _QUERY.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF)
    body = query + ports + hosts + bytes(4) + _NO_COOKIE
    diagnostics.sendto(
        _HEADER.pack(_HEADER.size + len(body), _BY_FAMILY, _REQUEST, 1, 0) + body, (0, 0)
    )
    answer = diagnostics.recv(4096)
    _, kind, *_ = _HEADER.unpack_from(answer)
    if kind != _BY_FAMILY:
        (code,) = struct.unpack_from("=i", answer, _HEADER.size)
        if -code == errno.ENOENT:
            return None
        raise OSError(-code, os.strerror(-code))
    (inode,) = struct.unpack_from("=I", answer, _INODE_AT)
    return str(inode) if inode else None


def _hex(end: tuple[str, int]) -> bytes:
    """Return an IPv4 address as the kernel's table writes it: the number in this machine's byte
    order."""
    host, port = end
    (number,) = struct.unpack("=I", socket.inet_aton(host))
    return b"%08X:%04X" % (number, port)
