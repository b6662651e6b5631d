"""Waiting for what another process or thread does: for the thing itself, not a guessed time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final

PATIENCE_S: Final = 120.0
LOOK_EVERY_S: Final = 0.005


def until(condition: Callable[[], Any], what: str = "it") -> Any:
    """Wait until `condition` is true; returns what it returned. The limit is for broken code."""
    limit_s = time.monotonic() + PATIENCE_S
    pause = threading.Event()
    while not (found := condition()):
        assert time.monotonic() < limit_s, f"never came: {what}"
        pause.wait(LOOK_EVERY_S)
    return found
