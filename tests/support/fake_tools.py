"""A folder of tools for tests: only what is in it counts as installed on the machine."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from node.formats.host_tools import FAKETIME

OF_FAULTS: Final = ("strace", FAKETIME)
"""The tools that faults of real processes need."""


def make_tools(folder: Path, *names: str, says: str = "exit 0") -> Path:
    """Write programs of these names, which run `says` by the shell; return their folder, for the
    environment variable `FLOODMARK_TOOLS`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text(f"#!/bin/sh\n{says}\n")
        (folder / name).chmod(0o755)
    return folder
