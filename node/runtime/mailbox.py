"""ZeroMQ between the processes of a run: how sockets are opened, read and written, and the inbox
and outbox of a node. The module knows frames and addresses, not what messages mean.

Delivery is best effort, as the core expects: a message that cannot leave at once (no connection, a
full queue) is dropped. A message to a process that is not connected is not queued (IMMEDIATE), so
one that comes back gets no stale messages."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import zmq

from node.core.api import Outgoing
from node.formats import wire
from node.formats.errors import FloodmarkError
from node.formats.host_errors import reason
from node.runtime.readiness import Readiness

EVERYONE_ELSE: Final = "*"
"""Key of a map of addresses: the hub, for all receivers without an address of their own."""
MAX_FRAMES: Final = 8
"""Of one message: more are read and forgotten, and the message is not understood."""
RECONNECT_MS: Final = 20
RECONNECT_MAX_MS: Final = 100
"""The pauses between attempts to connect."""

DRAIN_MESSAGES: Final = 512
DRAIN_BYTES: Final = 8 << 20
QUEUE_MESSAGES: Final = 1000
_LOOK_MS: Final = 2

# Plain integers: or-ing zmq's own flags costs more than sending a frame.
NOW: Final = int(zmq.NOBLOCK)
MORE: Final = int(zmq.NOBLOCK) | int(zmq.SNDMORE)

Socket = zmq.Socket[bytes]
Context = zmq.Context[Socket]


class CannotBind(FloodmarkError):
    """An address cannot be used: most often another process has it."""

    exit_code = 73


def bind_pull(context: Context, address: str, queue: int, most_bytes: int) -> Socket:
    """Return a socket that receives at `address`, frames of at most `most_bytes`. Raises
    CannotBind."""
    socket = context.socket(zmq.PULL)
    socket.set(zmq.LINGER, 0)
    socket.set(zmq.RCVHWM, queue)
    socket.set(zmq.MAXMSGSIZE, most_bytes)
    try:
        socket.bind(address)
    except zmq.ZMQError as error:
        socket.close()
        raise CannotBind(f"cannot listen on {address}: {reason(error)}") from None
    return socket


def connect_push(context: Context, address: str, queue: int) -> Socket:
    """Return a socket that sends to `address`, once it is connected. Raises CannotBind for what is
    no address."""
    socket = context.socket(zmq.PUSH)
    socket.set(zmq.LINGER, 0)
    socket.set(zmq.IMMEDIATE, 1)
    socket.set(zmq.SNDHWM, queue)
    socket.set(zmq.RECONNECT_IVL, RECONNECT_MS)
    socket.set(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS)
    try:
        socket.connect(address)
    except (zmq.ZMQError, ValueError, TypeError) as error:
        socket.close()
        raise CannotBind(f"cannot connect to {address}: {reason(error)}") from None
    return socket


def drain(socket: Socket, most: int, most_bytes: int) -> tuple[list[list[bytes]], bool]:
    """Return the messages that have arrived, each as its frames, and whether none is left. Their
    number is bounded, so that a turn ends however many arrive."""
    found: list[list[bytes]] = []
    receive = socket.recv
    size = 0
    try:
        while len(found) < most and size < most_bytes:
            frame = receive(NOW, copy=False)
            frames = [frame.bytes]
            while frame.more:
                frame = receive(NOW, copy=False)
                if len(frames) < MAX_FRAMES:
                    frames.append(frame.bytes)
            size += len(frames[-1])
            found.append(frames)
    except zmq.Again:
        return found, True
    return found, False


class Outlets:
    """The sockets to the peers of a process: `peers` maps a receiver, or EVERYONE_ELSE, to an
    address. `dropped` counts messages that could not leave. Raises CannotBind."""

    def __init__(self, context: Context, peers: Mapping[str, str], queue: int) -> None:
        by_address = {a: connect_push(context, a, queue) for a in dict.fromkeys(peers.values())}
        self._by_peer = {peer: by_address[address] for peer, address in peers.items()}
        self._default = self._by_peer.get(EVERYONE_ELSE)
        self.all = list(by_address.values())
        self.dropped = 0

    def send_to(self, to: str, frames: Sequence[bytes]) -> None:
        """Send a message; drop and count it if it cannot leave at once."""
        socket = self._by_peer.get(to, self._default)
        if socket is None:
            self.dropped += 1
            return
        *first, last = frames
        try:
            for frame in first:
                socket.send(frame, MORE)
            socket.send(last, NOW)
        except zmq.Again:
            # ZeroMQ has taken back the frames before, if there were any.
            self.dropped += 1


class Inbox:
    """The socket for messages to this node, bound at `address` (of ZeroMQ). `wake_fd` is a
    descriptor whose readability ends a wait; the wait empties it. Raises CannotBind."""

    def __init__(self, context: Context, address: str, wake_fd: int) -> None:
        self._socket = bind_pull(context, address, QUEUE_MESSAGES, wire.MAX_FRAME_BYTES)
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
        """Return the messages that have arrived, as the function `drain`."""
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
