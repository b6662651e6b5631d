"""Faults of messages on some links: delay, loss, and link (one link rule as written)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

import msgspec

from nemesis.faults.dice import Dice
from nemesis.faults.kind import ONE_NODE, Drawing, Site
from nemesis.faults.link_fault import LinkFault, between, draw_kinds, draw_other_end
from nemesis.faults.words import target, wanted
from nemesis.formats.cluster_spec import AtLeastOne, Cluster, Milliseconds, Workload, wrong_match
from nemesis.formats.fault import Percent
from nemesis.links.rule import LinkRule
from node.formats import trace

_TARGETS: Final = (("leader:p", 3), *ONE_NODE[1:], ("minority", 1), ("all", 2), ("controller", 1))


class _Messages(LinkFault, frozen=True, kw_only=True):
    """A fault of messages from `on` to `to`, with `two_way` also of those back; if `kinds` are
    given, only of these."""

    on: str
    to: str
    two_way: bool = True
    kinds: tuple[str, ...] = ()

    colour = "#8a4fb0"
    pattern = "dots"

    def rules(self, site: Site, to: Sequence[str]) -> list[LinkRule]:
        """Return a link rule for each direction, with the fields of the fault."""
        return between(site.nodes, to, self.two_way, self.like())

    def link(self) -> str:
        """Return the links as a phrase: `between n1 and n2`, `from n1 to n2`."""
        if self.two_way:
            return f"between {target(self.on)} and {target(self.to)}"
        return f"from {target(self.on)} to {target(self.to)}"

    def only(self) -> str:
        """Return the kinds of messages as a phrase: ` (fetch only)`; "" if it is all."""
        return f" ({', '.join(self.kinds)} only)" if self.kinds else ""


class Delay(_Messages, frozen=True, kw_only=True, tag="delay"):
    """Messages from `on` to `to` are delayed by `delay_ms` +- `jitter_ms`; order within a link is
    kept."""

    delay_ms: Milliseconds
    jitter_ms: Milliseconds = 0

    action = "delay"
    letter = "D"
    drawing = Drawing(targets=_TARGETS)

    @classmethod
    def draw_on(cls, dice: Dice, on: str, at_ms: int, for_ms: int) -> Delay:
        """Draw a short delay, a long one, or about the lag timeout."""
        ranges = (((5, 50), 3.0), ((100, 300), 3.0), ((0.5, 1.2), 2.0))
        low, high = dice.weighted(ranges)
        unit = dice.timings.lag_ms if high < 2 else 1
        delay_ms = dice.between(low * unit, high * unit)
        to = draw_other_end(dice, on)
        return Delay(
            on=on,
            to=to,
            delay_ms=delay_ms,
            jitter_ms=dice.rng.choice((0, delay_ms // 4, delay_ms)),
            two_way=dice.chance(0.6),
            kinds=draw_kinds(dice, to, 0.25),
            at_ms=at_ms,
            for_ms=for_ms,
        )

    def words(self) -> str:
        """Return the fault as a sentence."""
        jitter = f" ± {self.jitter_ms} ms" if self.jitter_ms else ""
        return f"Delay messages {self.link()} by {self.delay_ms} ms{jitter}{self.only()}"


class Loss(_Messages, frozen=True, kw_only=True, tag="loss"):
    """`percent` of the messages from `on` to `to` are lost (with `kinds` only of these kinds)."""

    percent: Percent

    action = "drop"
    chooses_messages = True
    letter = "L"
    drawing = Drawing(targets=_TARGETS, delays_follower=(4, 5))

    @classmethod
    def draw_on(cls, dice: Dice, on: str, at_ms: int, for_ms: int) -> Loss:
        """Draw the loss of a small part of all messages, or of most messages of some kinds."""
        to = draw_other_end(dice, on)
        kinds = draw_kinds(dice, to, 0.4)
        percent = dice.rng.choice((50, 80, 100) if kinds else (5, 10, 20, 40, 60))
        return Loss(
            on=on,
            to=to,
            percent=percent,
            two_way=dice.chance(0.6),
            kinds=kinds,
            at_ms=at_ms,
            for_ms=for_ms,
        )

    @classmethod
    def draw_on_follower(cls, dice: Dice, partition: str, at_ms: int, for_ms: int) -> Loss:
        """Return the loss of all replication messages between a follower and its leader: other
        nodes still hear the follower."""
        return Loss(
            on=f"follower:{partition}",
            to=f"leader:{partition}",
            percent=100,
            kinds=("fetch", "fetch-response"),
            at_ms=at_ms,
            for_ms=for_ms,
        )

    def words(self) -> str:
        """Return the fault as a sentence."""
        return f"Lose {self.percent} % of messages {self.link()}{self.only()}"


class Link(_Messages, frozen=True, kw_only=True, tag="link"):
    """One link rule as written: `action` on the messages from `on` to `to` that match.

    `kinds` and `match` narrow it to kinds of messages and to header fields (bounds as in `After`).
    Of the messages that match, `percent` are acted on, at most `limit` in each direction."""

    action: Literal["drop", "delay", "duplicate", "hold"]
    two_way: bool = False
    match: dict[str, Any] = msgspec.field(default_factory=dict)
    percent: Percent = 100
    delay_ms: Milliseconds = 0
    jitter_ms: Milliseconds = 0
    limit: AtLeastOne | None = None

    chooses_messages = True
    letter = "M"
    drawing = "it says exactly what happens to which message, which takes a scenario"

    def problems(self, cluster: Cluster, workload: Workload) -> Iterator[str]:
        """Yield the problems that any fault can have, and a rule that can never act."""
        yield from super().problems(cluster, workload)
        kinds = self.kinds or trace.MESSAGE_KINDS
        known = {field for kind in kinds for field in trace.MESSAGE_FIELDS.get(kind, ())}
        known |= {"kind", "body_bytes"}
        if unknown := sorted(self.match.keys() - known):
            of = f" of kind {', '.join(self.kinds)}" if self.kinds else ""
            yield f"match: no message{of} has a field '{unknown[0]}' (known: {sorted(known)})"
        yield from wrong_match(self.match)
        if self.action in ("drop", "hold") and (self.delay_ms or self.jitter_ms):
            yield f"a {self.action} takes no delay_ms or jitter_ms"

    def words(self) -> str:
        """Return the fault as a sentence: `Drop fetch-response messages from n1 to n2 with hw at
        least 50`."""
        which = " ".join(filter(None, (", ".join(self.kinds), "messages", self.link())))
        share = f"{self.percent} % of " if self.percent < 100 else ""
        most = f"at most {self.limit} " if self.limit is not None else ""
        fields = " and ".join(f"{name} {wanted(value)}" for name, value in self.match.items())
        late = f" by {self.delay_ms} ms" if self.delay_ms else ""
        late += f" ± {self.jitter_ms} ms" if self.jitter_ms else ""
        matching = f" with {fields}" if fields else ""
        return f"{self.action.capitalize()} {share}{most}{which}{matching}{late}"
