"""The link rules in force between TCP ends, and their effect on the bytes of one direction.
Pure.

TCP repeats what is lost, so no rule loses bytes: under a `drop` they wait. What the rules mean:

* `drop` from a to b: nothing passes from a to b, and what b sends is not acknowledged, so that at
  most `WINDOW_BYTES` more pass from b to a. No new connection comes about.
* `hold` from a to b: nothing passes from a to b. All else does, new connections too.
* `delay`: bytes wait, in order; several add up. `slow`: so many bytes a second on each connection.
* `reset`: each connection between the two is reset, in whichever direction the rule is written.
* `half-open`: each connection that is there ends for the receivers only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from nemesis.links.abilities import TCP_PROXY
from nemesis.links.rule import ANYONE, Counts, LinkRule
from node.formats.errors import UsageError

CLIENTS: Final = "clients"
"""Who dials when a process that all clients share does."""
UNKNOWN: Final = "?"
"""Who dials when nobody can tell; only rules about everybody fit."""
WINDOW_BYTES: Final = 65_536
"""What a sender may have under way without an acknowledgement."""


class FlowState(NamedTuple):
    """The effect of the rules on the bytes of one direction.

    `blocked_by`, `unacknowledged_by` and `shaped_by` are the numbers of the rules: nothing passes,
    no more than a window passes, bytes are late. Each of `delays` is (delay, jitter) in seconds;
    `bytes_per_s` 0 is no limit.
    """

    blocked_by: tuple[int, ...] = ()
    unacknowledged_by: tuple[int, ...] = ()
    shaped_by: tuple[int, ...] = ()
    delays: tuple[tuple[float, float], ...] = ()
    bytes_per_s: int = 0


OPEN: Final = FlowState()


class _InForce:
    """A rule, and the connections that it concerned, held, delayed and ended, by their numbers."""

    def __init__(self, rule: LinkRule) -> None:
        self.rule = rule
        self.matched: set[int] = set()
        self.held: set[int] = set()
        self.delayed: set[int] = set()
        self.dropped: set[int] = set()

    def counts(self) -> Counts:
        return Counts(
            of="connections",
            matched=len(self.matched),
            held=len(self.held - self.dropped),
            delayed=len(self.delayed - self.held - self.dropped),
            dropped=len(self.dropped),
        )


def check_clients(rule: LinkRule, shared: frozenset[str]) -> None:
    """Raise UsageError for a rule about some of the clients that share a process, not all."""
    for side in (rule.senders, rule.receivers):
        named = shared.intersection(side)
        if named and ANYONE not in side and named != shared:
            raise UsageError(
                f"the clients share one process, so the links of {min(named)} alone cannot fail: "
                "name all clients"
            )


class TcpRules:
    """The rules in force. `shared` are the clients that have one process in common: they dial as
    `CLIENTS`, and a rule is about all of them or none."""

    def __init__(self, shared: Sequence[str] = ()) -> None:
        self._shared = frozenset(shared)
        self._rules: dict[int, _InForce] = {}
        self._last_number = 0

    def add(self, rule: LinkRule) -> int:
        """Put a rule in force; returns its number. Raises UsageError for an impossible one."""
        TCP_PROXY.check(rule)
        check_clients(rule, self._shared)
        self._last_number += 1
        self._rules[self._last_number] = _InForce(rule)
        return self._last_number

    def remove(self, number: int) -> Counts | None:
        """End a rule; return its effects, None if there is no such rule."""
        ended = self._rules.pop(number, None)
        return None if ended is None else ended.counts()

    def covers(self, number: int, sender: str, receiver: str) -> bool:
        """Return whether a rule in force is about this direction."""
        rule = self._rules[number].rule
        return (
            sender != receiver
            and self._is_in(sender, rule.senders)
            and self._is_in(receiver, rule.receivers)
        )

    def about(self, a: str, b: str, *actions: str) -> tuple[int, ...]:
        """Return the rules with one of these actions about either direction between two ends."""
        return tuple(
            number
            for number, each in self._rules.items()
            if each.rule.action in actions
            and (self.covers(number, a, b) or self.covers(number, b, a))
        )

    def state(self, connection: int, sender: str, receiver: str) -> FlowState:
        """Return the fate of bytes from `sender` to `receiver`; the connection counts as
        matched."""
        blocked, unacknowledged, shaped = [], [], []
        delays, rates = [], []
        for number, each in self._rules.items():
            rule, forth = each.rule, self.covers(number, sender, receiver)
            if rule.action == "drop" and self.covers(number, receiver, sender):
                unacknowledged.append(number)
            elif not forth:
                continue
            each.matched.add(connection)
            if forth and rule.action in ("drop", "hold"):
                blocked.append(number)
            elif rule.action == "delay":
                shaped.append(number)
                delays.append((rule.delay_ms / 1000, rule.jitter_ms / 1000))
            elif rule.action == "slow":
                shaped.append(number)
                rates.append(rule.bytes_per_s)
        return FlowState(
            blocked_by=tuple(blocked),
            unacknowledged_by=tuple(unacknowledged),
            shaped_by=tuple(shaped),
            delays=tuple(delays),
            bytes_per_s=min(rates, default=0),
        )

    def action(self, number: int) -> str:
        """Return the action of a rule in force."""
        return self._rules[number].rule.action

    def held(self, numbers: Sequence[int], connection: int) -> None:
        """Note that these rules kept bytes of a connection, or a new connection, waiting."""
        for number in numbers:
            if number in self._rules:
                self._rules[number].held.add(connection)

    def delayed(self, numbers: Sequence[int], connection: int) -> None:
        """Note that these rules made bytes of a connection late."""
        for number in numbers:
            if number in self._rules:
                self._rules[number].delayed.add(connection)

    def ended(self, numbers: Sequence[int], connection: int) -> None:
        """Note that these rules ended a connection, at least for one side."""
        for number in numbers:
            self._rules[number].matched.add(connection)
            self._rules[number].dropped.add(connection)

    def counts(self) -> dict[int, Counts]:
        """Return the counts of each rule in force."""
        return {number: each.counts() for number, each in self._rules.items()}

    def _is_in(self, name: str, side: Sequence[str]) -> bool:
        if ANYONE in side or name in side:
            return True
        return name == CLIENTS and bool(self._shared) and self._shared.issubset(side)
