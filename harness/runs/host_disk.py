"""The disk of the host under a run: full, read-only, failing or gone, and processes that end by it.

No fault of a schedule makes the host's disk fail, so its failure is a problem of the run and no
finding about the system. It is noticed by a periodic look at the file system, and by the last words
of a process, which also show a short failure."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from harness.formats.problem import Problem, ProblemKind
from node.formats.host_errors import reason

LEAST_FREE_BYTES: Final = 16 << 10
"""With less than this a disk is full: no file gets another extent."""
_SAID: Final[Mapping[ProblemKind, tuple[str, ...]]] = {
    "disk-full": ("no space left", "disk is full", os.strerror(errno.EDQUOT)),
    "disk-failed": (
        "is read-only",
        *(os.strerror(number) for number in (errno.EROFS, errno.EIO, errno.ESTALE)),
    ),
    "no-memory": ("MemoryError", "no more memory", os.strerror(errno.ENOMEM)),
}


def kind_of(said: str) -> ProblemKind | None:
    """Return the kind of host problem that an error message shows, None if it shows none."""
    low = said.lower()
    return next((k for k, words in _SAID.items() if any(w.lower() in low for w in words)), None)


class HostDisk:
    """A watch over the file system that holds a run folder."""

    def __init__(self, folder: Path) -> None:
        """`folder` exists; its disk counts as good until a look shows something else."""
        self._folder = folder
        self._began_s = time.monotonic()
        self.problems: list[Problem] = []

    def look(self) -> None:
        """Look at the file system now, and note each problem once."""
        wrong = self._wrong()
        if wrong is None:
            return
        kind, what = wrong
        if any(each.kind == kind for each in self.problems):
            return
        seen_s = time.monotonic() - self._began_s
        sentence = f"the disk of the host under {self._folder} {what} (seen after {seen_s:.1f} s)"
        self.problems.append(Problem(kind=kind, sentence=sentence))

    def why_ended(self, node: str, said: str) -> Problem | None:
        """Return the host's problem that ended a process with the last line `said`, or None."""
        self.look()
        kind = kind_of(said)
        if kind is not None:
            return Problem(kind=kind, sentence=f"{node} had to stop: {said}")
        return self.problems[0] if self.problems else None

    def _wrong(self) -> tuple[ProblemKind, str] | None:
        try:
            found = os.statvfs(self._folder)
        except OSError as error:
            return "disk-failed", f"cannot be reached: {reason(error)}"
        if found.f_flag & os.ST_RDONLY:
            return "disk-failed", "is read-only"
        # Root may use what is kept back from others.
        free = found.f_bfree if os.geteuid() == 0 else found.f_bavail
        # A file system without a size, as some of those in memory, is never full.
        if found.f_blocks and free * found.f_frsize < LEAST_FREE_BYTES:
            return "disk-full", "was full"
        return None
