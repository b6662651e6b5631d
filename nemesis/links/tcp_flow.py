"""The bytes of one direction of a connection: a queue for those that rules hold or delay, in order,
with a bound.

While no rule is about the direction and nothing waits, the proxy writes past the queue. Its bound
is back-pressure: if it is full, the proxy stops reading from the source, so the sender's own
buffers fill, as with a receiver that does not read."""

from __future__ import annotations

import asyncio
import enum
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from nemesis.links.tcp_rules import OPEN, WINDOW_BYTES, FlowState

QUEUE_BYTES: Final = 512 * 1024
SLICE_S: Final = 0.05
"""A slowed flow passes bytes in slices of this length of time."""


class End(enum.Enum):
    """The way in which a source of bytes ended."""

    FIN = "it will send no more"
    RST = "the connection is gone"


class Destination(Protocol):
    """A receiver of the bytes of a `Flow`, and of its end."""

    def write(self, data: bytes) -> None: ...

    def finish(self, end: End) -> None:
        """Send no more: a FIN, or a RST, which ends the other direction too."""
        ...


class Flow:
    """One direction of a connection. All calls are in the thread of the event loop. `pause` is
    called with True if the source must not be read, and with False if it may again. `on_held` and
    `on_delayed` are called with the numbers of the rules that keep bytes waiting."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        rng: random.Random,
        pause: Callable[[bool], None],
        on_held: Callable[[Sequence[int]], None],
        on_delayed: Callable[[Sequence[int]], None],
    ) -> None:
        self._loop = loop
        self._rng = rng
        self._pause = pause
        self._on_held = on_held
        self._on_delayed = on_delayed
        self._queue: deque[tuple[float, bytes | End]] = deque()
        self._waiting = 0
        self._state = OPEN
        self._window = WINDOW_BYTES
        self._last_due = 0.0
        self._next_slice = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._destination: Destination | None = None
        self._destination_full = False
        self._paused = False
        self._closed = False
        self.is_clear = False
        """Whether bytes may pass the queue: nothing waits, and no rule is about it."""

    def lead_to(self, destination: Destination) -> None:
        """Set the receiver. Bytes from before are delayed as if they came now, because the rules
        about them are known only now."""
        self._queue = deque((self._due(), part) for _, part in self._queue)
        if self._queue and self._state.shaped_by:
            self._on_delayed(self._state.shaped_by)
        self._destination = destination
        self.pump()

    def apply(self, state: FlowState) -> None:
        """Put the rules in `state` in force instead of the present ones."""
        if state.unacknowledged_by and not self._state.unacknowledged_by:
            self._window = WINDOW_BYTES
        if not state.bytes_per_s:
            self._next_slice = 0.0
        self._state = OPEN if state == OPEN else state
        self._note_waiting()
        self.pump()

    def take(self, data: bytes) -> None:
        """Take bytes from the source, and pass them on when the rules allow it."""
        if self._closed:
            return
        self._queue.append((self._due(), data))
        self._waiting += len(data)
        if self._state.shaped_by:
            self._on_delayed(self._state.shaped_by)
        self.pump()
        self._note_waiting()

    def end(self, end: End) -> None:
        """Note that the source has ended. Waiting bytes still arrive before a FIN; before a RST
        they are lost, as the kernel of a sender drops them."""
        if self._closed:
            return
        if end is End.RST:
            self._queue.clear()
            self._waiting = 0
        self._queue.append((self._due(), end))
        self.pump()
        self._note_waiting()

    def destination_full(self, full: bool) -> None:
        """Note whether the destination takes no more bytes for now."""
        self._destination_full = full
        self.pump()

    def close(self) -> None:
        """Drop all bytes from now on."""
        self._closed = True
        self._destination = None
        self._queue.clear()
        self._waiting = 0
        self.is_clear = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def pump(self) -> None:
        """Pass on the bytes that are due, and schedule the next call."""
        if self._closed:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._queue and (destination := self._destination) is not None:
            wake = self._next(destination)
            if wake is None:
                continue
            if wake > 0:
                self._timer = self._loop.call_at(wake, self.pump)
            break
        self.is_clear = self._destination is not None and not self._queue and self._state is OPEN
        self._pace()

    def _next(self, destination: Destination) -> float | None:
        """Pass the head of the queue on, or a part of it. None: done; else when to try again (0:
        when something changes)."""
        due, head = self._queue[0]
        state, now = self._state, self._loop.time()
        if state.blocked_by or self._destination_full:
            return 0
        if state.unacknowledged_by and self._window <= 0:
            return 0
        wake = max(due, self._next_slice)
        if wake > now:
            return wake
        if isinstance(head, End):
            self._queue.popleft()
            destination.finish(head)
            return None
        most = self._window if state.unacknowledged_by else len(head)
        if state.bytes_per_s:
            most = min(most, max(1, int(state.bytes_per_s * SLICE_S)))
        part = head if most >= len(head) else head[:most]
        if part is head:
            self._queue.popleft()
        else:
            self._queue[0] = (due, head[most:])
        self._waiting -= len(part)
        if state.unacknowledged_by:
            self._window -= len(part)
        if state.bytes_per_s:
            self._next_slice = now + len(part) / state.bytes_per_s
        destination.write(part)
        return None

    def _due(self) -> float:
        """Return the time at which bytes that arrive now may pass, never before earlier ones."""
        wait = sum(
            max(0.0, delay + (2 * self._rng.random() - 1) * jitter)
            for delay, jitter in self._state.delays
        )
        self._last_due = max(self._last_due, self._loop.time() + wait if wait else 0.0)
        return self._last_due

    def _note_waiting(self) -> None:
        if not self._queue:
            return
        if self._state.blocked_by:
            self._on_held(self._state.blocked_by)
        if self._state.unacknowledged_by and self._window <= 0:
            self._on_held(self._state.unacknowledged_by)

    def _pace(self) -> None:
        """Read from the source only while there is room."""
        if self._closed:
            return
        limit = QUEUE_BYTES // 2 if self._paused else QUEUE_BYTES
        full = self._waiting >= limit or self._destination_full
        if full != self._paused:
            self._paused = full
            self._pause(full)
