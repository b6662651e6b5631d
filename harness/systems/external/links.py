"""What stands between the nodes of an external system, so that links can fail."""

from __future__ import annotations

from typing import Protocol

from nemesis.links.rule import Counts, LinkRule


class Links(Protocol):
    """Links under control, as `nemesis.links.hub_control.HubControl` has them for our brokers.

    `problems` are sentences that make a verdict unknown, such as that they have failed themselves.
    """

    problems: list[str]

    def add(self, rule: LinkRule) -> int:
        """Put a rule in force; returns its number. Raises FloodmarkError."""
        ...

    def remove(self, number: int) -> Counts:
        """End a rule; returns what it did."""
        ...

    def close(self) -> None:
        """Leave nothing behind."""
        ...
