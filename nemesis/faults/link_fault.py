"""The base of faults on links: each fault puts link rules of its own in force.

So faults over the same link do not depend on each other: the link is cut until the last cut over it
is healed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Final, Self

import msgspec
from msgspec.structs import replace

from nemesis.faults.dice import Dice, side_of
from nemesis.faults.kind import KINDS, Consequence, Effect, Injected, Site
from nemesis.faults.lasting import LastingFault, Place
from nemesis.links.abilities import LinkAbilities
from nemesis.links.rule import Counts, LinkRule
from nemesis.targets import Absent
from node.formats.errors import FloodmarkError

DROP: Final = LinkRule(senders=(), receivers=(), action="drop")

_OTHER_ENDS: Final = (("rest", 5), ("any", 2), ("follower", 2), ("voters", 1.5), ("clients", 1.5))


class LinkFault(LastingFault, frozen=True, kw_only=True):
    """A fault on the links between some nodes, carried out by link rules."""

    on_links = True
    whole = True
    plain = (("two_way", False), ("clients", False), ("jitter_ms", 0), ("percent", 100))
    consequences = frozenset({Consequence.ELECTION, Consequence.ISR_CHANGE})
    chooses_messages: ClassVar[bool] = False
    """Whether every such fault acts on some messages of a link and not on others."""

    @classmethod
    def is_possible_on(cls, links: LinkAbilities) -> bool:
        """Return whether links with these abilities can carry out faults of this kind. They need
        its `action` (a class attribute) or, if each fault names its own action, must see single
        messages."""
        if cls.chooses_messages:
            return links.messages
        return getattr(cls, "action", "") in links.actions

    def why_impossible(self, links: LinkAbilities) -> str:
        """Return why links with these abilities cannot carry out this fault, "" if they can."""
        if not self.is_possible_on(links):
            return f"{links.name} cannot do it"
        if not links.messages and getattr(self, "kinds", None):
            return f"{links.name} sees no single messages, so there are no kinds to choose"
        return ""

    def rules(self, site: Site, to: Sequence[str]) -> list[LinkRule]:
        """Return the rules that carry the fault out on the nodes of the site and the nodes `to`;
        none if it would change no link."""
        raise NotImplementedError

    def like(self) -> LinkRule:
        """Return a rule without senders and receivers that has all other fields of the fault."""
        names = [name for name in LinkRule.__struct_fields__ if hasattr(self, name)]
        fields: dict[str, Any] = {name: getattr(self, name) for name in names}
        return LinkRule(senders=(), receivers=(), **fields)

    def places(self, site: Site) -> Iterable[Place]:
        """Return the rules. Raises FloodmarkError if the fault would change no link."""
        target = getattr(self, "to", "")
        to = site.others(target) if target else ()
        if target and not to:
            raise Absent(f"nobody else is {target} now")
        rules = self.rules(site, to)
        if not rules:
            why = f"no link leads to {target}" if target else "too few brokers for it"
            raise FloodmarkError(why)
        return [("", rule) for rule in rules]

    def lasting(self) -> LinkRule:
        return self.like()

    def in_force(self, site: Site, held: dict[int, str], places: Sequence[Place]) -> Injected:
        """Return the fault as injected, with the links of its rules."""
        links = links_of(rule for _, rule in places if isinstance(rule, LinkRule))
        nodes = site.nodes or tuple(sorted({node for link in links for node in link}))
        return Injected(nodes=nodes, links=links, held=held)

    def effect(self, injected: Injected) -> Effect:
        counts = Counts()
        for each in injected.healed:
            counts.add(each)
        return Effect(
            nodes=injected.nodes,
            counts=_effect_counts(counts),
            detail=f"{counts.matched} {counts.of} matched",
        )

    def plainer(self) -> Iterator[Self]:
        """Yield the fault in one direction only, without clients, jitter or chance, and with single
        kinds of messages."""
        yield from super().plainer()
        kinds = getattr(self, "kinds", ())
        if len(kinds) > 1:
            yield from (replace(self, kinds=(kind,)) for kind in kinds)


class BetweenNodes(LinkFault, frozen=True, kw_only=True):
    """A fault on the links from the nodes `on` to the nodes `to`; a kind may have a `two_way`, with
    which it is also on those back."""

    on: str
    to: str

    def rules(self, site: Site, to: Sequence[str]) -> list[LinkRule]:
        return between(site.nodes, to, getattr(self, "two_way", False), self.like())

    @classmethod
    def draw_fields(cls, dice: Dice, on: str) -> dict[str, Any]:
        """Draw the other end, and in a half of the faults also the links back."""
        drawn: dict[str, Any] = {"to": draw_other_end(dice, on)}
        return drawn | {"two_way": dice.chance(0.5)} if hasattr(cls, "two_way") else drawn

    @classmethod
    def draw_on_follower(cls, dice: Dice, partition: str, at_ms: int, for_ms: int) -> Self:
        """Return the fault between a follower and its leader only: all others, the controller too,
        still hear the follower."""
        make: Callable[..., Self] = cls
        on, to = f"follower:{partition}", f"leader:{partition}"
        return make(on=on, to=to, at_ms=at_ms, for_ms=for_ms)


def _effect_counts(counts: Counts) -> dict[str, int]:
    """Return the effect of the rules of a fault, by the names of `faults.jsonl`."""
    if counts.of != "messages":
        return {counts.of: counts.acted}
    done = {"dropped": counts.dropped, "delayed": counts.delayed + counts.held}
    if counts.duplicated:
        done["duplicated"] = counts.duplicated
    return done


def links_of(rules: Iterable[LinkRule]) -> tuple[tuple[str, str], ...]:
    """Return the links (sender, receiver) that the rules name, each once."""
    pairs = {
        (sender, receiver): None
        for rule in rules
        for sender in rule.senders
        for receiver in rule.receivers
        if sender != receiver
    }
    return tuple(pairs)


def kinds_on(links: LinkAbilities | None) -> tuple[str, ...]:
    """Return the kinds of faults that are possible with such links, in the order of the registry;
    if `links` is None, those that need no links."""
    return tuple(
        name
        for name, kind in KINDS.items()
        if not kind.on_links
        or (links is not None and issubclass(kind, LinkFault) and kind.is_possible_on(links))
    )


def between(on: Sequence[str], to: Sequence[str], two_way: bool, like: LinkRule) -> list[LinkRule]:
    """Return rules like `like` from the nodes `on` to the nodes `to`, and with `two_way` also back;
    only those that touch a link."""
    directions = [(tuple(on), tuple(to))]
    if two_way:
        # No link twice: of nodes in both groups the first rule covers both directions.
        only_to = tuple(node for node in to if node not in on)
        both = tuple(node for node in to if node in on)
        directions.append((only_to, tuple(on)))
        directions.append((both, tuple(node for node in on if node not in to)))
    made = [
        msgspec.structs.replace(like, senders=senders, receivers=receivers)
        for senders, receivers in directions
    ]
    return [rule for rule in made if links_of([rule])]


def unreached(dice: Dice, on: str) -> set[str]:
    """Return the groups of nodes to which no link of `on` leads: clients talk to brokers only."""
    side = side_of(on)
    few = dice.voters < (2 if side == "v" else 1)
    found = {"voters"} if side == "c" or few else set()
    return found if side == "n" and dice.with_clients else found | {"clients"}


def draw_other_end(dice: Dice, on: str) -> str:
    """Draw the other end of the links of a fault on `on`, which is another node than `on`."""
    if on == "all":
        return "all"
    ends = [
        (end, weight)
        for end, weight in _OTHER_ENDS
        if end not in unreached(dice, on)
        and not (end == "follower" and on.startswith(("lagging", "minority")))
    ]
    return dice.weighted(ends)
