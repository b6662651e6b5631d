"""The link rules that each kind of links (hub, TCP proxy, kernel) can carry out. Pure data.

Whatever must know which faults on links are possible uses these values: the random storms, the
check of a schedule, and the links themselves when a rule is put in force."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from nemesis.links.rule import Action, LinkRule
from node.formats.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class LinkAbilities:
    """The abilities of one kind of links. `actions` are the actions of link rules that it can carry
    out. `messages`: it sees single messages, so a rule can choose among them by kind, header field,
    chance and number."""

    name: str
    actions: frozenset[Action]
    messages: bool

    def check(self, rule: LinkRule) -> None:
        """Raise UsageError for a rule that such links cannot carry out."""
        if rule.action not in self.actions:
            known = ", ".join(sorted(self.actions))
            raise UsageError(f"{self.name} cannot {rule.action} what passes (it can: {known})")
        if not self.messages and rule.chooses_messages:
            raise UsageError(
                f"{self.name} carries bytes of connections and sees no single messages: kinds, "
                "match, percent and limit are impossible"
            )


HUB: Final = LinkAbilities(
    name="the link hub", actions=frozenset({"drop", "hold", "delay", "duplicate"}), messages=True
)
"""The link hub of our own brokers, and the simulated network."""

TCP_PROXY: Final = LinkAbilities(
    name="the TCP proxy",
    actions=frozenset({"drop", "hold", "delay", "slow", "reset", "half-open"}),
    messages=False,
)
"""The proxy between unmodified servers."""

KERNEL: Final = LinkAbilities(
    name="the kernel's network", actions=frozenset({"drop", "reset"}), messages=False
)
"""Namespaces with packet filters between unmodified servers."""
