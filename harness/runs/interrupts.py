"""Ctrl-C (and SIGTERM): the first asks the run to end early and well, the second ends it now, and
a third one does not even wait for that."""

from __future__ import annotations

import atexit
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, NoReturn, Self

from harness.runs.process_tree import kill_helpers

EXIT_STOPPED: Final = 2
"""The exit code of a command that was stopped: it says nothing about any run."""
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class StopNow(BaseException):
    """The user wants out at once: leave nothing running, judge nothing."""


@contextmanager
def ended_by_signals(*, for_good: bool) -> Iterator[None]:
    """Guard a whole command: SIGTERM raises StopNow in it, and a further signal ends the process
    with EXIT_STOPPED at once, so that none ends it with a code of its own. SIGINT is a
    KeyboardInterrupt, as ever, which may end less than the whole command.

    `for_good`: the process ends after the command, signals that come then change nothing, and no
    helper outlives it. Otherwise the handlers are as before afterwards. Outside the main thread
    nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    signal.signal(signal.SIGTERM, _stop_now)
    if for_good:
        # Libraries that are imported from here on tidy up before.
        atexit.register(kill_helpers)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if for_good else handler)


def _stop_now(number: int, frame: FrameType | None) -> NoReturn:
    for each in _SIGNALS:
        signal.signal(each, _leave)
    raise StopNow


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """End at once. The kernel ends the processes that the harness started with it, but for the
    helpers."""
    kill_helpers()
    os._exit(EXIT_STOPPED)


class Interrupts:
    """The requests to stop while it is entered. Main thread only.

    `at_once` makes the first one count like a second: set it when nothing is left to be ended well.
    `terminated`: one of them was a SIGTERM, which comes from no person: a time-out of a CI, say.
    """

    def __init__(self) -> None:
        self.asked = False
        self.terminated = False
        self.at_once = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        # A command that is being stopped is still being stopped when this one is left.
        stopping = signal.getsignal(signal.SIGTERM) is _leave
        stopping &= self._before[signal.SIGTERM] is _stop_now
        for number, handler in self._before.items():
            signal.signal(number, _leave if stopping else handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.terminated |= number == signal.SIGTERM
        if self.asked or self.at_once:
            _stop_now(number, frame)
        self.asked = True
