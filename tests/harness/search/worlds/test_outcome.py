"""One run as a search sees it: classes of failures know no names, places or times."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from harness.search.grammar.conditions import TIMINGS
from harness.search.worlds.outcome import run_simulated
from nemesis.faults import Cut, Kill, PowerCut
from nemesis.formats.schedule import Cluster, Fault, Schedule, Workload

LOST = "no-lost-acknowledged-write"


def trickle(*faults: Fault, seed: int = 7, **cluster: Any) -> Schedule:
    """Two brokers under a trickle of writes."""
    made: dict[str, Any] = {"protocol": "high-watermark", "partitions": 1, "min_isr": 1}
    size = {"brokers": 2, "replication_factor": 2, "timings": TIMINGS}
    writes = {"clients": 1, "consumers": 0, "rate": 10.0, "batch": 1, "payload_bytes": 16}
    return Schedule(
        cluster=Cluster(**{**made, **size, **cluster}),
        workload=Workload(seed=seed, timeout_ms=600, duration_ms=700, **writes),  # type: ignore[arg-type]
        faults=faults,
    )


def kip_101(at_ms: int = 2, **changes: int) -> Schedule:
    """Return a schedule in which a follower restarts and cuts its log to its own high watermark,
    and its leader dies."""
    follower, leader = Kill(on="n2", at_ms=at_ms, for_ms=1), Kill(on="n1", at_ms=at_ms, for_ms=400)
    return trickle(follower, leader, **changes)


@functools.cache
def bitten() -> list[tuple[Schedule, str]]:
    """Relabelled and shifted copies of one failure that all bite, each with its bucket."""
    copies = [
        kip_101(at_ms=at_ms, seed=seed, partitions=partitions)
        for at_ms in (146, 158, 170)
        for seed in (7, 8)
        for partitions in (1, 2)
    ]
    return [(copy, outcome.bucket) for copy in copies if (outcome := run_simulated(copy)).failed]


def test_copies_of_one_failure_fall_into_one_bucket() -> None:
    found = bitten()
    assert len(found) >= 5
    assert {bucket for _, bucket in found} == {f"{LOST}: cut:own-high-watermark"}


POWER = [PowerCut(on=f"n{i}", at_ms=300, keep_percent=0, for_ms=10) for i in (1, 2)]


@pytest.mark.parametrize(
    ("bug", "faults", "bucket"),
    [
        (
            "ack-before-isr",
            [Cut(on="n1", to="rest", at_ms=2, for_ms=400)],
            "elected-without:in-sync",
        ),
        ("no-fsync-before-ack", POWER, ""),
    ],
)
def test_bugs_that_work_differently_do_not_share_a_bucket(
    bug: str, faults: list[Fault], bucket: str
) -> None:
    outcome = run_simulated(trickle(*faults, protocol="kafka", bugs=(bug,)))
    assert outcome.failed
    assert bucket in outcome.bucket
    assert outcome.bucket != f"{LOST}: cut:own-high-watermark"
