"""Faults and operations that wait for the n-th trace event that matches. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nemesis.formats.schedule import After
from node.formats.trace import matches


class Triggers:
    """The triggers that still wait, by the number of their fault or operation.

    Those with `since` count from the moment of the fault of that name; `begin` tells of it."""

    def __init__(self, waiting: Mapping[int, After]) -> None:
        self._counting = {number: after for number, after in waiting.items() if not after.since}
        self._not_begun = {number: after for number, after in waiting.items() if after.since}
        self._seen = dict.fromkeys(waiting, 0)

    @property
    def waiting(self) -> bool:
        """Return whether any trigger is still waiting."""
        return bool(self._counting or self._not_begun)

    def begin(self, name: str) -> list[int]:
        """Count events from here on for the triggers that wait for the fault `name`; return their
        numbers."""
        begun = [number for number, after in self._not_begun.items() if after.since == name]
        for number in begun:
            self._counting[number] = self._not_begun.pop(number)
        return begun

    def stop(self, number: int) -> bool:
        """Stop counting for a trigger; return whether it was still counting."""
        return self._counting.pop(number, None) is not None

    def observe(self, event: Mapping[str, Any]) -> list[int]:
        """Count one event; return the faults or operations that it triggers, each once."""
        if not self._counting:
            return []
        fired = []
        name = event["event"]
        for fault, after in self._counting.items():
            if name == after.event and matches(event, after.match):
                self._seen[fault] += 1
                if self._seen[fault] >= after.nth:
                    fired.append(fault)
        for fault in fired:
            del self._counting[fault]
        return fired

    def give_up(self) -> dict[int, str]:
        """Stop waiting; return a sentence about the event that never came for each fault or
        operation that waited."""
        unmet = {
            fault: f"event {after.nth} of '{after.event}' that matches never came: "
            f"{self._seen[fault]} did"
            for fault, after in self._counting.items()
        }
        unmet |= {
            fault: f"fault '{after.since}', from which it counts, never came"
            for fault, after in self._not_begun.items()
        }
        self._counting.clear()
        self._not_begun.clear()
        return unmet
