"""Each replica's log after the run, from its stopped node's data to `logs/<node>.jsonl`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from harness.systems.floodmark.log_lines import log_lines
from node.formats.errors import StorageError
from node.formats.files import AppendOnlyFile
from node.runtime.read_logs import dump_logs

_LINES_A_WRITE: Final = 2000
_encoder: Final = msgspec.json.Encoder()


def write_logs(node: str, data_dir: Path, file: Path) -> list[str]:
    """Dump the logs of one stopped broker; returns what was wrong with them, in sentences.

    The last line of the file says that it is complete; where the store cannot be opened there is no
    such line.
    """
    problems: list[str] = []
    lines: list[bytes] = []
    out = AppendOnlyFile(file)
    try:
        for run in log_lines(node, dump_logs(data_dir), problems):
            lines.append(_encoder.encode(run) + b"\n")
            if len(lines) >= _LINES_A_WRITE:
                out.write(b"".join(lines))
                lines.clear()
        out.write(b"".join(lines))
    except StorageError as error:
        problems.append(f"the logs of {node} could not be read: {error}")
    finally:
        out.close()
    return problems
