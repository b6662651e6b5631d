"""A link rule, one deviation from a perfect link, and the counts of its effects. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

import msgspec

from node.formats.errors import UsageError
from node.formats.trace import matches, wrong_pattern
from node.formats.wire_bounds import MAX_WAIT_MS

ANYONE: Final = "*"
"""Instead of a node in `senders` or `receivers`: every node."""
Action = Literal["drop", "hold", "delay", "duplicate", "slow", "reset", "half-open"]
"""What a rule does to what it fits; `nemesis.links.abilities` says which links can do what."""
MAX_DELAY_MS: Final = MAX_WAIT_MS
MAX_NAMES: Final = 2000
"""Of senders, receivers or kinds in one rule: a cluster has 104 nodes and some thousand clients."""
RANK: Final = {action: rank for rank, action in enumerate(get_args(Action))}
"""Actions in the order in which the rules of one link are asked."""


class LinkRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One deviation from a perfect link. It names nodes, so it survives their restarts.

    `senders` and `receivers` name nodes, or "*" for all; an empty one fits none. `kinds` narrows
    the rule to kinds of messages (empty: all), `match` to header fields (see
    `node.formats.trace.matches`). Of the messages that fit, `percent` are acted on, at most `limit`
    in all. `delay_ms` and `jitter_ms` (+-, uniform) are the delay of a `delay`, or of the copy that
    a `duplicate` makes; `bytes_per_s` is the rate of a `slow`. In a `half-open` the receivers lose
    their connections, and the senders do not notice. Raises UsageError for a rule that cannot be
    carried out."""

    senders: tuple[str, ...]
    receivers: tuple[str, ...]
    action: Action
    kinds: tuple[str, ...] = ()
    match: dict[str, Any] = {}
    percent: float = 100
    delay_ms: float = 0
    jitter_ms: float = 0
    limit: int | None = None
    bytes_per_s: int = 0

    def __post_init__(self) -> None:
        if max(len(self.senders), len(self.receivers), len(self.kinds)) > MAX_NAMES:
            raise UsageError(f"link rule: senders, receivers and kinds are at most {MAX_NAMES}")
        if self.action not in RANK:
            raise UsageError(f"link rule: unknown action '{self.action}' ({', '.join(RANK)})")
        if not 0 < self.percent <= 100:
            raise UsageError(f"link rule: percent {self.percent} is not above 0 and at most 100")
        if not (0 <= self.delay_ms <= MAX_DELAY_MS and 0 <= self.jitter_ms <= MAX_DELAY_MS):
            raise UsageError(f"link rule: delay_ms and jitter_ms must be 0..{MAX_DELAY_MS}")
        if self.limit is not None and not 1 <= self.limit <= 2**62:
            raise UsageError(f"link rule: limit {self.limit} must be at least 1")
        if wrong := wrong_pattern(self.match):
            raise UsageError(f"link rule: {wrong}")
        if not 0 <= self.bytes_per_s <= 2**62 or (self.bytes_per_s > 0) != (self.action == "slow"):
            raise UsageError("link rule: a slow needs bytes_per_s above 0, nothing else takes it")

    @property
    def chooses_messages(self) -> bool:
        """Return whether the rule acts on some messages of its links and not on others."""
        return bool(self.kinds or self.match or self.percent < 100 or self.limit is not None)

    def covers(self, sender: str, receiver: str) -> bool:
        """Return whether the rule is about the link from `sender` to `receiver`."""
        return (
            sender != receiver
            and (sender in self.senders or ANYONE in self.senders)
            and (receiver in self.receivers or ANYONE in self.receivers)
        )

    def fits(self, fields: Mapping[str, Any]) -> bool:
        """Return whether the rule is about messages with these header fields."""
        return (not self.kinds or fields.get("kind") in self.kinds) and matches(fields, self.match)


class Counts(msgspec.Struct, kw_only=True):
    """The effects of one rule: the messages that fitted it, by what became of them. Links that see
    no messages count connections instead (`of`): those that the rule concerned (`matched`), and of
    these the ones whose bytes it held or delayed, or that it ended (`dropped`). The kernel counts
    packets."""

    of: Literal["messages", "connections", "packets"] = "messages"
    matched: int = 0
    dropped: int = 0
    held: int = 0
    delayed: int = 0
    duplicated: int = 0

    def add(self, other: Counts) -> None:
        """Add the counts of another rule of the same fault."""
        self.of = other.of
        for name in ("matched", "dropped", "held", "delayed", "duplicated"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def acted(self) -> int:
        """The number of messages (or connections) that the rule affected."""
        return self.dropped + self.held + self.delayed + self.duplicated
