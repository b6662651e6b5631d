"""One run as a search sees it: classes of failures know no names, places or times."""

from __future__ import annotations

import functools

import pytest
from msgspec.structs import replace

from harness.search.attempt import attempt
from harness.search.generator import TIMINGS
from nemesis.faults import Cut, Kill, PowerCut
from nemesis.formats.schedule import Cluster, Schedule, Workload

LOST = "no-lost-acknowledged-write"


def kip_101(first: str = "n1", second: str = "n2", at_ms: int = 2, **changes: int) -> Schedule:
    """A follower restarts and cuts its log to its own high watermark; its leader dies."""
    return Schedule(
        cluster=Cluster(
            protocol="high-watermark",
            brokers=2,
            replication_factor=2,
            min_isr=1,
            partitions=changes.get("partitions", 1),
            timings=TIMINGS,
        ),
        workload=Workload(
            seed=changes.get("seed", 7),
            clients=1,
            consumers=0,
            rate=10.0,
            batch=1,
            payload_bytes=16,
            timeout_ms=600,
            duration_ms=700,
        ),
        faults=(Kill(on=second, at_ms=at_ms, for_ms=1), Kill(on=first, at_ms=at_ms, for_ms=400)),
    )


@functools.cache
def bitten() -> list[tuple[Schedule, str]]:
    """Relabelled and shifted copies of one failure that all bite, each with its bucket."""
    copies = [
        kip_101(at_ms=at_ms, seed=seed, partitions=partitions)
        for at_ms in (146, 158, 170)
        for seed in (7, 8)
        for partitions in (1, 2)
    ]
    return [(copy, outcome.bucket) for copy in copies if (outcome := attempt(copy)).failed]


def test_copies_of_one_failure_fall_into_one_bucket() -> None:
    found = bitten()
    assert len(found) >= 5
    assert {bucket for _, bucket in found} == {f"{LOST}: cut:own-high-watermark"}


@pytest.mark.parametrize(
    ("bug", "faults", "bucket"),
    [
        (
            "ack-before-isr",
            (Cut(on="n1", to="rest", at_ms=2, for_ms=400),),
            "elected-without:in-sync",
        ),
        (
            "no-fsync-before-ack",
            (
                PowerCut(on="n1", at_ms=300, keep_percent=0, for_ms=10),
                PowerCut(on="n2", at_ms=300, keep_percent=0, for_ms=10),
            ),
            "",
        ),
    ],
)
def test_bugs_that_work_differently_do_not_share_a_bucket(
    bug: str, faults: tuple[Cut | PowerCut, ...], bucket: str
) -> None:
    base = kip_101()
    cluster = replace(base.cluster, protocol="kafka", bugs=(bug,))
    outcome = attempt(replace(base, cluster=cluster, faults=faults))
    assert outcome.failed
    assert bucket in outcome.bucket
    assert outcome.bucket != f"{LOST}: cut:own-high-watermark"


def test_a_run_that_proves_little_is_no_problem() -> None:
    outcome = attempt(replace(kip_101(at_ms=650), faults=()))
    assert not outcome.failed
    assert not outcome.problem
