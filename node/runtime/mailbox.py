"""ZeroMQ around one node: the socket it receives on, and one socket for each address it sends to.

The module knows frames and addresses, not what messages mean. Sending is best effort, as the core
expects: a message that cannot leave at once (no connection, a full queue) is dropped and counted. A
message to a peer that is not connected is not queued (IMMEDIATE), so a peer that comes back gets no
stale messages."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import Final

import zmq

from node.core.api import Outgoing
from node.formats import wire
from node.formats.errors import FloodmarkError
from node.formats.host_errors import reason
from node.formats.wire import MAX_FRAME_BYTES, sender
from node.runtime.curve import CurveKeys, Gate, speak
from node.runtime.readiness import Readiness

EVERYONE_ELSE: Final = "*"
"""Key of the address map: the hub, for all receivers without an address of their own."""

DRAIN_MESSAGES: Final = 512
DRAIN_BYTES: Final = 8 << 20
QUEUE_MESSAGES: Final = 1000
MAX_FRAMES: Final = 8
"""Of one message: more are read and forgotten, and the message is not understood."""
RECONNECT_MS: Final = 20
"""The fixed pause between attempts to connect."""


# Plain integers: or-ing zmq's own flags costs more than sending a frame.
_LOOK_MS: Final = 2
_NOW: Final = int(zmq.NOBLOCK)
_MORE: Final = int(zmq.NOBLOCK) | int(zmq.SNDMORE)


class CannotBind(FloodmarkError):
    """An address of the node cannot be used: most often another process has its port."""

    exit_code = 73


class Inbox:
    """The socket for messages to this node, bound at `address` (tcp://host:port). `wake_fd` is a
    descriptor whose readability ends a wait; the wait empties it. With `keys` only messages of the
    callers that they name are received, each under its own names."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        address: str,
        wake_fd: int,
        keys: CurveKeys | None = None,
    ) -> None:
        self._gate = Gate(context, keys)
        self._rejected = 0
        self._socket = context.socket(zmq.PULL)
        self._gate.listen(self._socket)
        self._socket.set(zmq.LINGER, 0)
        self._socket.set(zmq.RCVHWM, QUEUE_MESSAGES)
        self._socket.set(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
        try:
            self._socket.bind(address)
        except zmq.ZMQError as error:
            self._socket.close()
            raise CannotBind(f"cannot listen on {address}: {reason(error)}") from None
        self._wake_fd = wake_fd
        self._watched_fd = -1
        self._ready = Readiness()
        self._ready.watch(wake_fd)
        for socket in (self._socket, *self._gate.sockets):
            self._ready.watch(socket)

    def watch(self, fd: int) -> None:
        """Let a wait also end when `fd` is readable; the caller reads it."""
        self._watched_fd = fd
        self._ready.watch(fd)

    def wait(self, timeout_ms: int) -> bool:
        """Wait until a message may be here or a signal came, at most `timeout_ms`. Return whether
        the watched descriptor is readable. Call `drain` before the next wait."""
        watched = False
        for ready in self._ready.wait(timeout_ms):
            if ready is self._socket:
                continue
            if ready == self._wake_fd:
                os.read(self._wake_fd, 4096)
            elif ready == self._watched_fd:
                watched = True
            elif not self._gate.serve():
                self._ready.again(ready)
        return watched

    def serve_gate(self, timeout_ms: int) -> None:
        """Answer the handshake of a caller that connects within `timeout_ms`; read no message."""
        if any(socket.poll(timeout_ms) for socket in self._gate.sockets[:1]):
            self._gate.serve()

    def rejected(self) -> int:
        """Return the number of connections and messages refused since the last call."""
        before = self._rejected
        self._rejected = self._gate.rejected
        return self._rejected - before

    def drain(self) -> tuple[list[list[bytes]], bool]:
        """Return the messages that have arrived, each as its frames, and whether none is left.
        Their number is bounded, so that a turn ends however many arrive."""
        found: list[list[bytes]] = []
        receive, admits = self._socket.recv, self._gate.admits
        asks_nothing = self._gate.asks_nothing
        size = 0
        try:
            while len(found) < DRAIN_MESSAGES and size < DRAIN_BYTES:
                frame = receive(_NOW, copy=False)
                frames = [frame]
                while frame.more:
                    frame = receive(_NOW, copy=False)
                    if len(frames) < MAX_FRAMES:
                        frames.append(frame)
                size += len(frames[-1])
                message = [each.bytes for each in frames]
                if asks_nothing or admits(frame, sender(message[0])):
                    found.append(message)
        except zmq.Again:
            return found, True
        self._ready.again(self._socket)
        return found, False

    def close(self) -> None:
        self._socket.close()


class Outbox:
    """The sockets for messages of `node` to its peers; `peers` maps a receiver, or "*" for all
    others, to an address. `dropped` counts messages that could not leave. Raises CannotBind for an
    address that ZeroMQ does not understand."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        node: str,
        peers: dict[str, str],
        keys: CurveKeys | None = None,
    ) -> None:
        self._node = node
        self._sockets: dict[str, zmq.Socket[bytes]] = {}
        self.dropped = 0
        by_address: dict[str, zmq.Socket[bytes]] = {}
        for peer, address in peers.items():
            if address not in by_address:
                by_address[address] = _connect(context, address, keys)
            self._sockets[peer] = by_address[address]
        self._all = list(by_address.values())
        self._default = self._sockets.get(EVERYONE_ELSE)

    def wait_connected(self, timeout_ms: int, inbox: Inbox) -> None:
        """Wait up to `timeout_ms` for the connections to come up, then go on without the rest.
        Meanwhile `inbox` answers handshakes, since each end may be waiting for the other."""
        end = time.monotonic() + timeout_ms / 1000
        waiting = list(self._all)
        while waiting and time.monotonic() < end:
            inbox.serve_gate(0)
            waiting = [one for one in waiting if not one.poll(_LOOK_MS, zmq.POLLOUT)]

    def send(self, messages: Iterable[Outgoing]) -> None:
        """Send messages in order; drop and count those that cannot leave at once."""
        for out in messages:
            socket = self._sockets.get(out.to, self._default)
            if socket is None:
                self.dropped += 1
                continue
            *first, last = wire.encode(out.to, self._node, out.message, out.body)
            try:
                for frame in first:
                    socket.send(frame, _MORE)
                socket.send(last, _NOW)
            except zmq.Again:
                # ZeroMQ has taken back the frames before, if there were any.
                self.dropped += 1

    def close(self, linger_ms: int) -> None:
        """Close the sockets; messages under way have up to `linger_ms` to leave."""
        for socket in self._all:
            socket.close(linger_ms)


def _connect(
    context: zmq.Context[zmq.Socket[bytes]], address: str, keys: CurveKeys | None
) -> zmq.Socket[bytes]:
    socket = context.socket(zmq.PUSH)
    speak(keys, socket, address)
    socket.set(zmq.LINGER, 0)
    socket.set(zmq.IMMEDIATE, 1)
    socket.set(zmq.SNDHWM, QUEUE_MESSAGES)
    socket.set(zmq.RECONNECT_IVL, RECONNECT_MS)
    try:
        socket.connect(address)
    except zmq.ZMQError as error:
        socket.close()
        raise CannotBind(f"cannot connect to {address}: {reason(error)}") from None
    return socket
