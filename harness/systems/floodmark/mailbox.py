"""ZeroMQ for clients: one receiving socket for all clients of a process, and one sending socket for
each address.

A message names its receiver and its sender, so each client is a node of its own to the link hub,
although they share a process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import zmq

from node.formats import wire
from node.formats.messages import AnyMessage
from node.runtime.mailbox import Context, Outlets, bind_pull, drain

_QUEUE_MESSAGES: Final = 10_000
_DRAIN_MESSAGES: Final = 256
_DRAIN_BYTES: Final = 32 << 20


class ZmqMailbox:
    """The sockets of the clients of one process.

    `peers` maps brokers to addresses, and "*" to the address of all others (the hub). A frame above
    `max_message_bytes` is refused, and its connection is closed."""

    def __init__(self, bind: str, peers: Mapping[str, str], *, max_message_bytes: int) -> None:
        """Open the sockets. Raises FloodmarkError when the address `bind` is taken."""
        self._context: Context = zmq.Context()
        try:
            self.inbox = bind_pull(self._context, bind, _QUEUE_MESSAGES, max_message_bytes)
            self._outlets = Outlets(self._context, peers, _QUEUE_MESSAGES)
        except BaseException:
            self.close()
            raise

    def receive(self) -> tuple[list[list[bytes]], bool]:
        """Return the arrived messages as frames, up to a bound, and whether those are all."""
        return drain(self.inbox, _DRAIN_MESSAGES, _DRAIN_BYTES)

    def send(self, sender: str, to: str, message: AnyMessage, body: bytes | None) -> None:
        """Send a message at once; drop it if that is impossible."""
        self._outlets.send_to(to, wire.encode(to, sender, message, body))

    def close(self) -> None:
        """Close all sockets; messages that are still queued are lost."""
        self._context.destroy(linger=0)
