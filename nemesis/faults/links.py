"""From a link fault to the link rules that carry it out. Pure.

Every fault makes rules of its own, so faults over the same link do not know of each other: the
link is cut until the last cut over it is healed.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from nemesis.formats.schedule import Bridge, Cluster, Cut, Delay, Fault, Isolate, Link, Loss, Ring
from nemesis.links.rule import LinkRule

LinkFault = Cut | Isolate | Bridge | Ring | Delay | Loss | Link
EXACT_RING: Final = 5
"""Up to so many brokers a ring is exact; above, majorities are drawn."""


def rules_for(
    fault: LinkFault,
    on: Sequence[str],
    to: Sequence[str],
    cluster: Cluster,
    clients: Sequence[str],
    rng: random.Random,
) -> list[LinkRule]:
    """The rules of a fault on nodes `on` (and `to`); none when it would change no link.

    `clients` are the names of all clients, `rng` draws halves and rings.
    """
    match fault:
        case Cut(two_way=two_way):
            return _between(on, to, two_way, LinkRule(senders=(), receivers=(), action="drop"))
        case Isolate():
            others = [n for n in (*cluster.broker_names(), *cluster.voter_names()) if n not in on]
            others += [client for client in clients if fault.clients]
            return _between(on, others, True, LinkRule(senders=(), receivers=(), action="drop"))
        case Bridge():
            return _bridge(on, cluster.broker_names(), rng)
        case Ring():
            return _ring(cluster.broker_names(), rng)
        case Delay():
            rule = LinkRule(
                senders=(),
                receivers=(),
                action="delay",
                delay_ms=fault.delay_ms,
                jitter_ms=fault.jitter_ms,
                kinds=fault.kinds,
            )
            return _between(on, to, fault.two_way, rule)
        case Loss():
            rule = LinkRule(
                senders=(), receivers=(), action="drop", percent=fault.percent, kinds=fault.kinds
            )
            return _between(on, to, fault.two_way, rule)
        case Link():
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
            return _between(on, to, fault.two_way, rule)


def is_link_fault(fault: Fault) -> bool:
    """Whether a fault is carried out by link rules."""
    return isinstance(fault, LinkFault)


def links_of(rules: Iterable[LinkRule]) -> list[tuple[str, str]]:
    """The links that rules between named nodes touch, each once."""
    pairs = {
        (sender, receiver): None
        for rule in rules
        for sender in rule.senders
        for receiver in rule.receivers
        if sender != receiver
    }
    return list(pairs)


def _between(on: Sequence[str], to: Sequence[str], two_way: bool, like: LinkRule) -> list[LinkRule]:
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


def _bridge(on: Sequence[str], brokers: Sequence[str], rng: random.Random) -> list[LinkRule]:
    """Two drawn halves of the brokers without `on`, cut from each other."""
    others = [node for node in brokers if node not in on]
    rng.shuffle(others)
    half = len(others) // 2
    drop = LinkRule(senders=(), receivers=(), action="drop")
    return _between(sorted(others[:half]), sorted(others[half:]), True, drop)


def _ring(brokers: Sequence[str], rng: random.Random) -> list[LinkRule]:
    """Each broker hears a majority (itself included), no two the same one where it is exact."""
    if len(brokers) < 3:
        return []
    order = list(brokers)
    rng.shuffle(order)
    heard = _exact_ring(order) if len(order) <= EXACT_RING else _drawn_ring(order, rng)
    rules = []
    for node in brokers:
        deaf_to = tuple(other for other in brokers if other not in heard[node])
        if deaf_to:
            rules.append(LinkRule(senders=deaf_to, receivers=(node,), action="drop"))
    return rules


def _exact_ring(order: list[str]) -> dict[str, set[str]]:
    """Whom each node hears: the window of a majority around it on the ring.

    An even majority has no middle: then the links are cut one way only, as with three brokers,
    where each hears one neighbour and is heard by the other.
    """
    size, majority = len(order), len(order) // 2 + 1
    return {
        order[(start + majority // 2) % size]: {order[(start + k) % size] for k in range(majority)}
        for start in range(size)
    }


def _drawn_ring(order: list[str], rng: random.Random) -> dict[str, set[str]]:
    """Link the two least connected strangers until everybody hears a majority."""
    majority = len(order) // 2 + 1
    heard = {node: {node} for node in order}
    while (lonely := min(order, key=lambda node: (len(heard[node]), rng.random()))) and len(
        heard[lonely]
    ) < majority:
        strangers = [node for node in order if node not in heard[lonely]]
        other = min(strangers, key=lambda node: (len(heard[node]), rng.random()))
        heard[lonely].add(other)
        heard[other].add(lonely)
    return heard
