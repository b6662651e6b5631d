"""The traces of all nodes of a real run, read from the beginning."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from node.formats.trace import matches
from tests.support.running_harness import lines

Event = dict[str, Any]


def trace(folder: Path) -> list[Event]:
    """Return the trace events of all nodes of a run, by time.

    A broker reads its clock after its mail, so an effect on another node is never before its cause.
    """
    found = [event for file in (folder / "trace").iterdir() for event in lines(file)]
    return sorted(found, key=lambda event: int(event["t_us"]))


class Reader:
    """Reads a story from its beginning: each look goes on where the one before found something."""

    def __init__(self, events: list[Event]) -> None:
        self._rest: Iterator[Event] = iter(events)
        self._told: list[str] = []

    def then(self, what: str, event: str, **pattern: Any) -> Event:
        """Return the next event of that name that fits (`node.formats.trace.matches`); `what` names
        the stage."""
        wanted = {"event": event, **pattern}
        for each in self._rest:
            if matches(each, wanted):
                self._told.append(f"{what}: {each}")
                return each
        raise AssertionError("\n".join([*self._told, f"{what}: no {wanted} after that"]))
