"""The one clock of a run, ways to let time pass in it, and a thread that repeats a call."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, Protocol, Self

LOOK_US: Final = 4_000
ENDS_S: Final = 60.0
"""How long the last look may take until nobody waits for it any more."""


def now_us() -> int:
    """Return the host's monotonic clock in microseconds: one clock for all processes of a run."""
    return time.monotonic_ns() // 1000


class Pace(Protocol):
    """A clock, and a way to let time pass: real time, or a simulator's."""

    def now_us(self) -> int:
        """Return the monotonic time of the run, in microseconds."""

    def wait(self, until_us: int) -> None:
        """Let time pass until `until_us` at most; a simulator returns after any event."""


class RealPace:
    """Real time: `wait` sleeps for a short while only, because news may arrive at any moment."""

    def now_us(self) -> int:
        """Return the host's monotonic clock, in microseconds."""
        return now_us()

    def wait(self, until_us: int) -> None:
        """Sleep until `until_us`, but for `LOOK_US` at most."""
        time.sleep(max(0, min(LOOK_US, until_us - now_us())) / 1e6)


class PeriodicThread:
    """A thread that calls a function at once and then at intervals within the context.

    Afterwards the thread has ended, unless a call hangs. An error of the function ends the calls
    and is raised then, so a caller does not take incomplete results for complete ones."""

    def __init__(self, look: Callable[[], object], every_s: float, name: str) -> None:
        """`name` is that of the thread."""
        self._look = look
        self._every_s = every_s
        self._done = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._watch, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._done.set()
        self._thread.join(ENDS_S)
        if self._failed is not None and kind is None:
            raise self._failed

    def _watch(self) -> None:
        try:
            self._look()
            while not self._done.wait(self._every_s):
                self._look()
        except BaseException as error:
            self._failed = error
