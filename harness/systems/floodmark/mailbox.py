"""ZeroMQ for clients: one receiving socket for all clients of a process, and one sending socket for
each address.

A message names its receiver and its sender, so each client is a node of its own to the link hub,
although they share a process. Delivery is best effort: a message that cannot leave at once is
dropped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import zmq

from node.formats import wire
from node.formats.errors import FloodmarkError
from node.formats.host_errors import reason
from node.formats.messages import AnyMessage
from node.formats.wire import sender
from node.runtime.curve import CurveKeys, Gate

EVERYONE_ELSE: Final = "*"
_QUEUE_MESSAGES: Final = 10_000
_DRAIN_MESSAGES: Final = 256
_DRAIN_BYTES: Final = 32 << 20
_RECONNECT_MS: Final = 20
_RECONNECT_MAX_MS: Final = 200
_NOW: Final = int(zmq.NOBLOCK)


class ZmqMailbox:
    """The sockets of the clients of one process.

    `peers` maps brokers to addresses, and "*" to the address of all others (the hub). A frame above
    `max_message_bytes` is refused, and its connection is closed. `keys` are those of this process,
    if the run has keys: then the code that waits for mail must call `gate.serve`, which admits new
    connections."""

    def __init__(
        self,
        bind: str,
        peers: Mapping[str, str],
        *,
        max_message_bytes: int,
        keys: CurveKeys | None = None,
    ) -> None:
        """Open the sockets. Raises FloodmarkError when `bind` (tcp://host:port) is taken."""
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.gate = Gate(self.context, keys)
        self.inbox = self.context.socket(zmq.PULL)
        self.gate.listen(self.inbox)
        self.inbox.set(zmq.LINGER, 0)
        self.inbox.set(zmq.RCVHWM, _QUEUE_MESSAGES)
        self.inbox.set(zmq.MAXMSGSIZE, max_message_bytes)
        try:
            self.inbox.bind(bind)
        except zmq.ZMQError as error:
            self.context.destroy(linger=0)
            raise FloodmarkError(f"clients cannot listen on {bind}: {reason(error)}") from None
        by_address = {address: self._connect(address) for address in set(peers.values())}
        self._outlets = {peer: by_address[address] for peer, address in peers.items()}
        self._default = self._outlets.get(EVERYONE_ELSE)
        self.dropped = 0

    def drain(self) -> list[list[bytes]]:
        """Return the messages that have arrived, as frames, up to a bound; also admit new
        connections."""
        self.gate.serve()
        return self.receive()[0]

    def receive(self) -> tuple[list[list[bytes]], bool]:
        """Return the arrived messages as frames, up to a bound, and whether those are all."""
        found: list[list[bytes]] = []
        size = 0
        try:
            while len(found) < _DRAIN_MESSAGES and size < _DRAIN_BYTES:
                frames = self.inbox.recv_multipart(_NOW, copy=False)
                message = [frame.bytes for frame in frames]
                size += sum(map(len, message))
                if self.gate.admits(frames[0], sender(message[0])):
                    found.append(message)
        except zmq.Again:
            return found, True
        return found, False

    def send(self, sender: str, to: str, message: AnyMessage, body: bytes | None) -> None:
        """Send a message at once; drop it if that is impossible."""
        outlet = self._outlets.get(to, self._default)
        if outlet is None:
            self.dropped += 1
            return
        try:
            outlet.send_multipart(wire.encode(to, sender, message, body), _NOW)
        except zmq.Again:
            self.dropped += 1

    def close(self) -> None:
        """Close all sockets; messages that are still queued are lost."""
        self.context.destroy(linger=0)

    def _connect(self, address: str) -> zmq.Socket[bytes]:
        outlet = self.context.socket(zmq.PUSH)
        outlet.set(zmq.LINGER, 0)
        outlet.set(zmq.IMMEDIATE, 1)
        outlet.set(zmq.SNDHWM, _QUEUE_MESSAGES)
        outlet.set(zmq.RECONNECT_IVL, _RECONNECT_MS)
        outlet.set(zmq.RECONNECT_IVL_MAX, _RECONNECT_MAX_MS)
        self.gate.speak(outlet, address)
        outlet.connect(address)
        return outlet
