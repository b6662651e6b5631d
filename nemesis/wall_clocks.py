"""Wall clocks of nodes that can be moved, by libfaketime: it is loaded into processes that ask libc
for the time, and reads the offset from a file at each call."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Final

from nemesis.formats.schedule import Schedule
from node.formats import host_tools
from node.formats.errors import UsageError

KINDS_OF_CLOCKS: Final = frozenset({"clock-skew", "clock-jump"})


def library() -> str:
    """Return the path of libfaketime. Raises UsageError, which names the package to install."""
    found = host_tools.library(host_tools.FAKETIME)
    if found is None:
        raise UsageError(
            "faults of clocks need libfaketime, which is not installed: Debian: libfaketime"
        )
    return found


class WallClocks:
    """The wall clocks of the nodes of one run, each with a file in a folder that has its offset."""

    def __init__(self, folder: Path, nodes: Collection[str]) -> None:
        """Set all clocks right. Raises UsageError if libfaketime is not installed."""
        self._library = library()
        self._files = {node: folder.absolute() / f"clock-{node}" for node in nodes}
        self._offsets_ms = dict.fromkeys(nodes, 0)
        for node in nodes:
            self._write(node)

    def environment(self, node: str) -> dict[str, str]:
        """Return the variables for the environment of the node's processes."""
        before = os.environ.get("LD_PRELOAD", "")
        return {
            "LD_PRELOAD": f"{before}:{self._library}" if before else self._library,
            "FAKETIME_TIMESTAMP_FILE": str(self._files[node]),
            "FAKETIME_NO_CACHE": "1",
            "DONT_FAKE_MONOTONIC": "1",
            # Its guess at this makes every timed wait of a JVM end at once, and the JVM spin.
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        }

    def shift(self, node: str, by_ms: int) -> None:
        """Move the wall clock of a node by `by_ms`, in processes that run and in later ones."""
        self._offsets_ms[node] += by_ms
        self._write(node)

    def _write(self, node: str) -> None:
        """Replace the file at once, so that a reader finds the old or the new contents."""
        file = self._files[node]
        new = file.with_name(f"{file.name}.new")
        new.write_text(f"{self._offsets_ms[node] / 1000:+.3f}")
        new.replace(file)


def clocks_for(schedule: Schedule, folder: Path, nodes: Collection[str]) -> WallClocks | None:
    """Return the clocks of a run; None if no fault of its schedule moves one."""
    moved = any(fault.what in KINDS_OF_CLOCKS for fault in schedule.faults)
    return WallClocks(folder, nodes) if moved else None
