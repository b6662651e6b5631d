"""results.json: written whole or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec

from checker.verdict import RunResult


def write_results(folder: Path, result: RunResult) -> None:
    """Write a run's result so that a reader never sees half of it. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".results.json.{os.getpid()}"
    try:
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")
        temporary.replace(folder / "results.json")
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
