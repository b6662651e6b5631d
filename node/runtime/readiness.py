"""Waiting for several sockets of ZeroMQ and other descriptors at once.

A socket is waited for by the descriptor that ZeroMQ has for it (ZMQ_FD). That costs one system
call, while `zmq.Poller` looks into each socket before and after it waits. But such a descriptor
only announces new arrivals: after a wait that returns a socket, its owner must receive until
`zmq.Again`, or call `again`."""

from __future__ import annotations

import select
from typing import Any

import zmq

Waited = zmq.Socket[Any] | int
"""A socket, or a descriptor."""


class Readiness:
    """The sockets and descriptors to wait for. The first wait after `watch` always returns a
    socket, because an arrival before it is not announced."""

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
        """Note that a socket has more to receive: the next wait returns it at once."""
        self._again[what] = None

    def wait(self, timeout_ms: int) -> list[Waited]:
        """Wait for readable sockets, at most `timeout_ms`, and return them. A returned socket may
        have nothing to read."""
        again = self._again
        found = [self._by_fd[fd] for fd, _ in self._poll.poll(0 if again else timeout_ms)]
        if again:
            found += [what for what in again if what not in found]
            again.clear()
        return found
