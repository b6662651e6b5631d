"""Single random faults for a storm: on whom, for how long, how hard. Pure, seeded.

Durations lie around the cluster's own timeouts, on both sides, because that is where protocols
decide: a pause just short of the session must change nothing, one just beyond it moves leaders.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final, TypeVar

from nemesis.formats.schedule import (
    Bridge,
    Cluster,
    Cut,
    Delay,
    ElectPreferred,
    Fault,
    Isolate,
    Kill,
    Loss,
    Pause,
    PowerCut,
    Reassign,
    Ring,
    Stop,
    Workload,
)
from nemesis.targets import FEWEST_VOTERS_HIT

# Shorter than the timeout, about as long, longer: factors, with how often each is drawn.
SPANS: Final = (((0.15, 0.6), 4), ((0.8, 1.2), 3), ((1.3, 2.2), 3))

# Message kinds worth harming by themselves, by where the links lead to: replication and its
# answers between brokers, in-sync sets and liveness towards voters, acknowledgements to clients.
_REPLICATION: Final = (("fetch",), ("fetch-response",))
_CONTROL: Final = (
    ("alter-partition", "alter-partition-response"),
    ("heartbeat", "heartbeat-response"),
)
KIND_GROUPS: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "rest": (*_REPLICATION, *_CONTROL),
    "any": _REPLICATION,
    "follower": _REPLICATION,
    "all": _REPLICATION,
    "voters": _CONTROL,
    "clients": (("produce-response",), ("fetch-response",)),
}

# On whom, with how often each is drawn. "p" is a partition that is drawn too.
ROLES_HIT: Final[dict[str, tuple[tuple[str, float], ...]]] = {
    "kill": (
        ("leader:p", 4),
        ("leader", 2),
        ("follower:p", 2),
        ("follower", 1),
        ("lagging", 1),
        ("any", 2),
        ("minority", 1),
        ("majority", 0.7),
        ("all", 0.7),
        ("controller", 1),
        ("voters", 1),
    ),
    "stop": (
        ("leader:p", 4),
        ("leader", 2),
        ("follower:p", 2),
        ("follower", 1),
        ("lagging", 1),
        ("any", 2),
        ("minority", 1),
        ("controller", 1),
    ),
    "power-cut": (
        ("leader:p", 4),
        ("leader", 2),
        ("follower:p", 2),
        ("follower", 1),
        ("lagging", 1),
        ("isr:p", 1.5),
        ("any", 2),
        ("minority", 1),
        ("majority", 0.7),
        ("all", 0.7),
    ),
    "pause": (
        ("leader:p", 4),
        ("leader", 2),
        ("follower:p", 2),
        ("follower", 1),
        ("lagging", 1),
        ("any", 2),
        ("minority", 1),
        ("majority", 0.7),
        ("all", 0.7),
        ("controller", 1),
        ("voters", 1),
    ),
    "isolate": (
        ("leader:p", 4),
        ("leader", 2),
        ("follower:p", 2),
        ("follower", 1),
        ("lagging", 1),
        ("any", 2),
        ("minority", 1),
        ("majority", 0.7),
        ("controller", 1),
    ),
    "bridge": (("any", 3), ("leader", 2), ("follower", 1)),
    "cut": (
        ("leader:p", 4),
        ("leader", 2),
        ("follower:p", 2),
        ("follower", 1),
        ("lagging", 1),
        ("any", 2),
        ("minority", 1),
        ("controller", 1),
    ),
    "delay": (
        ("leader:p", 3),
        ("leader", 2),
        ("follower:p", 2),
        ("follower", 1),
        ("lagging", 1),
        ("any", 2),
        ("minority", 1),
        ("all", 2),
        ("controller", 1),
    ),
    "loss": (
        ("leader:p", 3),
        ("leader", 2),
        ("follower:p", 2),
        ("follower", 1),
        ("lagging", 1),
        ("any", 2),
        ("minority", 1),
        ("all", 2),
        ("controller", 1),
    ),
}
OTHER_ENDS: Final = (("rest", 5), ("any", 2), ("follower", 2), ("voters", 1.5), ("clients", 1.5))
COMMANDS: Final = ("elect-preferred", "reassign")
ON_VOTERS: Final = ("controller", "voters")
WIDE: Final = ("majority", "all", "voters", "isr:p")

T = TypeVar("T")


def weighted(rng: random.Random, choices: Sequence[tuple[T, float]]) -> T:
    """One of the values, as often as its weight says."""
    values, weights = zip(*choices, strict=True)
    found: T = rng.choices(values, weights)[0]
    return found


class FaultMaker:
    """Draws single faults for one cluster and workload from one generator."""

    def __init__(self, cluster: Cluster, workload: Workload, rng: random.Random) -> None:
        self._cluster = cluster
        self._timings = cluster.timings
        self._with_clients = workload.clients + workload.consumers > 0
        self._rng = rng

    def partition(self) -> str:
        """One of the data partitions."""
        return self._rng.choice(self._cluster.partition_names())

    def between(self, low: float, high: float) -> int:
        """A number of milliseconds, at least 1."""
        return max(1, round(self._rng.uniform(low, high)))

    def span(self, *, brief: bool = False) -> int:
        """How long a fault lasts, in ms: around the session or the lag timeout, on either side."""
        timeout = self._rng.choice((self._timings.session_ms, self._timings.lag_ms))
        low, high = SPANS[0][0] if brief else weighted(self._rng, SPANS)
        return self.between(timeout * low, timeout * high)

    def beyond_session(self) -> int:
        """How long a blow lasts that moves leaders, in ms: longer than the session timeout."""
        return self.between(1.15 * self._timings.session_ms, 1.9 * self._timings.session_ms)

    def fault(self, kind: str, at_ms: int) -> Fault:
        """A fault of this kind with everything drawn, its `for_ms` too."""
        if kind == "ring":
            return Ring(at_ms=at_ms, for_ms=self.span())
        if kind in COMMANDS:
            return self.command(kind, at_ms)
        roles = [
            (role, weight)
            for role, weight in ROLES_HIT[kind]
            if role not in ON_VOTERS or self._cluster.voters >= FEWEST_VOTERS_HIT
        ]
        on = weighted(self._rng, roles)
        # When most of the cluster is gone nothing is acknowledged: keep that short.
        for_ms = self.span(brief=on in WIDE)
        if on.endswith(":p"):
            on = f"{on[:-1]}{self.partition()}"
        return self.on(kind, on, at_ms, for_ms)

    def command(self, kind: str, at_ms: int) -> Fault:
        """A command to the controller, over in a moment."""
        if kind == "elect-preferred":
            return ElectPreferred(partition=self.partition(), at_ms=at_ms)
        return Reassign(partition=self.partition(), replicas="rotate", at_ms=at_ms)

    def on(self, kind: str, on: str, at_ms: int, for_ms: int) -> Fault:
        """A fault of this kind on a given target; how hard it hits is drawn."""
        match kind:
            case "kill":
                return Kill(on=on, at_ms=at_ms, for_ms=for_ms)
            case "stop":
                return Stop(on=on, at_ms=at_ms, for_ms=for_ms)
            case "power-cut":
                return PowerCut(on=on, at_ms=at_ms, for_ms=for_ms)
            case "pause":
                return Pause(on=on, at_ms=at_ms, for_ms=for_ms)
            case "isolate":
                clients = self._with_clients and self._rng.random() < 0.3
                return Isolate(on=on, clients=clients, at_ms=at_ms, for_ms=for_ms)
            case "bridge":
                return Bridge(on=on, at_ms=at_ms, for_ms=for_ms)
            case "cut":
                to, two_way = self._other_end(on), self._rng.random() < 0.5
                return Cut(on=on, to=to, two_way=two_way, at_ms=at_ms, for_ms=for_ms)
            case "delay":
                return self._delay(on, at_ms, for_ms)
            case _:
                return self._loss(on, at_ms, for_ms)

    def deafen(self, kind: str, partition: str, at_ms: int, for_ms: int) -> Fault:
        """A fault of this kind that makes a follower of a partition fall behind. One on links
        takes only its leader from it: everybody else, the controller too, still hears it."""
        follower = f"follower:{partition}"
        leader = f"leader:{partition}"
        match kind:
            case "cut":
                return Cut(on=follower, to=leader, at_ms=at_ms, for_ms=for_ms)
            case "loss":
                return Loss(
                    on=follower,
                    to=leader,
                    percent=100,
                    kinds=("fetch", "fetch-response"),
                    at_ms=at_ms,
                    for_ms=for_ms,
                )
            case _:
                return self.on(kind, follower, at_ms, for_ms)

    def _delay(self, on: str, at_ms: int, for_ms: int) -> Fault:
        ranges = (((5, 50), 3.0), ((100, 300), 3.0), ((0.5, 1.2), 2.0))
        low, high = weighted(self._rng, ranges)
        unit = self._timings.lag_ms if high < 2 else 1
        delay_ms = self.between(low * unit, high * unit)
        to = self._other_end(on)
        return Delay(
            on=on,
            to=to,
            delay_ms=delay_ms,
            jitter_ms=self._rng.choice((0, delay_ms // 4, delay_ms)),
            two_way=self._rng.random() < 0.6,
            kinds=self._kinds(to, 0.25),
            at_ms=at_ms,
            for_ms=for_ms,
        )

    def _loss(self, on: str, at_ms: int, for_ms: int) -> Fault:
        to = self._other_end(on)
        kinds = self._kinds(to, 0.4)
        percent = self._rng.choice((50, 80, 100) if kinds else (5, 10, 20, 40, 60))
        return Loss(
            on=on,
            to=to,
            percent=percent,
            two_way=self._rng.random() < 0.6,
            kinds=kinds,
            at_ms=at_ms,
            for_ms=for_ms,
        )

    def _kinds(self, to: str, probability: float) -> tuple[str, ...]:
        """Now and then only some kinds of messages: such as really pass on the way to `to`."""
        return self._rng.choice(KIND_GROUPS[to]) if self._rng.random() < probability else ()

    def _other_end(self, on: str) -> str:
        """Where the links of a fault on `on` lead to: always somebody else."""
        if on == "all":
            return "all"
        ends = [
            (end, weight)
            for end, weight in OTHER_ENDS
            if (end != "clients" or self._with_clients)
            and not (end == "follower" and on.startswith(("lagging", "minority")))
            and not (end == "voters" and on in ON_VOTERS)
        ]
        return weighted(self._rng, ends)
