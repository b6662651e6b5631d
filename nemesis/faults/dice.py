"""The random parts of a fault: targets, partitions, lengths. Pure, seeded.

Lengths are around the cluster's own timeouts, shorter and longer, because that is where protocols
decide: a pause just short of the session must change nothing, one just beyond it moves leaders."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeVar

from nemesis.formats.cluster_spec import Cluster, Workload
from nemesis.formats.fault import Fault
from nemesis.links.abilities import HUB, LinkAbilities
from nemesis.targets import FEWEST_VOTERS_HIT

ON_VOTERS: Final = ("controller", "voters")
# Shorter than the timeout, about as long, longer: factors, with how often each is drawn.
_SPANS: Final = (((0.15, 0.6), 4), ((0.8, 1.2), 3), ((1.3, 2.2), 3))

T = TypeVar("T")


class Spot(NamedTuple):
    """The spot of a fault in a composed schedule: its target `on`, the `other` end of its links,
    the partition that the schedule is about, and a length. `votes`: brokers elect by votes.
    `leads` is the broker that probably leads, "" if that is open, `before` are the faults so far.
    """

    dice: Dice
    on: str
    other: str
    partition: str
    for_ms: int
    votes: bool = False
    leads: str = ""
    before: tuple[Fault, ...] = ()


class Dice:
    """The source of all random parts of the faults of one storm, for one cluster and workload."""

    def __init__(
        self,
        cluster: Cluster,
        workload: Workload,
        rng: random.Random,
        links: LinkAbilities = HUB,
        *,
        maps: bool = True,
    ) -> None:
        """Prepare to draw one storm with `rng`. `links` are the abilities of the links; `maps`: the
        nodes' stores have a map that can be full, as our own brokers' have."""
        self._cluster = cluster
        self.links = links
        self.maps = maps
        self.timings = cluster.timings
        self.brokers = cluster.broker_names()
        self.copies = cluster.replication_factor
        self.min_isr = cluster.min_isr
        self.protocol = cluster.protocol
        self.voters = cluster.voters
        self.with_clients = workload.clients + workload.consumers > 0
        self.with_members = workload.members > 0
        self.idempotent = workload.idempotent
        self.rng = rng
        self.victim = rng.choice(self.brokers)
        """The one broker of this storm whose disk is damaged."""

    def weighted(self, choices: Sequence[tuple[T, float]]) -> T:
        """Draw one of the values, as often as its weight says."""
        values, weights = zip(*choices, strict=True)
        found: T = self.rng.choices(values, weights)[0]
        return found

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self.rng.random() < probability

    def target(self, targets: Sequence[tuple[str, float]]) -> str:
        """Draw one of the targets by weight; voters only if enough survive the loss of one."""
        hit = self._cluster.voters >= FEWEST_VOTERS_HIT
        return self.weighted([t for t in targets if hit or t[0] not in ON_VOTERS])

    def partition(self) -> str:
        """Draw one of the data partitions."""
        return self.rng.choice(self._cluster.partition_names())

    def between(self, low: float, high: float) -> int:
        """Draw a number of milliseconds between two bounds, at least 1."""
        return max(1, round(self.rng.uniform(low, high)))

    def span(self, *, brief: bool = False) -> int:
        """Draw how long a fault lasts, in ms: shorter than the session or the lag timeout, about as
        long, or longer; shorter in any case if `brief`."""
        timeout = self.rng.choice((self.timings.session_ms, self.timings.lag_ms))
        low, high = _SPANS[0][0] if brief else self.weighted(_SPANS)
        return self.between(timeout * low, timeout * high)


def side_of(target: str) -> str:
    """Return which kind of nodes a target names: "n" brokers, "v" voters, "c" clients."""
    if target in ON_VOTERS:
        return "v"
    return target[0] if target[0] in "vc" else "n"
