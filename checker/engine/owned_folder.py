"""A temporary folder whose owner may be killed: the next process that makes one removes it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

_LOCK: Final = ".owner"


class OwnedFolder:
    """A temporary folder with a lock that this process holds until it closes the folder or ends."""

    def __init__(self, prefix: str, place: Path | None = None) -> None:
        """Remove folders of this `prefix` whose owners are gone; make a new one. Raises OSError."""
        place = place or Path(tempfile.gettempdir())
        sweep(prefix, place)
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
        self._lock = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def sweep(prefix: str, place: Path) -> None:
    """Remove folders in `place` whose names begin with `prefix` and whose lock no process holds."""
    try:
        found = [entry for entry in os.scandir(place) if entry.name.startswith(prefix)]
    except OSError:
        return
    for entry in found:
        # One without a lock is being made now, or was never finished.
        with contextlib.suppress(OSError):
            lock = os.open(Path(entry.path) / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(entry.path, ignore_errors=True)
            finally:
                os.close(lock)
