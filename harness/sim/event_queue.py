"""Virtual time, and the queue of events that drives it."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Final

START_US: Final = 1_000_000
"""The virtual time at the start. It is not 0, which means "never" in a run's phases."""

Action = Callable[[Any], None]


class EventQueue:
    """The events of a simulated run by time, then as they were added. `now_us` is the virtual time.
    Setting `stopping` makes `run_until_stopped` return after the current event."""

    __slots__ = ("_heap", "_number", "now_us", "stopping")

    def __init__(self) -> None:
        self.now_us = START_US
        self.stopping = False
        self._heap: list[tuple[int, int, Action, Any]] = []
        self._number = 0

    @property
    def events(self) -> int:
        """The number of events that were carried out so far."""
        return self._number - len(self._heap)

    def at(self, time_us: int, action: Action, what: Any = None) -> None:
        """Add an event: `action(what)` is called at `time_us`, which must not be in the past."""
        self._number += 1
        heappush(self._heap, (time_us, self._number, action, what))

    def has_more_now(self, action: Action) -> bool:
        """Return whether the next event is due now and calls `action`. It seldom is."""
        heap = self._heap
        return bool(heap) and heap[0][0] == self.now_us and heap[0][2] is action

    def take_all_now(self, action: Action) -> list[Any]:
        """Remove the next due events that call `action`; return their arguments."""
        heap, now_us, found = self._heap, self.now_us, []
        while heap and heap[0][0] == now_us and heap[0][2] is action:
            found.append(heappop(heap)[3])
        return found

    def run(self, until_us: int) -> None:
        """Carry out all events up to the time `until_us`."""
        heap = self._heap
        while heap and heap[0][0] <= until_us:
            self.now_us, _, action, what = heappop(heap)
            action(what)
        self.now_us = max(self.now_us, until_us)

    def run_until_stopped(self, until_us: int) -> None:
        """Carry out all events up to the time `until_us`, or until one of them sets `stopping`."""
        heap, self.stopping = self._heap, False
        while heap and heap[0][0] <= until_us:
            self.now_us, _, action, what = heappop(heap)
            action(what)
            if self.stopping:
                return
        self.now_us = max(self.now_us, until_us)
