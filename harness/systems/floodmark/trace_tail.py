"""The nodes' trace files, read while nodes write them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from node.formats.json_input import MOST_LINE_BYTES, JsonReader, Unreadable
from node.formats.trace import TraceEvent

_READ_BYTES: Final = 4 << 20
_decoder: Final = JsonReader(dict[str, Any])


class TraceTail:
    """The new trace events of all nodes. Events that are read together are in the order of their
    time."""

    def __init__(self, folder: Path, nodes: Iterable[str]) -> None:
        """`folder` holds `<node>.jsonl` for each of `nodes`, sooner or later."""
        self._paths = {node: folder / f"{node}.jsonl" for node in nodes}
        self._open: dict[str, int] = {}
        self._rest: dict[str, bytes] = {}

    def read(self) -> list[TraceEvent]:
        """Return the events on all whole lines since the last call."""
        events: list[TraceEvent] = []
        for node in self._paths:
            events.extend(self._read_node(node))
        events.sort(key=lambda event: event.get("t_us", 0))
        return events

    def close(self) -> None:
        while self._open:
            os.close(self._open.popitem()[1])

    def _read_node(self, node: str) -> list[TraceEvent]:
        descriptor = self._open.get(node)
        if descriptor is None:
            try:
                descriptor = os.open(self._paths[node], os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return []
            self._open[node] = descriptor
        read = os.read(descriptor, _READ_BYTES)
        if not read:
            return []
        *lines, rest = (self._rest.get(node, b"") + read).split(b"\n")
        # A line that does not end is no event, and what is kept of it has a bound.
        self._rest[node] = rest if len(rest) <= MOST_LINE_BYTES else b"!"
        events = []
        for line in lines:
            try:
                events.append(_decoder.decode(line))
            except Unreadable:
                # A killed node's half line, with the next process's first line behind it: the
                # checker will say so, here it only costs one event.
                continue
        return events
