"""The end of a search: asked before each run, so a search lasts at most a run longer."""

from __future__ import annotations

import time
from collections.abc import Callable

Stop = Callable[[], bool]
"""Whether to end now, with what was found so far."""


def never() -> bool:
    """Never end the work early."""
    return False


def after(seconds: float, clock_s: Callable[[], float] = time.monotonic) -> Stop:
    """Return an end `seconds` from now by `clock_s`; with 0 there is none."""
    if not seconds:
        return never
    end_s = clock_s() + seconds
    return lambda: clock_s() >= end_s
