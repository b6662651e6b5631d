"""The time that the processes of a run waited for a processor, as the kernel counts it.

The clock judges whether a cluster recovers and answers in time. On a machine that is too busy its
processes do not get to run, so a delay proves nothing about the system."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import psutil

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
