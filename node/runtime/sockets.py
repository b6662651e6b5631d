"""The sockets of ZeroMQ between the processes of a run: how they are opened, read and written.

Delivery is best effort, as the core expects: a message that cannot leave at once (no connection, a
full queue) is dropped. A message to a process that is not connected is not queued (IMMEDIATE), so
one that comes back gets no stale messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import zmq

from node.formats.errors import FloodmarkError
from node.formats.host_errors import reason

EVERYONE_ELSE: Final = "*"
"""Key of a map of addresses: the hub, for all receivers without an address of their own."""
MAX_FRAMES: Final = 8
"""Of one message: more are read and forgotten, and the message is not understood."""
RECONNECT_MS: Final = 20
RECONNECT_MAX_MS: Final = 100
"""The pauses between attempts to connect."""

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
