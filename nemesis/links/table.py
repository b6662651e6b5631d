"""The table of link rules in force, which decides about each message between two nodes. Pure.

The hub (real processes) and a simulator use the same table, so one rule means the same in both. A
link is an ordered pair (sender, receiver). The table decides *when* a message arrives; its caller
keeps the message until then (`nemesis.links.pipeline`).

How the rules of one link combine, in whatever order they were added:

1. If a `drop` acts, the message is lost.
2. Else, if a `hold` acts, the message is kept until that rule is removed; then it is decided again,
   as if it had been sent at that moment.
3. Else all `delay` rules that act add up, and each `duplicate` that acts makes one more copy.

Order within a link is kept: a message never overtakes an earlier one that is still under way, so a
delayed message holds back all behind it, even after its rule is gone. Two things step out of this
order on purpose: late copies, which neither wait nor are waited for, and held messages. Messages of
a node to itself are never affected."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from nemesis.links.rule import RANK, Counts, LinkRule

MAX_CACHED_LINKS: Final = 10_000


class LinkDecision(NamedTuple):
    """The times at which the copies of a message arrive, in microseconds; empty if it is dropped,
    or held by the rule `held_by`."""

    times: tuple[int, ...]
    held_by: int | None = None


_DROPPED: Final = LinkDecision(())


class _Armed:
    """A rule in force, with its effects so far."""

    __slots__ = ("counts", "number", "peeks", "rank", "rule")

    def __init__(self, number: int, rule: LinkRule) -> None:
        self.number = number
        self.rule = rule
        self.rank = RANK[rule.action]
        self.peeks = bool(rule.kinds or rule.match)
        self.counts = Counts()

    def acts(self, fields: Mapping[str, Any], rng: random.Random) -> bool:
        """Return whether the rule acts on this message; counts the match. One draw at most."""
        rule = self.rule
        if rule.limit is not None and self.counts.acted >= rule.limit:
            return False
        if self.peeks and not rule.fits(fields):
            return False
        self.counts.matched += 1
        return rule.percent >= 100 or rng.random() * 100 < rule.percent

    def delay_us(self, rng: random.Random) -> int:
        """Return how long this message waits, in microseconds."""
        jitter = self.rule.jitter_ms
        spread = (2 * rng.random() - 1) * jitter if jitter else 0.0
        return max(0, round((self.rule.delay_ms + spread) * 1000))


class LinkTable:
    """The link rules in force. Without rules and messages under way, all arrive at once."""

    def __init__(self) -> None:
        self._armed: dict[int, _Armed] = {}
        self._last_number = 0
        self._of_link: dict[tuple[str, str], tuple[_Armed, ...]] = {}
        # When the last message under way on a link arrives: later ones must not come before it.
        self._floors: dict[tuple[str, str], int] = {}

    def add(self, rule: LinkRule) -> int:
        """Put a rule in force from the next message on; return its number, never used again."""
        self._last_number += 1
        self._armed[self._last_number] = _Armed(self._last_number, rule)
        self._of_link.clear()
        return self._last_number

    def remove(self, number: int) -> Counts | None:
        """End a rule; return its effects, None if there is no such rule. Messages that it delayed
        stay under way; those that it held must be decided again by the caller."""
        armed = self._armed.pop(number, None)
        self._of_link.clear()
        return None if armed is None else armed.counts

    def counts(self) -> dict[int, Counts]:
        """Return the counts of each rule in force, by number."""
        return {number: armed.counts for number, armed in self._armed.items()}

    def is_idle(self, now_us: int) -> bool:
        """Return whether a message on any link would arrive at once: no rule is in force, and
        nothing is under way."""
        if self._armed:
            return False
        if self._floors:
            self._floors = {link: at for link, at in self._floors.items() if at > now_us}
        return not self._floors

    def is_open(self, sender: str, receiver: str) -> bool:
        """Return whether a message on this link arrives at once: no rule is about it, and nothing
        is under way before it."""
        return not self._rules(sender, receiver) and (sender, receiver) not in self._floors

    def needs_fields(self, sender: str, receiver: str) -> bool:
        """Return whether a rule of this link looks at header fields (reading them costs time)."""
        return any(armed.peeks for armed in self._rules(sender, receiver))

    def decide(
        self, sender: str, receiver: str, fields: Mapping[str, Any], now_us: int, rng: random.Random
    ) -> LinkDecision:
        """Decide about a message that is sent now. `now_us` must never go back. `fields` are its
        header fields (`node.formats.wire.peek`); `rng` draws percentages and jitter. Of messages
        with equal arrival times, the one decided first arrives first."""
        link = (sender, receiver)
        wait_us, copies = 0, []
        for armed in self._rules(sender, receiver):
            if not armed.acts(fields, rng):
                continue
            match armed.rule.action:
                case "drop":
                    armed.counts.dropped += 1
                    return _DROPPED
                case "hold":
                    armed.counts.held += 1
                    return LinkDecision((), armed.number)
                case "delay":
                    armed.counts.delayed += 1
                    wait_us += armed.delay_us(rng)
                case "duplicate":
                    armed.counts.duplicated += 1
                    # A late copy binds nobody: if all behind it waited for it, and the next copy
                    # for those, a link would be busy long after the rule has gone.
                    copies.append(armed.delay_us(rng))
        first = self._arrival(link, now_us + wait_us, now_us)
        if not copies:
            return LinkDecision((first,))
        later = (first + more if more else self._arrival(link, first, now_us) for more in copies)
        return LinkDecision((first, *later))

    def _arrival(self, link: tuple[str, str], time_us: int, now_us: int) -> int:
        """Return the arrival time in the order of the link; later messages arrive no sooner."""
        floor = self._floors.get(link, 0)
        time_us = max(time_us, floor)
        if time_us > now_us:
            self._floors[link] = time_us
        elif floor:
            del self._floors[link]
        return time_us

    def _rules(self, sender: str, receiver: str) -> tuple[_Armed, ...]:
        """Return the rules about one link in the order in which they are asked."""
        link = (sender, receiver)
        rules = self._of_link.get(link)
        if rules is None:
            # Names come off the wire: whatever they are, this must not grow without end.
            if len(self._of_link) >= MAX_CACHED_LINKS:
                self._of_link.clear()
            found = [a for a in self._armed.values() if a.rule.covers(sender, receiver)]
            rules = tuple(sorted(found, key=lambda armed: (armed.rank, armed.number)))
            self._of_link[link] = rules
        return rules
