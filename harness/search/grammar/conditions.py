"""The cluster and the workload of a composed schedule: each option by itself, with its weight.

Only the options that the needs of the drawn faults name are drawn more often than the table says.
A pair that no broker takes is drawn again."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from msgspec.structs import replace

from harness.search.draw.generator import TIMING_PROFILES
from harness.search.grammar.weights import Choices
from nemesis.faults.kind import KINDS, Requirement
from nemesis.formats.schedule import Cluster, Workload
from node.core.protocol import protocol as protocol_of

_NEEDED_PERCENT: Final = 70


def draw_cluster(
    choose: Choices, protocol: str, bugs: tuple[str, ...], kinds: Collection[str]
) -> Cluster:
    """Draw a cluster of `protocol` in which the faults `kinds` can have an effect."""
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


def draw_workload(choose: Choices, cluster: Cluster) -> Workload:
    """Draw the work of the clients, such that the brokers of the cluster take it."""
    seed = choose.rng.randrange(1 << 16)
    while True:
        batch, most = choose.number("batch"), choose.number("batch_most")
        workload = Workload(
            seed=seed,
            clients=choose.number("clients"),
            consumers=choose.number("consumers"),
            rate=float(choose.of("rate")),
            batch=min(batch, most or batch),
            batch_most=most,
            spread="zipf" if choose.of("spread") == "zipf" else "even",
            payload_bytes=16,
            acks={-1: -1, 0: 0, 1: 1}[choose.number("acks")],  # type: ignore[arg-type]
            in_flight=choose.number("in_flight"),
            idempotent=bool(choose.of("idempotent")),
            timeout_ms=choose.number("timeout_ms"),
        )
        if not list(workload.problems(cluster)):
            return workload
