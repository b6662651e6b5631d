"""The simulated network between n1 and n2: a stage. Its output is what arrives at n2, and when.

Messages have numbers (`send 1 2`), times are in ms after the start, without the latency."""

from __future__ import annotations

import random
from typing import Any

from harness.sim.network import LATENCY_US, START_US, Envelope, EventQueue, Network
from nemesis.links.rule import LinkRule
from node.formats.errors import FloodmarkError
from node.formats.messages import FetchRequest


class WiresStage:
    """One link, and the rules on it."""

    def __init__(self) -> None:
        self.queue = EventQueue()
        self.network = Network(self.queue, random.Random(1))
        self.network.join("n2", self._arrive)
        self._lines: list[str] = []

    def _arrive(self, envelope: Envelope) -> None:
        sent_us = self.queue.now_us - START_US - LATENCY_US
        self._lines.append(f"{sent_us / 1000:g} ms: {envelope[2].corr}")

    def send(self, *numbers: int) -> None:
        """Send these from n1 to n2."""
        for number in numbers:
            message = FetchRequest(partition="log-0", offset=number, corr=number)
            self.network.send("n1", "n2", message, None)

    def rule(self, action: str, most: int = 0, **fields: Any) -> str:
        """Add a rule on fetches; `most` is the largest number that it matches."""
        match = {"offset": {"at_most": most}} if most else {}
        made = LinkRule(
            senders=("n1",),
            receivers=("n2",),
            action=action,  # type: ignore[arg-type]
            kinds=("fetch",),
            match=match,
            **fields,
        )
        return f"rule {self.network.add_rule(made)}"

    def end(self, number: int) -> str:
        """End a rule."""
        try:
            done = self.network.remove_rule(number)
        except FloodmarkError as error:
            return f"refused: {error}"
        return f"{done.dropped} dropped, {done.held} held"

    def until(self, ms: int) -> None:
        """Let time pass."""
        self.queue.run(START_US + ms * 1000)
