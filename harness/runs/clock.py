"""The one clock of a run, and ways to let time pass in it."""

from __future__ import annotations

import time
from typing import Final, Protocol

LOOK_US: Final = 4_000


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
