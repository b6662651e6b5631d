"""What the harness itself waits for while a cluster starts, read from the traces (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from node.formats import trace


class StartupMonitor:
    """Which processes began, and which brokers the controller lets take part."""

    def __init__(self) -> None:
        self.started: set[str] = set()
        self.unfenced: set[str] = set()

    def feed(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Take in events, in order."""
        for event in events:
            match event.get("event"):
                case trace.STARTED:
                    self.started.add(event["node"])
                case trace.BROKER if event["state"] == "unfenced":
                    self.unfenced.add(event["broker"])
                case trace.BROKER:
                    self.unfenced.discard(event["broker"])
