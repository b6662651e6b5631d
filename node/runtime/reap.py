"""The limit on waiting for a killed process: the kernel ends it as soon as it is scheduled."""

from __future__ import annotations

from typing import Final

REAP_S: Final = 60.0
"""A deadline for a broken kernel: even on a machine with fifty busy processes it is not reached."""
