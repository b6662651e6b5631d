"""Breakpoints: a broker's process stops at an exact place of a turn until it is let go.

For the harness that tests the broker, and for nobody else: a kill or a cut can so be put between
the commit of a write and its acknowledgement. The harness arms breakpoints through a pipe, ahead of
time; each arming replaces all of them and is confirmed. A process that stands at one writes no
trace, reads no message and sends nothing, while its connections stay up, as a hung process would.
"""

from __future__ import annotations

import select
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, Final, Literal

import msgspec

from node.trace import TraceEvent, matches


class Breakpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Stop in the turn that emits the `nth` trace event called `event` whose fields fit `match`.

    `before` "send": the turn is on disk and in the trace, and none of its messages has left, but
    for those marked at once. "commit": nothing of the turn is on disk, in the trace or sent.
    Events are counted from the arming on, in each process apart.
    """

    number: int
    event: str
    match: dict[str, Any] = {}
    nth: int = 1
    before: Literal["send", "commit"] = "send"


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """From the harness: these are all the breakpoints there are, as of `version`."""

    version: int
    armed: tuple[Breakpoint, ...]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """To the harness: `version` is in force; breakpoint `stopped` was reached (-1: none)."""

    version: int
    stopped: int = -1


_encoder: Final = msgspec.msgpack.Encoder()
_orders: Final = msgspec.msgpack.Decoder(Order)


class Breakpoints:
    """The breakpoints of one process. Without a pipe nobody could let it go: none stops it."""

    def __init__(
        self, node: str, incarnation: int, armed: Sequence[Breakpoint] = (),
        pipe: Connection | None = None,
    ) -> None:  # fmt: skip
        """`armed` are in force from the first turn on."""
        self._stamp = {"node": node, "incarnation": incarnation}
        self._armed = {point.number: point for point in armed}
        self._seen = dict.fromkeys(self._armed, 0)
        self._pipe = pipe
        self._open = pipe is not None
        self._version = 0
        self._tell()

    @property
    def wake_fd(self) -> int:
        """Becomes readable when there is an order to `obey`; -1 without a pipe."""
        return -1 if self._pipe is None else self._pipe.fileno()

    def obey(self) -> None:
        """Take what the harness has ordered since, without waiting."""
        while self._pipe is not None and self._open:
            try:
                if not self._pipe.poll():
                    return
                order = _orders.decode(self._pipe.recv_bytes())
            except (EOFError, OSError):
                # The harness is gone; the kernel ends this process too.
                self._open = False
                return
            self._armed = {point.number: point for point in order.armed}
            self._seen = {number: self._seen.get(number, 0) for number in self._armed}
            self._version = order.version
            self._tell()

    def reached(self, emitted: Sequence[TraceEvent]) -> tuple[Breakpoint, TraceEvent] | None:
        """Count the events of a turn; the breakpoint that they reach, with its event."""
        if not self._armed or not self._open:
            return None
        for event in emitted:
            for point in list(self._armed.values()):
                if event["event"] == point.event and matches(self._stamp | event, point.match):
                    self._seen[point.number] += 1
                    if self._seen[point.number] >= point.nth:
                        return point, event
        return None

    def stand(self, point: Breakpoint, signal_fd: int) -> None:
        """Stand at `point` until it is disarmed, or `signal_fd` is readable: asked to end."""
        self._tell(point.number)
        while self._open and point.number in self._armed:
            ready, _, _ = select.select([self.wake_fd, signal_fd], [], [])
            if signal_fd in ready:
                break
            self.obey()
        self._armed.pop(point.number, None)

    def _tell(self, stopped: int = -1) -> None:
        if self._pipe is not None and self._open:
            try:
                report = Report(version=self._version, stopped=stopped)
                self._pipe.send_bytes(_encoder.encode(report))
            except OSError:
                self._open = False
