"""The link rules in force between TCP ends, and their effect on the bytes of one direction. Pure.

TCP repeats lost segments, so no rule loses bytes: under a `drop` they wait. What the rules mean:

* `drop` from a to b: nothing passes from a to b, and what b sends is not acknowledged, so that at
  most `WINDOW_BYTES` more pass from b to a. No new connection is made.
* `hold` from a to b: nothing passes from a to b. All else does, new connections too.
* `delay`: bytes wait, in order; several such rules add up. `slow`: at most `bytes_per_s` pass on
  each connection.
* `reset`: each connection between the two is reset, in whichever direction the rule is written.
* `half-open`: each connection that exists ends for the receivers only."""

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
    """The effect of the rules on the bytes of one direction of a connection. Nothing passes because
    of the rules numbered in `blocked_by`, no more than WINDOW_BYTES pass because of those in
    `unacknowledged_by`, and bytes are late because of those in `shaped_by`. Each of `delays` is
    (delay, jitter) in seconds; `bytes_per_s` 0 is no limit."""

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
    """Raise UsageError for a rule about some, but not all, of the clients that share a process."""
    for side in (rule.senders, rule.receivers):
        named = shared.intersection(side)
        if named and ANYONE not in side and named != shared:
            raise UsageError(
                f"the clients share one process, so the links of {min(named)} alone cannot fail: "
                "name all clients"
            )


class TcpRules:
    """The link rules in force on the proxy. `shared` are the clients that share one process: they
    dial as `CLIENTS`, so a rule must be about all of them or none."""

    def __init__(self, shared: Sequence[str] = ()) -> None:
        self._shared = frozenset(shared)
        self._rules: dict[int, _InForce] = {}
        self._last_number = 0

    def add(self, rule: LinkRule) -> int:
        """Put a rule in force; return its number. Raises UsageError for an impossible one."""
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
        """Return whether the rule `number` is about the direction from `sender` to `receiver`."""
        rule = self._rules[number].rule
        return (
            sender != receiver
            and self._is_in(sender, rule.senders)
            and self._is_in(receiver, rule.receivers)
        )

    def about(self, a: str, b: str, *actions: str) -> tuple[int, ...]:
        """Return the numbers of the rules with one of these actions about either direction between
        `a` and `b`."""
        return tuple(
            number
            for number, each in self._rules.items()
            if each.rule.action in actions
            and (self.covers(number, a, b) or self.covers(number, b, a))
        )

    def state(self, connection: int, sender: str, receiver: str) -> FlowState:
        """Return what the rules do to bytes from `sender` to `receiver`; they count the connection
        as matched."""
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
        """Count a connection, or an attempt to make one, as held by these rules."""
        for number in numbers:
            if number in self._rules:
                self._rules[number].held.add(connection)

    def delayed(self, numbers: Sequence[int], connection: int) -> None:
        """Count a connection as delayed by these rules."""
        for number in numbers:
            if number in self._rules:
                self._rules[number].delayed.add(connection)

    def ended(self, numbers: Sequence[int], connection: int) -> None:
        """Count a connection as ended by these rules, at least for one side."""
        for number in numbers:
            self._rules[number].matched.add(connection)
            self._rules[number].dropped.add(connection)

    def counts(self) -> dict[int, Counts]:
        """Return the counts of each rule in force, by number."""
        return {number: each.counts() for number, each in self._rules.items()}

    def _is_in(self, name: str, side: Sequence[str]) -> bool:
        if ANYONE in side or name in side:
            return True
        return name == CLIENTS and bool(self._shared) and self._shared.issubset(side)
