"""results.json: written whole or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec

from checker.formats.verdict import RunResult


def write_results(folder: Path, result: RunResult) -> None:
    """Write a run's result so that a reader never sees half of it. Raises OSError."""
    made = msgspec.json.format(msgspec.json.encode(result), indent=2)
    replace_file(folder / "results.json", made + b"\n")


def replace_file(path: Path, content: bytes) -> None:
    """Write a file whole or not at all. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
