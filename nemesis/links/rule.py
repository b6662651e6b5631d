"""One deviation from a perfect link, and the count of what it did. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from node.formats.errors import UsageError
from node.formats.trace import matches

ANYONE: Final = "*"
"""Instead of a node in `senders` or `receivers`: every node."""
RANK: Final = {"drop": 0, "hold": 1, "delay": 2, "duplicate": 3}
"""Actions in the order in which the rules of one link are asked."""


class LinkRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One deviation from a perfect link; binds to node names, so it survives restarts.

    `senders` and `receivers` name nodes, or "*" for all; an empty one fits nobody. `kinds` narrows
    the rule to kinds of messages (empty: all), `match` to header fields (see
    `node.formats.trace.matches`).
    Of the messages that fit, `percent` are acted on, at most `limit` in all. `delay_ms` and
    `jitter_ms` (+-, uniform) are the delay of a `delay`, or of the copy a `duplicate` makes.
    Raises UsageError for what cannot be carried out.
    """

    senders: tuple[str, ...]
    receivers: tuple[str, ...]
    action: Literal["drop", "delay", "duplicate", "hold"]
    kinds: tuple[str, ...] = ()
    match: dict[str, Any] = {}
    percent: float = 100
    delay_ms: float = 0
    jitter_ms: float = 0
    limit: int | None = None
    reorder: bool = False

    def __post_init__(self) -> None:
        if self.action not in RANK:
            raise UsageError(f"link rule: unknown action '{self.action}' ({', '.join(RANK)})")
        if not 0 < self.percent <= 100:
            raise UsageError(f"link rule: percent {self.percent} is not above 0 and at most 100")
        if self.delay_ms < 0 or self.jitter_ms < 0:
            raise UsageError("link rule: delay_ms and jitter_ms must not be negative")
        if self.limit is not None and self.limit < 1:
            raise UsageError(f"link rule: limit {self.limit} must be at least 1")

    def covers(self, sender: str, receiver: str) -> bool:
        """Whether the rule speaks about this link."""
        return (
            sender != receiver
            and (sender in self.senders or ANYONE in self.senders)
            and (receiver in self.receivers or ANYONE in self.receivers)
        )

    def fits(self, fields: Mapping[str, Any]) -> bool:
        """Whether a message with these header fields is one the rule speaks about."""
        return (not self.kinds or fields.get("kind") in self.kinds) and matches(fields, self.match)


class Counts(msgspec.Struct, kw_only=True):
    """What one rule has done: messages that fitted it, and what became of them."""

    matched: int = 0
    dropped: int = 0
    held: int = 0
    delayed: int = 0
    duplicated: int = 0

    def add(self, other: Counts) -> None:
        """Sum up: a fault may consist of several rules."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def acted(self) -> int:
        """How many messages the rule affected."""
        return self.dropped + self.held + self.delayed + self.duplicated
