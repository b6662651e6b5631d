"""The host under a run: its disk, and the time that processes of the run waited for a processor.

No fault of a schedule makes the host's disk fail, so its failure is a problem of the run and no
finding about the system. It is noticed by a periodic look at the file system, and by the last words
of a process, which also show a short failure.

The clock judges whether a cluster recovers and answers in time. On a machine that is too busy its
processes do not get to run, so a delay proves nothing about the system."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import psutil

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


MOST_SHARE: Final = 0.2
_SPARK: Final = "spark"


def waited(output: Path) -> dict[int, float]:
    """Return by thread id the seconds that threads waited for a processor, of processes below this
    one that write to the folder `output`. Empty if the kernel does not count them."""
    found: dict[int, float] = {}
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(OSError, ValueError, IndexError):
            writes_to = Path(os.readlink(f"/proc/{child.pid}/fd/1"))
            if writes_to.parent == output and writes_to.stem != _SPARK:
                found.update(_of_threads(child.pid))
    return found


def _of_threads(pid: int) -> Iterator[tuple[int, float]]:
    for thread in os.listdir(f"/proc/{pid}/task"):
        # It may end meanwhile.
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()
            yield int(thread), int(fields[1]) / 1e9


def too_busy(
    what: str, before: Mapping[int, float], after: Mapping[int, float], over_s: float
) -> str:
    """Return a sentence that `what` cannot be judged if one thread waited too long, else "". Too
    long is more than the share MOST_SHARE of `over_s`, the seconds between the readings `before`
    and `after` of `waited`. A thread that is missing in `before` counts from its start."""
    most_s = max((s - before.get(thread, 0.0) for thread, s in after.items()), default=0.0)
    # The kernel counts a wait when it ends: one that began before the first look is longer.
    most_s = min(most_s, over_s)
    if most_s <= MOST_SHARE * over_s:
        return ""
    return (
        f"the machine was too busy to judge the {what}: a process of the run waited "
        f"{most_s:.1f} s of {over_s:.1f} s for a processor"
    )
