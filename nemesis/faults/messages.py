"""Delay, loss and link: something happens to messages of some links."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from nemesis.faults.dice import Dice
from nemesis.faults.kind import Drawing, Site
from nemesis.faults.link_fault import F, LinkKind, between, direction, draw_kinds, draw_other_end
from nemesis.faults.words import wanted
from nemesis.formats.cluster_spec import AtLeastOne, Cluster, Milliseconds, Workload, wrong_match
from nemesis.formats.fault import Fault, Percent
from nemesis.links.rule import LinkRule
from node.formats import trace

_TARGETS = (
    ("leader:p", 3),
    ("leader", 2),
    ("follower:p", 2),
    ("follower", 1),
    ("lagging", 1),
    ("any", 2),
    ("minority", 1),
    ("all", 2),
    ("controller", 1),
)


class Delay(Fault, frozen=True, kw_only=True, tag="delay"):
    """Messages from `on` to `to` wait `delay_ms` +- `jitter_ms`; order within a link is kept."""

    on: str
    to: str
    delay_ms: Milliseconds
    jitter_ms: Milliseconds = 0
    two_way: bool = True
    kinds: tuple[str, ...] = ()


class Loss(Fault, frozen=True, kw_only=True, tag="loss"):
    """`percent` of the messages from `on` to `to` vanish (only of `kinds`, when given)."""

    on: str
    to: str
    percent: Percent
    two_way: bool = True
    kinds: tuple[str, ...] = ()


class Link(Fault, frozen=True, kw_only=True, tag="link"):
    """One link rule to the letter: `action` on the messages from `on` to `to` that match.

    `kinds` and `match` narrow it to kinds of messages and to header fields (bounds as in `After`);
    of those that match, `percent` are acted on, at most `limit` a direction.
    """

    on: str
    to: str
    action: Literal["drop", "delay", "duplicate", "hold"]
    two_way: bool = False
    kinds: tuple[str, ...] = ()
    match: dict[str, Any] = msgspec.field(default_factory=dict)
    percent: Percent = 100
    delay_ms: Milliseconds = 0
    jitter_ms: Milliseconds = 0
    limit: AtLeastOne | None = None

    def problems(self, cluster: Cluster, workload: Workload) -> Iterator[str]:
        """As of every fault; and a rule that could never act."""
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


class _Messages(LinkKind[F]):
    """What the kinds look like on a page."""

    colour = "#8a4fb0"
    pattern = "dots"


class DelayKind(_Messages[Delay]):
    """The kind "delay"."""

    struct = Delay
    letter = "D"
    drawing = Drawing(targets=_TARGETS)

    def rules(self, fault: Delay, site: Site, to: Sequence[str]) -> list[LinkRule]:
        """Delay."""
        rule = LinkRule(
            senders=(),
            receivers=(),
            action="delay",
            delay_ms=fault.delay_ms,
            jitter_ms=fault.jitter_ms,
            kinds=fault.kinds,
        )
        return between(site.nodes, to, fault.two_way, rule)

    def draw_on(self, dice: Dice, on: str, at_ms: int, for_ms: int) -> Delay:
        """By little, by much, or by about the lag timeout."""
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

    def words(self, fault: Delay) -> str:
        """As a sentence."""
        jitter = f" ± {fault.jitter_ms} ms" if fault.jitter_ms else ""
        link = direction(fault.two_way, fault.on, fault.to)
        return f"Delay messages {link} by {fault.delay_ms} ms{jitter}{_only(fault.kinds)}"


class LossKind(_Messages[Loss]):
    """The kind "loss"."""

    struct = Loss
    letter = "L"
    drawing = Drawing(targets=_TARGETS, delays_follower=(4, 5))

    def rules(self, fault: Loss, site: Site, to: Sequence[str]) -> list[LinkRule]:
        """Drop some."""
        rule = LinkRule(
            senders=(), receivers=(), action="drop", percent=fault.percent, kinds=fault.kinds
        )
        return between(site.nodes, to, fault.two_way, rule)

    def draw_on(self, dice: Dice, on: str, at_ms: int, for_ms: int) -> Loss:
        """A few of all messages, or most of some kinds."""
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

    def draw_on_follower(self, dice: Dice, partition: str, at_ms: int, for_ms: int) -> Loss:
        """All of replication: everybody else, the controller too, still hears the follower."""
        return Loss(
            on=f"follower:{partition}",
            to=f"leader:{partition}",
            percent=100,
            kinds=("fetch", "fetch-response"),
            at_ms=at_ms,
            for_ms=for_ms,
        )

    def words(self, fault: Loss) -> str:
        """As a sentence."""
        link = direction(fault.two_way, fault.on, fault.to)
        return f"Lose {fault.percent} % of messages {link}{_only(fault.kinds)}"


class RuleKind(_Messages[Link]):
    """The kind "link"."""

    struct = Link
    letter = "M"
    drawing = "it says exactly what happens to which message, which takes a scenario"

    def rules(self, fault: Link, site: Site, to: Sequence[str]) -> list[LinkRule]:
        """As the fault says."""
        rule = LinkRule(
            senders=(),
            receivers=(),
            action=fault.action,
            kinds=fault.kinds,
            match=fault.match,
            percent=fault.percent,
            delay_ms=fault.delay_ms,
            jitter_ms=fault.jitter_ms,
            limit=fault.limit,
        )
        return between(site.nodes, to, fault.two_way, rule)

    def words(self, fault: Link) -> str:
        """`Drop fetch-response messages from n1 to n2 with hw at least 50`."""
        link = direction(fault.two_way, fault.on, fault.to)
        which = " ".join(filter(None, (", ".join(fault.kinds), "messages", link)))
        share = f"{fault.percent} % of " if fault.percent < 100 else ""
        most = f"at most {fault.limit} " if fault.limit is not None else ""
        fields = " and ".join(f"{name} {wanted(value)}" for name, value in fault.match.items())
        late = f" by {fault.delay_ms} ms" if fault.delay_ms else ""
        late += f" ± {fault.jitter_ms} ms" if fault.jitter_ms else ""
        matching = f" with {fields}" if fields else ""
        return f"{fault.action.capitalize()} {share}{most}{which}{matching}{late}"


def _only(kinds: Sequence[str]) -> str:
    return f" ({', '.join(kinds)} only)" if kinds else ""
