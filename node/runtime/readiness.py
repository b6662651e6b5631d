"""Waiting for several sockets of ZeroMQ and other descriptors at once.

A socket is waited for by the descriptor that ZeroMQ has for it (ZMQ_FD). That costs one system
call, where `zmq.Poller` looks into each socket before and after it waits. But such a descriptor
only tells of news: after a wait that names a socket, its owner receives until `zmq.Again`, or says
`again`.
"""

from __future__ import annotations

import select
from typing import Any

import zmq

Waited = zmq.Socket[Any] | int
"""A socket, or a descriptor."""


class Readiness:
    """The sockets and descriptors that can be read. The first wait after `watch` names a socket in
    any case, because an arrival before it gives no event."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._by_fd: dict[int, Waited] = {}
        self._again: dict[Waited, None] = {}

    def watch(self, what: Waited) -> None:
        fd = what if isinstance(what, int) else int(what.get(zmq.FD))
        self._by_fd[fd] = what
        self._poll.register(fd, select.POLLIN)
        if not isinstance(what, int):
            self.again(what)

    def again(self, what: Waited) -> None:
        """Note that a socket has more to receive: the next wait ends at once, and names it."""
        self._again[what] = None

    def wait(self, timeout_ms: int) -> list[Waited]:
        """Wait for readable sockets, or for `timeout_ms`; return them. A returned socket may have
        nothing to read."""
        again = self._again
        found = [self._by_fd[fd] for fd, _ in self._poll.poll(0 if again else timeout_ms)]
        if again:
            found += [what for what in again if what not in found]
            again.clear()
        return found
