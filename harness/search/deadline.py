"""The time limit of a search. It is asked before each run, so one run may exceed it."""

from __future__ import annotations

import time
from collections.abc import Callable

Stop = Callable[[], bool]
"""A function that returns True when the work should end with what was found so far."""


def never() -> bool:
    """Return False: a `Stop` for work without a time limit."""
    return False


def after(seconds: float) -> Stop:
    """Return a `Stop` that returns True from `seconds` from now on; 0 means no limit."""
    if not seconds:
        return never
    end_s = time.monotonic() + seconds
    return lambda: time.monotonic() >= end_s
