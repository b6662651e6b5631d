"""Locks of run folders: while one command judges a run, no other judges it or builds its page."""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from checker.formats.errors import CheckerError

WAIT_S: Final = 600.0
"""The time after which a command gives up: the one that it waits for may be suspended."""
_ASK_S: Final = 0.05


@contextmanager
def locked(folders: Iterable[Path]) -> Iterator[None]:
    """Wait for other commands that hold one of these folders, then hold all of them. A folder that
    does not exist, or that its file system cannot lock, is not held. Raises CheckerError after
    `WAIT_S`."""
    with ExitStack() as held:
        # In one order, so that no two commands wait for each other, and each folder once.
        for folder in sorted({folder.resolve() for folder in folders}):
            with suppress(OSError):
                held.enter_context(_locked(folder))
        yield


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _take(descriptor, folder)
        yield
    finally:
        with suppress(OSError):
            # A worker that was forked meanwhile has a copy, which closing would leave locked.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _take(descriptor: int, folder: Path) -> None:
    """Lock an open folder; say so once if another command holds it."""
    until_s, told = time.monotonic() + WAIT_S, False
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not told:
                other = f"another command{_holder(descriptor)} judges {str(folder)!r} or builds its"
                sys.stderr.write(f"{other} page: waiting for it, at most {WAIT_S:g} s.\n")
                told = True
        if time.monotonic() >= until_s:
            raise CheckerError(
                f"{str(folder)!r} was in use by another command{_holder(descriptor)} for "
                f"{WAIT_S:g} s: end that command if it hangs, or try again"
            )
        time.sleep(_ASK_S)


def _holder(descriptor: int) -> str:
    """Return " (process 17)" for the process that holds the lock, "" if it is not known."""
    with suppress(OSError):
        inode = os.fstat(descriptor).st_ino
        for line in Path("/proc/locks").read_text().splitlines():
            match line.split():
                case [_, "FLOCK", _, _, pid, place, *_] if place.endswith(f":{inode}"):
                    return f" (process {pid})"
    return ""
