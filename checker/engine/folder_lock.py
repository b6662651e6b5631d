"""Locks of run folders: while one command judges a run, no other judges it or builds its page."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path


@contextmanager
def locked(folders: Iterable[Path]) -> Iterator[None]:
    """Wait for other commands that hold one of these folders, then hold all of them. A folder that
    does not exist, or that its file system cannot lock, is not held."""
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
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        with suppress(OSError):
            # A worker that was forked meanwhile has a copy, which closing would leave locked.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)
