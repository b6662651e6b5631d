"""Sentences on trace events: a stage of scripts. A command is an event with its fields."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from node.formats.event_text import Event, action, message


class EventsStage:
    """The sentences on an event, and on the message that it is the effect of."""

    def __getattr__(self, name: str) -> Any:
        return partial(self._words, name.replace("_", "-"))

    def _words(self, event: str, /, **fields: Any) -> list[str]:
        read = msgspec.convert({"event": event} | parsed(fields), Event, strict=False)
        shown = message(read)
        return [f"n1 {action(read)}", *[f"message: {shown}"] * bool(shown)]


def parsed(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of an event as a command gives them, lists with commas."""
    usual = Event("")
    return {
        name: [one for one in str(value).split(",") if one]
        if isinstance(getattr(usual, name, 0), tuple)
        else value
        for name, value in fields.items()
    }
