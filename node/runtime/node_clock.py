"""The clock that a node measures its timeouts with: the host's clock, made faster or slower."""

from __future__ import annotations

import time
from typing import Final

import msgspec

NEVER_US: Final = 1 << 62
"""From here on a time is none."""


class NodeClock(msgspec.Struct, frozen=True):
    """The clock of a node as a line: when the host's clock showed `since_us` it showed `at_us`, and
    from then on it runs at `percent` of the host's rate. By default both are the same. It never
    goes back."""

    percent: int = 100
    since_us: int = 0
    at_us: int = 0

    def read(self, host_us: int) -> int:
        """Return the time of this clock at a time of the host's clock."""
        return self.at_us + (host_us - self.since_us) * self.percent // 100

    def when(self, own_us: int) -> int:
        """Return the first time of the host's clock at which this clock has reached `own_us`."""
        if own_us >= NEVER_US:
            return own_us
        return self.since_us - (self.at_us - own_us) * 100 // self.percent

    def at_rate(self, percent: int, host_us: int) -> NodeClock:
        """Return a clock that continues from the host's time `host_us` at another rate."""
        return NodeClock(percent, host_us, self.read(host_us))


HOST_CLOCK: Final = NodeClock()
"""The clock of the host, as it is."""


def monotonic_us() -> int:
    """Return the host's monotonic clock, in microseconds."""
    return time.monotonic_ns() // 1000
