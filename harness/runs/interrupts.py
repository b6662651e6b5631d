"""Ctrl-C (and SIGTERM): the first asks the run to end early and well, the second ends it now."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any, Self


class StopNow(BaseException):
    """The user wants out at once: leave nothing running, judge nothing."""


class Interrupts:
    """Counts requests to stop while it is entered. Main thread only.

    `at_once` makes the first one count like a second: set it when nothing is left to be ended well.
    `terminated`: one of them was a SIGTERM, which comes from no person: a time-out of a CI, say.
    """

    def __init__(self) -> None:
        self.asked = False
        self.terminated = False
        self.at_once = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.terminated |= number == signal.SIGTERM
        if self.asked or self.at_once:
            raise StopNow
        self.asked = True
