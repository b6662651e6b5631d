"""The environment of a nightly run: the clock, the pool of jobs, tools of the host, disk space.

A session reaches the host only through it; tests replace the whole class."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from checker.engine.java import find_java
from harness.runs.interrupts import Interrupts
from harness.runs.progress import Progress
from harness.search.jobs import JobProcesses, Pool
from nemesis import strace, wall_clocks
from nemesis.disk import control
from nemesis.links import namespaces
from node.formats.errors import FloodmarkError


class NightlyEnvironment:
    """Clock, jobs, disk and tools of the host. Use it inside `Interrupts`, in the main thread."""

    def __init__(
        self, store: Path, output: Path, jobs: int, interrupts: Interrupts, progress: Progress
    ) -> None:
        """`output` is the file for what the processes of jobs print."""
        self.output = output
        self._store = store
        self._interrupts = interrupts
        self._progress = progress
        # Each job has a fresh process, so that another hash seed would show.
        self.pool: Pool = JobProcesses(jobs, output)

    def now_s(self) -> float:
        """Return the host's monotonic clock in seconds."""
        return time.monotonic()

    def free_bytes(self) -> int:
        """Return the free space of the store's file system in bytes."""
        return shutil.disk_usage(self._store).free

    def missing_tools(self) -> dict[str, str]:
        """Return the tools for faults or Spark that this host cannot use, with reasons."""
        found = {"FUSE": why} if (why := control.why_impossible()) else {}
        tools: dict[str, Callable[[], object]] = {
            "libfaketime": wall_clocks.library,
            "strace": strace.program,
            "nft": lambda: namespaces.program("nft"),
            "Java": find_java,
        }
        for tool, find in tools.items():
            try:
                find()
            except FloodmarkError as error:
                found[tool] = str(error)
        return found

    def stopping(self) -> bool:
        """Return whether Ctrl-C or SIGTERM asked the nightly run to stop."""
        return self._interrupts.asked

    def tell(self, sentence: str) -> None:
        """Print a sentence above the line that shows progress."""
        self._progress.note(sentence)

    def status(self, words: str) -> None:
        """Show a text on the line of progress."""
        self._progress.tell(words)
