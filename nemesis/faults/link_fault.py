"""What faults on links have in common: each is carried out by link rules of its own.

So faults over the same link do not know of each other: the link is cut until the last cut over it
is healed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final, TypeVar

import msgspec
from msgspec.structs import replace

from nemesis.faults.dice import ON_VOTERS, Dice
from nemesis.faults.kind import Effect, FaultKind, Healed, Injected, Site
from nemesis.faults.words import target
from nemesis.formats.fault import Fault
from nemesis.links.rule import Counts, LinkRule
from node.formats.errors import FloodmarkError

DROP: Final = LinkRule(senders=(), receivers=(), action="drop")

# Message kinds worth harming by themselves, by where the links lead to: replication and its
# answers between brokers, in-sync sets and liveness towards voters, acknowledgements to clients.
_REPLICATION: Final = (("fetch",), ("fetch-response",))
_CONTROL: Final = (
    ("alter-partition", "alter-partition-response"),
    ("heartbeat", "heartbeat-response"),
)
KIND_GROUPS: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {
    "rest": (*_REPLICATION, *_CONTROL),
    "any": _REPLICATION,
    "follower": _REPLICATION,
    "all": _REPLICATION,
    "voters": _CONTROL,
    "clients": (("produce-response",), ("fetch-response",)),
}
_OTHER_ENDS: Final = (("rest", 5), ("any", 2), ("follower", 2), ("voters", 1.5), ("clients", 1.5))

F = TypeVar("F", bound=Fault)


class LinkKind(FaultKind[F]):
    """A kind of fault on links."""

    on_links: ClassVar[bool] = True

    def rules(self, fault: F, site: Site, to: Sequence[str]) -> list[LinkRule]:
        """The rules that carry it out on the nodes of the site and the nodes `to`; none when it
        would change no link."""
        raise NotImplementedError

    def inject(self, fault: F, site: Site) -> Injected:
        """Put all rules in force, or none. Raises FloodmarkError then."""
        whom = getattr(fault, "to", "")
        rules = self.rules(fault, site, site.others(whom) if whom else ())
        if not rules:
            raise FloodmarkError(f"nobody else is {whom} now" if whom else "too few brokers for it")
        numbers: list[int] = []
        try:
            numbers.extend(map(site.world.add_rule, rules))
        except FloodmarkError:
            for number in numbers:
                with suppress(FloodmarkError):
                    site.world.remove_rule(number)
            raise
        links = links_of(rules)
        nodes = site.nodes or tuple(sorted({node for link in links for node in link}))
        return Injected(nodes=nodes, links=links, rules=tuple(numbers))

    def heal(self, fault: F, injected: Injected, site: Site) -> Healed:
        """End all rules and count what they did."""
        counts, failed = Counts(), []
        for number in injected.rules:
            try:
                counts.add(site.world.remove_rule(number))
            except FloodmarkError as error:
                failed.append(str(error))
        done = {"dropped": counts.dropped, "delayed": counts.delayed + counts.held}
        if counts.duplicated:
            done["duplicated"] = counts.duplicated
        return Healed(
            nodes=injected.nodes,
            detail="; ".join(failed),
            failed=tuple(failed),
            effect=Effect(
                nodes=injected.nodes, counts=done, detail=f"{counts.matched} messages matched"
            ),
        )

    def plainer(self, fault: F) -> Iterator[F]:
        """On fewer links, of fewer kinds of messages, without chance."""
        plain: dict[str, Any] = {"two_way": False, "clients": False, "jitter_ms": 0, "percent": 100}
        for name, value in plain.items():
            if getattr(fault, name, value) != value:
                yield replace(fault, **{name: value})
        kinds = getattr(fault, "kinds", ())
        if len(kinds) > 1:
            yield from (replace(fault, kinds=(kind,)) for kind in kinds)


def links_of(rules: Iterable[LinkRule]) -> tuple[tuple[str, str], ...]:
    """The links that rules between named nodes touch, each once."""
    pairs = {
        (sender, receiver): None
        for rule in rules
        for sender in rule.senders
        for receiver in rule.receivers
        if sender != receiver
    }
    return tuple(pairs)


def between(on: Sequence[str], to: Sequence[str], two_way: bool, like: LinkRule) -> list[LinkRule]:
    """Rules like `like` from `on` to `to`, and back when `two_way`."""
    directions = [(tuple(on), tuple(to))]
    # Of equal groups one rule covers both directions; a second one would act twice.
    if two_way and set(on) != set(to):
        directions.append((tuple(to), tuple(on)))
    made = [
        msgspec.structs.replace(like, senders=senders, receivers=receivers)
        for senders, receivers in directions
    ]
    return [rule for rule in made if links_of([rule])]


def direction(two_way: bool, on: str, to: str) -> str:
    """`between n1 and n2`, `from n1 to n2`."""
    if two_way:
        return f"between {target(on)} and {target(to)}"
    return f"from {target(on)} to {target(to)}"


def draw_other_end(dice: Dice, on: str) -> str:
    """Where the links of a fault on `on` lead to: always somebody else."""
    if on == "all":
        return "all"
    ends = [
        (end, weight)
        for end, weight in _OTHER_ENDS
        if (end != "clients" or dice.with_clients)
        and not (end == "follower" and on.startswith(("lagging", "minority")))
        and not (end == "voters" and on in ON_VOTERS)
    ]
    return dice.weighted(ends)


def draw_kinds(dice: Dice, to: str, probability: float) -> tuple[str, ...]:
    """Now and then only some kinds of messages: such as really pass on the way to `to`."""
    return dice.rng.choice(KIND_GROUPS[to]) if dice.chance(probability) else ()
