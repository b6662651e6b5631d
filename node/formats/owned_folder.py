"""Temporary folders that never outlive their owner for long, however that ends: each new owner
removes those of owners that are gone. No other module makes a temporary folder."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import tempfile
from pathlib import Path
from typing import Final

from node.formats.removal import try_to_remove

PREFIX: Final = "floodmark-tmp-"


class OwnedFolder:
    """A temporary folder that only this user may enter, removed by `close`, as a context manager
    that gives its path, and at the end of this process. The process locks it until then."""

    def __init__(self, place: Path | None = None) -> None:
        """Make a folder in `place`, and sweep that. Raises OSError."""
        place = sweep(place)
        made = Path(tempfile.mkdtemp(dir=place))
        self._owner = os.getpid()
        self._lock = _locked(made)
        # It gets its name when it is locked: what is locked is not swept.
        self.path = made.rename(place / f"{PREFIX}{made.name}")
        atexit.register(self.close)

    def close(self) -> None:
        """Remove the folder. A child that inherited it does nothing."""
        if self._lock >= 0 and os.getpid() == self._owner:
            try_to_remove(self.path)
            os.close(self._lock)
            self._lock = -1
            atexit.unregister(self.close)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()


def sweep(place: Path | None = None) -> Path:
    """Remove the folders in `place`, or the temporary folder of this process, whose owners,
    processes of this user, are gone. Return that place."""
    place = place or Path(tempfile.gettempdir())
    for left in place.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            lock = _locked(left)
            if os.fstat(lock).st_uid == os.getuid():
                try_to_remove(left)
            os.close(lock)
    return place


def _locked(folder: Path) -> int:
    """Lock a folder; return its descriptor. Raises OSError if another process has it."""
    opened = os.open(folder, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(opened)
        raise
    return opened
