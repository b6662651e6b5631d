"""The descendants of the harness process. Imports little, because every command imports it."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Collection
from pathlib import Path
from typing import Final

_STOPPED: Final = b"T"


def is_stopped(pid: int) -> bool:
    """Return whether a signal such as SIGSTOP has stopped a process; a debugger does not count."""
    try:
        # The name of the program, in parentheses, may have any character.
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return False
    return state[:1] == [_STOPPED]


def resume_stopped(spared: Collection[int] = ()) -> list[str]:
    """Send SIGCONT to the processes below this one that a signal has stopped, except `spared` ones;
    return their names."""
    found = []
    for pid in descendants(os.getpid()):
        if pid not in spared and is_stopped(pid):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGCONT)
                found.append(_name_of(pid))
    return found


def _name_of(pid: int) -> str:
    """Return the name of the output file of a process, or of its program."""
    with contextlib.suppress(OSError):  # A daemon may have closed its output.
        output = Path(f"/proc/{pid}/fd/1").readlink()
        if output.suffix == ".txt":
            return output.stem
    return Path(f"/proc/{pid}/comm").read_text().strip()


def descendants(pid: int) -> list[int]:
    """Return all descendants of `pid`; processes that end meanwhile may lack."""
    found = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split():
                    found += [int(child), *descendants(int(child))]
    return found


def kill_helpers() -> None:
    """Kill the processes that this one started and that still run when it ends, stopped ones too. A
    process in a session of its own (a browser) is left alone, unless it is stopped."""
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            if os.getsid(pid) == os.getsid(0) or is_stopped(pid):
                os.kill(pid, signal.SIGKILL)
