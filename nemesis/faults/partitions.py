"""Network partitions: cut, isolate, bridge and ring. No message passes on some links."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

from nemesis.faults.dice import Dice
from nemesis.faults.kind import ONE_NODE, Drawing, Site
from nemesis.faults.link_fault import DROP, BetweenNodes, LinkFault, between
from nemesis.faults.words import target
from nemesis.links.rule import LinkRule

ALIASES: Final = ("partition", "all")
EXACT_RING: Final = 5
"""Up to so many brokers a ring is exact; above, majorities are drawn."""


class _Partition(LinkFault, frozen=True, kw_only=True):
    """A network partition: a link fault that drops all messages, and how a page draws it."""

    action = "drop"
    colour = "#5468d4"
    pattern = "stripes"


class Cut(BetweenNodes, _Partition, frozen=True, kw_only=True, tag="cut"):
    """No message passes from `on` to `to`, with `two_way` nor back."""

    two_way: bool = True

    letter = "C"
    drawing = Drawing(
        targets=(*ONE_NODE, ("minority", 1), ("controller", 1)),
        aliases=ALIASES,
        delays_follower=(2, 3),
    )

    def words(self) -> str:
        arrow = "in both directions" if self.two_way else "one way"
        return f"Cut {target(self.on)} from {target(self.to)}, {arrow}"


class Isolate(_Partition, frozen=True, kw_only=True, tag="isolate"):
    """The nodes `on` are cut from all other brokers and voters, with `clients` from clients too."""

    on: str
    clients: bool = False

    letter = "I"
    bar_names_nodes = True
    drawing = Drawing(
        targets=(*ONE_NODE, ("minority", 1), ("majority", 0.7), ("controller", 1)),
        aliases=ALIASES,
        delays_follower=(0,),
        fails_leader=(1,),
    )

    def rules(self, site: Site, to: Sequence[str]) -> list[LinkRule]:
        nodes = (*site.cluster.broker_names(), *site.cluster.voter_names())
        others = [node for node in nodes if node not in site.nodes]
        others += site.clients if self.clients else ()
        return between(site.nodes, others, True, DROP)

    @classmethod
    def draw_fields(cls, dice: Dice, on: str) -> dict[str, Any]:
        """Draw a fault that sometimes cuts off the clients too."""
        return {"clients": dice.with_clients and dice.chance(0.3)}

    def words(self) -> str:
        also = " and clients" if self.clients else ""
        return f"Isolate {target(self.on)} from all other nodes{also}"


class Bridge(_Partition, frozen=True, kw_only=True, tag="bridge"):
    """The brokers other than `on` are split into two halves, cut from each other, that both still
    reach `on`."""

    on: str

    letter = "B"
    sentence = "Split the brokers so that both halves reach only {on}"
    drawing = Drawing(
        targets=(("any", 3), ("leader", 2), ("follower", 1)), aliases=ALIASES, fewest_brokers=3
    )

    def rules(self, site: Site, to: Sequence[str]) -> list[LinkRule]:
        """Return the rules that cut two drawn halves of the other brokers from each other."""
        others = [node for node in site.cluster.broker_names() if node not in site.nodes]
        site.rng.shuffle(others)
        half = len(others) // 2
        return between(sorted(others[:half]), sorted(others[half:]), True, DROP)


class Ring(_Partition, frozen=True, kw_only=True, tag="ring"):
    """Majorities-ring: every broker hears a majority, and no two hear the same one."""

    letter = "R"
    sentence = "Cut links so that every broker sees a different majority"
    drawing = Drawing(aliases=ALIASES, fewest_brokers=3)

    def rules(self, site: Site, to: Sequence[str]) -> list[LinkRule]:
        """Return the rules that let each broker hear only its majority. With more than EXACT_RING
        brokers two of them may hear the same one."""
        brokers = site.cluster.broker_names()
        if len(brokers) < 3:
            return []
        order = list(brokers)
        site.rng.shuffle(order)
        exact = len(order) <= EXACT_RING
        heard = _exact_ring(order) if exact else _drawn_ring(order, site.rng)
        rules = []
        for node in brokers:
            cut_off = tuple(other for other in brokers if other not in heard[node])
            if cut_off:
                rules.append(LinkRule(senders=cut_off, receivers=(node,), action="drop"))
        return rules


def _exact_ring(order: list[str]) -> dict[str, set[str]]:
    """Return the nodes that each node hears: the window of a majority around it on the ring. An
    even majority has no middle: then the links are cut one way only, as with three brokers, where
    each hears one neighbour and is heard by the other."""
    size, majority = len(order), len(order) // 2 + 1
    return {
        order[(start + majority // 2) % size]: {order[(start + k) % size] for k in range(majority)}
        for start in range(size)
    }


def _drawn_ring(order: list[str], rng: random.Random) -> dict[str, set[str]]:
    """Link the two least connected nodes that do not hear each other, until all hear a majority."""
    majority = len(order) // 2 + 1
    heard = {node: {node} for node in order}
    while (lonely := min(order, key=lambda node: (len(heard[node]), rng.random()))) and len(
        heard[lonely]
    ) < majority:
        unheard = [node for node in order if node not in heard[lonely]]
        other = min(unheard, key=lambda node: (len(heard[node]), rng.random()))
        heard[lonely].add(other)
        heard[other].add(lonely)
    return heard
