"""Power cuts of a system on plain folders: the ends of its unsynced files are lost.

The assumption: of a file that the adapter declares as unsynced, exactly those bytes are not yet on
the disk that were appended since the storm or the node's process began; a cut keeps the first part
of them. A file that ends in a page of zeros or more is allocated ahead: its data end where the
zeros begin, and it keeps its length. The order of writes to different files is not modelled."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from node.formats.errors import FloodmarkError
from node.formats.host_errors import reason

ASSUMPTION: Final = (
    "assumed: what was appended to {globs} since the storm began or the node started is unsynced"
)
_PAGE: Final = 4096
_BLOCK: Final = 1 << 20
NOTHING: Final = "assumed: all is synced in this configuration"


class _Floor(NamedTuple):
    """The identity of a file, its synced length, and where its synced data end."""

    inode: int
    size: int
    end: int


class UnsyncedFiles:
    """The files of all nodes that the adapter declares as unsynced, with their synced lengths."""

    def __init__(self, globs: Sequence[str]) -> None:
        self.globs = tuple(globs)
        self._floors: dict[str, dict[Path, _Floor]] = {}

    @property
    def assumption(self) -> str:
        """The assumption of a power cut as a text, for the record of the fault."""
        return ASSUMPTION.format(globs=", ".join(self.globs)) if self.globs else NOTHING

    def synced(self, node: str, folder: Path) -> None:
        """Count all bytes that the node's files have now as synced."""
        self._floors[node] = {
            file: _Floor(status.st_ino, status.st_size, _data_end(file, status.st_size))
            for file, status in self._files(folder)
        }

    def cut(self, node: str, folder: Path, keep: float) -> tuple[int, int]:
        """Shorten the files of a node that is down; return its unsynced bytes before and after.
        `keep` is the share of the unsynced bytes that survive. Raises FloodmarkError when a file
        cannot be shortened."""
        floors = self._floors.get(node, {})
        before = after = 0
        for file, status in self._files(folder):
            floor = floors.get(file, _Floor(status.st_ino, 0, 0))
            # A file that was replaced has been written again and, as is usual, synced for that.
            if floor.inode != status.st_ino:
                continue
            end = _data_end(file, status.st_size)
            unsynced = end - floor.end
            if unsynced <= 0:
                continue
            left = round(unsynced * keep)
            length = status.st_size if end < status.st_size else floor.size
            try:
                os.truncate(file, floor.end + left)
                if length > floor.end + left:
                    os.truncate(file, length)
            except OSError as error:
                raise FloodmarkError(f"{file}: cannot be shortened: {reason(error)}") from None
            before, after = before + unsynced, after + left
        return before, after

    def _files(self, folder: Path) -> list[tuple[Path, os.stat_result]]:
        found: dict[Path, os.stat_result] = {}
        for glob in self.globs:
            for file in folder.glob(glob):
                try:
                    status = file.lstat()
                except OSError:
                    continue
                if file.is_file() and not file.is_symlink():
                    found[file] = status
        return sorted(found.items())


def _data_end(file: Path, size: int) -> int:
    """Return where the data of a file end: its size, or where the zeros at its end begin if they
    fill a page. A file that cannot be read has data up to its size."""
    end = size
    try:
        with file.open("rb") as opened:
            while end:
                start = max(0, end - _BLOCK)
                opened.seek(start)
                data = opened.read(end - start).rstrip(b"\0")
                end = start + len(data)
                if data:
                    break
    except OSError:
        return size
    return end if size - end >= _PAGE else size
