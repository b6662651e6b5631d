"""The only place that removes files and folders which may come from anybody.

Nothing is removed through a link: neither a link among the parts of a path (`files.folder_of`), nor
one at its end, nor one inside. A link itself is removed like a file."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from pathlib import Path

from node.formats.files import folder_of


def remove(path: Path, within: Path | None = None, *, whatever_can_be: bool = False) -> None:
    """Remove a file, or a folder with its contents; of a link the link only. No part of the path
    below `within` may be a link (None: the folder of `path` is a person's). Nothing happens if it
    is missing. Raises OSError if something cannot be removed, unless `whatever_can_be`: then that
    stays."""
    errors = (OSError,) if whatever_can_be else (FileNotFoundError,)
    with contextlib.suppress(*errors), folder_of(path, within) as folder:
        if stat.S_ISDIR(os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_mode):
            # `shutil` holds a folder open while it removes what is in it.
            shutil.rmtree(path.name, ignore_errors=whatever_can_be, dir_fd=folder)
        else:
            os.unlink(path.name, dir_fd=folder)


def try_to_remove(path: Path, within: Path | None = None) -> None:
    """Remove as `remove` does; leave what cannot be removed."""
    remove(path, within, whatever_can_be=True)
