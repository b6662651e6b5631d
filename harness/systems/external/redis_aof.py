"""The append-only files of Redis: commands, each a count of words, and then the words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_HEAD: Final = re.compile(rb"([*$])([0-9]+)\r\n")
_TORN: Final = re.compile(rb"([*$][0-9]*\r?)?")


def commands(folder: Path) -> Iterator[list[bytes]]:
    """Yield the commands in the append-only files of a stopped server, which may end within one, as
    a server that starts takes them. Raises ValueError."""
    parts = [folder / "appendonly.aof"]
    if not parts[0].exists():  # From 7.0 on: the file of an old rewrite, then those after it.
        old = (folder / "appendonlydir").glob("*.aof")
        parts = sorted(old, key=lambda part: (".incr." in part.name, part))
    for part in parts:
        data, at, words, missing = part.read_bytes(), 0, list[bytes](), 0
        while head := _HEAD.match(data, at):
            number, at = int(head[2]), head.end()
            if head[1] == b"*":
                words, missing = [], number
                continue
            words.append(data[at : at + number])
            at, missing = at + number + 2, missing - 1
            if not missing and at <= len(data):
                yield words
        if not _TORN.fullmatch(data, at):
            raise ValueError(f"{part} is damaged at byte {at}")
