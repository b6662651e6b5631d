"""Rows of the message diagram about offset 5 of a partition: a stage of scripts.

A command is a trace event with its node and fields."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from node.formats.event_text import Event
from reports.messages.message_events import Known
from tests.support.stage_events import parsed


class MessagesStage:
    """The diagram so far."""

    def __init__(self) -> None:
        self._known = Known(5, 6)

    def __getattr__(self, name: str) -> Any:
        return partial(self._row, name.replace("_", "-"))

    def _row(self, event: str, node: str, /, **fields: Any) -> list[str]:
        e = msgspec.convert({"event": event, "node": node} | parsed(fields), Event, strict=False)
        row = self._known.row(e, "")
        if row is None:
            return []
        marks = ["breaks"] * row.breaks + ["appends"] * row.appends
        marks += [f"{name} {who}" for name, who in (("down", row.down), ("up", row.up)) if who]
        ends = " -> ".join(filter(None, (row.sender, row.receiver)))
        return [f"{ends}: {row.text} ({', '.join([row.tone, *marks])})"]
