"""ZeroMQ around one node: the socket it receives on, and one socket for each address it sends to.

The module knows frames and addresses, not what messages mean."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import Final

import zmq

from node.core.api import Outgoing
from node.formats import wire
from node.formats.wire import MAX_FRAME_BYTES
from node.runtime.readiness import Readiness
from node.runtime.sockets import Context, Outlets, bind_pull, drain

DRAIN_MESSAGES: Final = 512
DRAIN_BYTES: Final = 8 << 20
QUEUE_MESSAGES: Final = 1000
_LOOK_MS: Final = 2


class Inbox:
    """The socket for messages to this node, bound at `address` (of ZeroMQ). `wake_fd` is a
    descriptor whose readability ends a wait; the wait empties it. Raises CannotBind."""

    def __init__(self, context: Context, address: str, wake_fd: int) -> None:
        self._socket = bind_pull(context, address, QUEUE_MESSAGES, MAX_FRAME_BYTES)
        self._wake_fd = wake_fd
        self._watched_fd = -1
        self._ready = Readiness()
        self._ready.watch(wake_fd)
        self._ready.watch(self._socket)

    def watch(self, fd: int) -> None:
        """Let a wait also end when `fd` is readable; the caller reads it."""
        self._watched_fd = fd
        self._ready.watch(fd)

    def wait(self, timeout_ms: int) -> bool:
        """Wait until a message may be here or a signal came, at most `timeout_ms`. Return whether
        the watched descriptor is readable. Call `drain` before the next wait."""
        ready = self._ready.wait(timeout_ms)
        if self._wake_fd in ready:
            os.read(self._wake_fd, 4096)
        return self._watched_fd in ready

    def drain(self) -> tuple[list[list[bytes]], bool]:
        """Return the messages that have arrived, as `node.runtime.sockets.drain`."""
        found, all_of_it = drain(self._socket, DRAIN_MESSAGES, DRAIN_BYTES)
        if not all_of_it:
            self._ready.again(self._socket)
        return found, all_of_it

    def close(self) -> None:
        self._socket.close()


class Outbox(Outlets):
    """The sockets for messages of `node` to its peers."""

    def __init__(self, context: Context, node: str, peers: dict[str, str]) -> None:
        super().__init__(context, peers, QUEUE_MESSAGES)
        self._node = node

    def wait_connected(self, timeout_ms: int) -> None:
        """Wait up to `timeout_ms` for the connections to come up, then go on without the rest."""
        end = time.monotonic() + timeout_ms / 1000
        waiting = list(self.all)
        while waiting and time.monotonic() < end:
            waiting = [one for one in waiting if not one.poll(_LOOK_MS, zmq.POLLOUT)]

    def send(self, messages: Iterable[Outgoing]) -> None:
        """Send messages in order; drop and count those that cannot leave at once."""
        for out in messages:
            self.send_to(out.to, wire.encode(out.to, self._node, out.message, out.body))

    def close(self, linger_ms: int) -> None:
        """Close the sockets; messages under way have up to `linger_ms` to leave."""
        for socket in self.all:
            socket.close(linger_ms)
