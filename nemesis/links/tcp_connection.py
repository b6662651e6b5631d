"""One connection through the proxy: the end that dialed, the node that it leads to, two flows.

A connection goes through phases. *naming*: it is accepted, and the proxy does not know yet who
dialed. *held*: a cut is between the two; the node knows nothing of the connection. *dialing*: the
proxy connects to the node. *up*. *over*."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections.abc import Callable
from typing import Final, Literal, cast

from nemesis.links.dialers import Ends
from nemesis.links.tcp_flow import End, Flow
from nemesis.links.tcp_rules import UNKNOWN, TcpRules

_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)

Phase = Literal["naming", "held", "dialing", "up", "over"]


class ConnectionEnd(asyncio.Protocol):
    """One of the two ends of a connection: its bytes go into the flow `out`, and it receives those
    of the other flow."""

    def __init__(self, connection: ProxiedConnection) -> None:
        self._connection = connection
        self._transport: asyncio.Transport | None = None
        self.gone = False  # its socket is closed
        self._finished = False
        self.out: Flow
        """What this end sends."""
        self.other: ConnectionEnd

    # -- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note that the socket is connected."""
        self._transport = cast(asyncio.Transport, transport)
        # Whatever the kernel does not take at once holds the source up.
        self._transport.set_write_buffer_limits(high=0)

    def data_received(self, data: bytes) -> None:
        """Pass on bytes that this end has sent."""
        if self.out.is_clear:
            self.other.write(data)
        else:
            self.out.take(data)

    def eof_received(self) -> bool:
        """Pass on that this end will send no more; it may still receive."""
        self._finished = True
        self._connection.finished(self, End.FIN)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the socket is gone: this end reset it, or the proxy closed it."""
        if not self.gone:
            self.gone = True
            self._connection.finished(self, End.RST)

    def pause_writing(self) -> None:
        """Note that this end does not read."""
        self.other.out.destination_full(True)

    def resume_writing(self) -> None:
        """Note that this end reads again."""
        self.other.out.destination_full(False)

    # -- called by flows and by the connection

    @property
    def ends(self) -> Ends | None:
        """The addresses of this end and of the proxy's listener; None if this end is gone."""
        if self._transport is None or self.gone:
            return None
        dialer = self._transport.get_extra_info("peername")
        dialed = self._transport.get_extra_info("sockname")
        return Ends(dialer[:2], dialed[:2]) if dialer and dialed else None

    def write(self, data: bytes) -> None:
        """Send bytes to this end."""
        if self._transport is not None and not self.gone:
            self._transport.write(data)

    def finish(self, end: End) -> None:
        """Tell this end that the other one has ended: with a FIN or a RST."""
        if self._transport is None or self.gone:
            return
        if end is End.FIN:
            try:
                # Nothing is buffered here (see `connection_made`), so this acts at once.
                self._transport.write_eof()
            except OSError:
                # It was reset meanwhile, which nobody notices after its own last byte.
                end = End.RST
        if end is End.RST:
            self.reset()
        self._connection.passed(end)

    def pause(self, paused: bool) -> None:
        """Stop or resume reading from this end."""
        # Reading on after the end of a stream would find its end again.
        if self._transport is None or self.gone or self._finished:
            return
        if paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def reset(self) -> None:
        """Close the socket at once, so that this end gets a RST."""
        if self._transport is not None and not self.gone:
            self.gone = True
            raw: socket.socket = self._transport.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self._transport.abort()

    def close(self) -> None:
        """Close the socket after all written bytes are sent."""
        if self._transport is not None and not self.gone:
            self.gone = True
            self._transport.close()


class ProxiedConnection:
    """One connection through the proxy: two ends and two flows. `on_over` is called once, when both
    ends are gone."""

    def __init__(
        self,
        number: int,
        node: str,
        rules: TcpRules,
        rng: random.Random,
        on_over: Callable[[ProxiedConnection], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        self.number = number
        self.node = node
        self.dialer = UNKNOWN
        self.phase: Phase = "naming"
        self._rules = rules
        self._on_over = on_over
        self._half_open: dict[int, ConnectionEnd] = {}
        self._fins = 0
        self.near = ConnectionEnd(self)
        self.far = ConnectionEnd(self)
        self.near.other, self.far.other = self.far, self.near
        for side in (self.near, self.far):
            side.out = Flow(
                loop,
                rng,
                side.pause,
                lambda numbers: rules.held(numbers, number),
                lambda numbers: rules.delayed(numbers, number),
            )

    def apply_rules(self) -> None:
        """Apply the rules in force again: they have changed, or it is known now who dialed."""
        if self.phase == "over":
            return
        self.near.out.apply(self._rules.state(self.number, self.dialer, self.node))
        self.far.out.apply(self._rules.state(self.number, self.node, self.dialer))

    def up(self) -> None:
        """Note that the node has accepted; pass on the bytes that came before."""
        self.phase = "up"
        self.apply_rules()
        self.near.out.lead_to(self.far)
        self.far.out.lead_to(self.near)

    def reset(self) -> None:
        """Reset the connection at both ends, at once."""
        self.near.reset()
        self.far.reset()
        self._end()

    def lose(self, rule: int, name: str) -> bool:
        """End the connection for the end `name` only; the other end learns of it at `recall`.
        Return False if the connection is not up."""
        if self.phase != "up" or self._half_open:
            return False
        loser = self.near if name == self.dialer else self.far
        self._half_open[rule] = loser.other
        loser.reset()
        loser.out.close()
        self._ignore(loser.other)
        return True

    def recall(self, rule: int) -> None:
        """Reset the connection if this rule ended it for one end only, to tell the other end."""
        if self._half_open.pop(rule, None) is not None:
            self.reset()

    def finished(self, side: ConnectionEnd, end: End) -> None:
        """Note that `side` has sent its last byte, or is gone."""
        if self.phase == "over" or self._half_open:
            return
        if side is self.near and self.phase == "held":
            # It gave up while its first packet was lost: the node never hears of it.
            self.reset()
            return
        side.out.end(end)
        if end is End.RST and self.phase != "up":
            self.reset()
        elif end is End.RST and side.other.gone:
            self._end()
        elif end is End.RST:
            self._ignore(side.other)

    def passed(self, end: End) -> None:
        """Note that the end of one direction has reached the other side."""
        self._fins += 1
        if end is End.RST or self._fins == 2:
            self.near.close()
            self.far.close()
            self._end()

    def _ignore(self, side: ConnectionEnd) -> None:
        """Stop reading from this end: its buffers fill, and its bytes stay unacknowledged."""
        side.out.close()
        side.pause(True)

    def _end(self) -> None:
        if self.phase != "over":
            self.phase = "over"
            self.near.out.close()
            self.far.out.close()
            self._on_over(self)
