"""Waiting for what another process or thread does: for the thing itself, not a guessed time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any, Final

PATIENCE_S: Final = 240.0
LOOK_EVERY_S: Final = 0.005


def until(condition: Callable[[], Any], what: str = "it") -> Any:
    """Wait until `condition` is true; return its value. The limit is for broken code."""
    began_s = time.monotonic()
    pause = threading.Event()
    while not (found := condition()):
        assert time.monotonic() - began_s < patience_s(), f"never came: {what}"
        pause.wait(LOOK_EVERY_S)
    return found


def patience_s() -> float:
    """Return the limit of a wait: longer where others wait for a processor too."""
    return PATIENCE_S * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
