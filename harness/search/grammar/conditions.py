"""The cluster and the workload of a composed schedule: each option by itself, with its weight.

Only the options that the needs of the drawn faults name are drawn more often than the table says.
A pair that no broker takes is drawn again."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from msgspec.structs import replace

from harness.search.grammar.weights import Choices
from nemesis.faults.kind import KINDS, Requirement
from nemesis.formats.schedule import Cluster, Timings, Workload
from node.core.protocol import protocol as protocol_of

TIMINGS: Final = Timings(
    heartbeat_ms=80,
    session_ms=250,
    lag_ms=200,
    fetch_wait_ms=80,
    fetch_timeout_ms=120,
    retry_ms=20,
    election_min_ms=170,
    election_max_ms=260,
    hw_checkpoint_ms=100,
    idle_wait_ms=60,
    leader_timeout_ms=250,
)
"""Each timeout is about a tenth of a storm's: three virtual seconds hold many elections."""
TIMING_PROFILES: Final = (
    TIMINGS,
    # A lagging follower stays in the in-sync set until the next election.
    replace(TIMINGS, lag_ms=2000),
    # Leaders change before a follower is found to lag.
    replace(TIMINGS, heartbeat_ms=50, session_ms=110, lag_ms=1000, leader_timeout_ms=120),
    # The in-sync set changes before a broker is found to be dead.
    replace(TIMINGS, session_ms=600, lag_ms=120),
    # Candidates stand at the same time, and the high watermark is seldom written down.
    replace(TIMINGS, election_min_ms=170, election_max_ms=185, hw_checkpoint_ms=2000),
)
"""Changes of the timeouts, which decide what a cluster notices first."""
_NEEDED_PERCENT: Final = 70


def draw_conditions(
    choose: Choices,
    protocol: str,
    bugs: tuple[str, ...],
    kinds: Collection[str],
    always: Collection[str] = (),
) -> tuple[Cluster, Workload]:
    """Draw a cluster of `protocol` in which the faults `kinds` can have an effect, and work of its
    clients that its brokers take, with the options in `always`."""
    while True:
        cluster = _cluster(choose, protocol, bugs, kinds)
        workload = _workload(choose, always)
        if not list(workload.problems(cluster)):
            return cluster, workload


def _cluster(
    choose: Choices, protocol: str, bugs: tuple[str, ...], kinds: Collection[str]
) -> Cluster:
    needs = {need for kind in kinds for need in KINDS[kind].needs if choose.chance(_NEEDED_PERCENT)}
    factor = choose.number("replication_factor")
    brokers = max(factor, choose.number("brokers"))
    if Requirement.SPARE_BROKER in needs:
        brokers = max(3, brokers, min(5, factor + 1))
        factor = min(factor, brokers - 1)
    flush = "async" if Requirement.UNSYNCED in needs else choose.of("flush")
    unclean = bool(choose.of("unclean_election"))
    if protocol_of(protocol).clean_only:
        flush, unclean = "sync", False
    most = choose.of("fetch_max_bytes")
    cluster = Cluster(
        protocol=protocol,
        bugs=bugs,
        brokers=brokers,
        voters=3 if Requirement.VOTERS in needs else choose.number("voters"),
        partitions=choose.number("partitions"),
        replication_factor=factor,
        min_isr=min(factor, choose.number("min_isr")),
        flush="async" if flush == "async" else "sync",
        flush_interval_ms=choose.number("flush_interval_ms"),
        unclean_election=unclean,
        retention_records=choose.number("retention_records"),
        timings=TIMING_PROFILES[choose.number("timings")],
    )
    return replace(cluster, fetch_max_bytes=int(most)) if most else cluster


def _workload(choose: Choices, always: Collection[str]) -> Workload:
    members = int(choose.of("members", *(["0"] if "members" in always else [])))
    batch, most = choose.number("batch"), choose.number("batch_most")
    return Workload(
        seed=choose.rng.randrange(1 << 16),
        clients=choose.number("clients"),
        consumers=choose.number("consumers"),
        rate=float(choose.of("rate")),
        batch=min(batch, most or batch),
        batch_most=most,
        spread="zipf" if choose.of("spread") == "zipf" else "even",
        payload_bytes=16,
        acks={-1: -1, 0: 0, 1: 1}[choose.number("acks")],  # type: ignore[arg-type]
        in_flight=choose.number("in_flight"),
        idempotent=bool(choose.of("idempotent", *([""] if "idempotent" in always else []))),
        members=members,
        timeout_ms=choose.number("timeout_ms of members" if members else "timeout_ms"),
    )
