"""The one clock of a run."""

from __future__ import annotations

import time


def now_us() -> int:
    """The host's monotonic clock in microseconds: one clock for all processes of a run."""
    return time.monotonic_ns() // 1000
