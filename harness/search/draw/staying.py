"""Schedules in which nodes fail for good: a minority dies, is cut off or has a full disk until the
end of the storm, and the rest must go on. Pure.

The check `unavailable` judges them. It needs a storm that goes on for longer than a recovery may
take, and no fault that leaves anything behind."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from nemesis.faults import KINDS
from nemesis.formats.schedule import Cluster, Fault, Schedule

FOR_GOOD: Final = ("stop", "kill", "pause", "isolate", "disk-full")
"""The kinds by which a node fails until the end of the storm."""
_PASSING: Final = ("kill", "pause", "isolate")
"""The kinds by which one may have failed before."""
_BEFORE_MS: Final = (150, 300, 600)
_APART_MS: Final = (0, 5, 60, 300)
_LONGER: Final = 1.3
"""How long the storm goes on, in the time that a recovery may take."""


def fit(rng: random.Random, cluster: Cluster) -> Cluster:
    """Return the cluster with so many nodes that a minority can be spared."""
    brokers = max(3, cluster.brokers)
    voters = max(cluster.voters, rng.choice((1, 3, 3)))
    factor = max(3, cluster.replication_factor)
    small = {"brokers": brokers, "replication_factor": factor, "min_isr": min(2, cluster.min_isr)}
    return replace(cluster, voters=voters, unclean_election=False, **small)


def stays(
    rng: random.Random, schedule: Schedule, recovery_ms: int, kinds: Sequence[str] = FOR_GOOD
) -> Schedule:
    """Return the schedule with failures that stay, of the `kinds`, instead of its faults; a
    recovery of its cluster may take `recovery_ms`."""
    cluster, partition = schedule.cluster, rng.choice(schedule.cluster.partition_names())
    leader, any_broker = f"leader:{partition}", rng.choice(cluster.broker_names())
    brokers = (leader, leader, f"follower:{partition}", any_broker)
    any_voter = rng.choice(cluster.voter_names())
    voters = ("controller", "controller", any_voter) if cluster.voters > 2 else ()
    faults: list[Fault] = []
    at_ms = rng.choice(_BEFORE_MS)
    passing = [kind for kind in kinds if kind in _PASSING]
    # It is not the first leader, or controller, that fails for good.
    if passing and rng.random() < 0.4:
        for_ms = round(cluster.timings.session_ms * rng.choice((1.3, 1.8)))
        faults.append(_fails(rng, passing, rng.choice((*brokers, *voters)), at_ms, for_ms))
        at_ms += 2 * for_ms
    last_ms = at_ms
    for targets in (voters, brokers) if rng.random() < 0.5 else (brokers, voters):
        if targets and (targets is brokers or rng.random() < 0.8):
            faults.append(_fails(rng, kinds, rng.choice(targets), last_ms, None))
            last_ms += rng.choice(_APART_MS)
    workload = replace(
        schedule.workload,
        clients=max(2, schedule.workload.clients),
        acks=-1,
        duration_ms=last_ms + round(_LONGER * recovery_ms) + cluster.timings.session_ms,
    )
    return replace(schedule, faults=tuple(faults), workload=workload)


def _fails(
    rng: random.Random, kinds: Sequence[str], on: str, at_ms: int, for_ms: int | None
) -> Fault:
    """Draw a failure of a whole node; `for_ms` None: for good."""
    name = rng.choice(kinds)
    make: Callable[..., Fault] = KINDS[name]
    cut_from_clients = {"clients": True} if name == "isolate" else {}
    return make(on=on, at_ms=at_ms, for_ms=for_ms, **cut_from_clients)
