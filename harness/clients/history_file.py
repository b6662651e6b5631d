"""`history.jsonl` as clients write it: whole lines, numbered, each turn with one write()."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.formats.history import Op, encode_numbered
from node.formats.files import AppendOnlyFile


class HistoryFile:
    """The history of a run. One writer at a time: the numbers follow the order of the calls."""

    def __init__(self, path: Path) -> None:
        """Create the file. Raises StorageError when it cannot be opened."""
        self._file = AppendOnlyFile(path)
        self.lines = 0

    def write(self, ops: Sequence[Op]) -> None:
        """Append operations. Raises StorageError, now and ever after, when the disk refuses."""
        self._file.write(encode_numbered(ops, self.lines))
        self.lines += len(ops)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
