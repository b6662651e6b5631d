"""A temporary folder whose owner may be killed: the next one to start removes what it left."""

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
    """A temporary folder that is locked as long as this process lives and has not closed it."""

    def __init__(self, prefix: str, place: Path | None = None) -> None:
        """Remove what dead owners left of folders with this `prefix`, and make another one. Raises
        OSError."""
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
    """Remove the folders of this user in `place` whose owner is gone."""
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
