"""Faults and operations that wait for the n-th trace event that matches. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nemesis.formats.schedule import After
from node.formats.trace import matches


class Triggers:
    """The triggers that still wait, by the number of their fault or operation."""

    def __init__(self, waiting: Mapping[int, After]) -> None:
        self._waiting = dict(waiting)
        self._seen = dict.fromkeys(self._waiting, 0)

    @property
    def waiting(self) -> bool:
        """Return whether any trigger is still waiting."""
        return bool(self._waiting)

    def observe(self, event: Mapping[str, Any]) -> list[int]:
        """Count one event; return the faults or operations that it triggers, each once."""
        if not self._waiting:
            return []
        fired = []
        name = event["event"]
        for fault, after in self._waiting.items():
            if name == after.event and matches(event, after.match):
                self._seen[fault] += 1
                if self._seen[fault] >= after.nth:
                    fired.append(fault)
        for fault in fired:
            del self._waiting[fault]
        return fired

    def give_up(self) -> dict[int, str]:
        """Stop waiting; return a sentence about the event that never came for each fault or
        operation that waited."""
        unmet = {
            fault: f"event {after.nth} of '{after.event}' that matches never came: "
            f"{self._seen[fault]} did"
            for fault, after in self._waiting.items()
        }
        self._waiting.clear()
        return unmet
