"""What is to happen when: virtual time and the queue that drives it."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Final

START_US: Final = 1_000_000
"""Where virtual time begins: not at 0, which means "never" in a run's phases."""

Act = Callable[[Any], None]


class Agenda:
    """Events in the order of their time, and of their making where times are equal.

    `now_us` is virtual time in microseconds. `events` counts what has happened so far. `stopping`
    ends `run` after the event that set it; whoever reads it sets it back.
    """

    __slots__ = ("_heap", "_number", "events", "now_us", "stopping")

    def __init__(self) -> None:
        self.now_us = START_US
        self.events = 0
        self.stopping = False
        self._heap: list[tuple[int, int, Act, Any]] = []
        self._number = 0

    def at(self, time_us: int, act: Act, what: Any = None) -> None:
        """Have `act(what)` called at `time_us`, which is not in the past."""
        self._number += 1
        heappush(self._heap, (time_us, self._number, act, what))

    def more_now(self, act: Act) -> bool:
        """Whether `also_now` would find something: mostly not."""
        heap = self._heap
        return bool(heap) and heap[0][0] == self.now_us and heap[0][2] is act

    def also_now(self, act: Act) -> list[Any]:
        """Take out what follows at this very moment, if it is for `act` too, one after another."""
        heap, now_us, found = self._heap, self.now_us, []
        while heap and heap[0][0] == now_us and heap[0][2] is act:
            found.append(heappop(heap)[3])
        self.events += len(found)
        return found

    def run(self, until_us: int) -> None:
        """Let everything happen that is due until then, or until `stopping` is set."""
        heap = self._heap
        while heap and heap[0][0] <= until_us:
            self.now_us, _, act, what = heappop(heap)
            self.events += 1
            act(what)
            if self.stopping:
                return
        self.now_us = max(self.now_us, until_us)
