"""The one clock of a run, and how time passes in a real run."""

from __future__ import annotations

import time
from typing import Final, Protocol

LOOK_US: Final = 4_000


def now_us() -> int:
    """The host's monotonic clock in microseconds: one clock for all processes of a run."""
    return time.monotonic_ns() // 1000


class Pace(Protocol):
    """A clock, and a way to let time pass: real time, or a simulator's."""

    def now_us(self) -> int:
        """The clock of the run, in microseconds."""
        ...

    def wait(self, until_us: int) -> None:
        """Let time pass until `until_us` at the latest; sooner when there may be news."""
        ...


class RealPace:
    """Real time: sleeps a little, for news arrive at any moment."""

    def now_us(self) -> int:
        """The host's monotonic clock, in microseconds."""
        return now_us()

    def wait(self, until_us: int) -> None:
        """Sleep until the next look."""
        time.sleep(max(0, min(LOOK_US, until_us - now_us())) / 1e6)
