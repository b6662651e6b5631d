"""The random parts of a fault: targets, partitions, lengths. Pure, seeded.

Lengths lie around the cluster's own timeouts, on both sides, because that is where protocols
decide: a pause just short of the session must change nothing, one just beyond it moves leaders.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final, TypeVar

from nemesis.formats.cluster_spec import Cluster, Workload
from nemesis.links.abilities import HUB, LinkAbilities
from nemesis.targets import FEWEST_VOTERS_HIT

ON_VOTERS: Final = ("controller", "voters")
# Shorter than the timeout, about as long, longer: factors, with how often each is drawn.
_SPANS: Final = (((0.15, 0.6), 4), ((0.8, 1.2), 3), ((1.3, 2.2), 3))

T = TypeVar("T")


class Dice:
    """Draws for one cluster and workload from one generator."""

    def __init__(
        self,
        cluster: Cluster,
        workload: Workload,
        rng: random.Random,
        links: LinkAbilities = HUB,
        *,
        maps: bool = True,
    ) -> None:
        """Roll the dice of one storm. `maps`: whether nodes have a store with a map that can be
        full, as our own brokers do."""
        self._cluster = cluster
        self.links = links
        self.maps = maps
        self.timings = cluster.timings
        self.with_voters = cluster.voters > 0
        self.with_clients = workload.clients + workload.consumers > 0
        self.rng = rng
        self._victim = ""

    def weighted(self, choices: Sequence[tuple[T, float]]) -> T:
        """Return one of the values, as often as its weight says."""
        values, weights = zip(*choices, strict=True)
        found: T = self.rng.choices(values, weights)[0]
        return found

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self.rng.random() < probability

    def target(self, targets: Sequence[tuple[str, float]]) -> str:
        """Return one of the targets; voters only where a quorum survives the loss of one."""
        hit = self._cluster.voters >= FEWEST_VOTERS_HIT
        return self.weighted([t for t in targets if hit or t[0] not in ON_VOTERS])

    def partition(self) -> str:
        """Return one of the data partitions."""
        return self.rng.choice(self._cluster.partition_names())

    def victim(self) -> str:
        """Return the one broker of this storm whose disk is damaged."""
        if not self._victim:
            self._victim = self.rng.choice(self._cluster.broker_names())
        return self._victim

    def between(self, low: float, high: float) -> int:
        """Return a number of milliseconds, at least 1."""
        return max(1, round(self.rng.uniform(low, high)))

    def span(self, *, brief: bool = False) -> int:
        """Return how long a fault lasts, in ms: around the session or the lag timeout, on either
        side."""
        timeout = self.rng.choice((self.timings.session_ms, self.timings.lag_ms))
        low, high = _SPANS[0][0] if brief else self.weighted(_SPANS)
        return self.between(timeout * low, timeout * high)

    def beyond_session(self) -> int:
        """Return how long a fault lasts that moves leaders, in ms: longer than the session
        timeout."""
        return self.between(1.15 * self.timings.session_ms, 1.9 * self.timings.session_ms)
