"""Schedules for tests of the simulated world: small clusters, short storms."""

from __future__ import annotations

from typing import Any

from nemesis.draw import draw
from nemesis.formats.schedule import Cluster, Fault, Schedule, Workload

BRIEF = {"clients": 2, "consumers": 1, "rate": 20.0, "batch": 2}


def storm(seed: int, *, kinds: tuple[str, ...] = ("all",), **cluster: Any) -> Schedule:
    """Return a drawn storm of six seconds on three brokers and two partitions."""
    if cluster.get("flush") == "async":
        kinds = (*kinds, "power-cut")
    made = Cluster(**{"partitions": 2, **cluster})
    workload = Workload(seed=seed, duration_ms=6000, **BRIEF)  # type: ignore[arg-type]
    faults = draw(made, workload, kinds, seed)
    return Schedule(cluster=made, workload=workload, faults=faults, drawn=True)


def plan(*faults: Fault, duration_ms: int = 5000, acks: Any = -1, **cluster: Any) -> Schedule:
    made = Cluster(**{"partitions": 1, **cluster})
    workload = Workload(seed=1, duration_ms=duration_ms, acks=acks, **BRIEF)  # type: ignore[arg-type]
    return Schedule(cluster=made, workload=workload, faults=faults)
