"""The file `logs/<node>.jsonl` of one node: the lines of its dump."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from harness.formats.history import LogRun
from node.formats.files import AppendOnlyFile

_LINES_A_WRITE: Final = 2000
_encoder: Final = msgspec.json.Encoder()


def write_log(file: Path, runs: Iterable[LogRun]) -> None:
    """Write the lines of a node's dump, some thousand at a time. Raises StorageError."""
    lines = iter(runs)
    with closing(AppendOnlyFile(file)) as out:
        while some := tuple(islice(lines, _LINES_A_WRITE)):
            out.write(_encoder.encode_lines(some))
