"""The brokers that a schedule describes: configuration, topic and promise, for real and simulated
runs (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from harness.clients.member import QUIET_MS
from harness.formats.run_info import GroupPromise, Promise
from nemesis.faults import ElectUnclean, Upgrade
from nemesis.faults.losses import may_lose_synced, outnumber_copies
from nemesis.formats.schedule import Cluster, Schedule
from node.core.api import NodeConfig
from node.core.protocol import Detection, LeaderBy, Protocol, RestartRule, are_compatible, protocol
from node.formats import trace
from node.formats.errors import UsageError
from node.formats.messages import CreateTopic

CAPABILITIES: Final = ("trace", "logs", "hw", "epochs")
"""What a run of ours leaves behind: everything that a check can ask for."""
TOPIC: Final = "log"


def node_config(
    cluster: Cluster, node: str, incarnation: int, upgraded: Mapping[str, str] | None = None
) -> NodeConfig:
    """Return the configuration of a node's core; `upgraded` maps a node to its protocol, if that is
    not the cluster's."""
    return NodeConfig(
        node=node,
        voters=cluster.voter_names(),
        brokers=cluster.broker_names(),
        incarnation=incarnation,
        bugs=cluster.bugs,
        protocol=(upgraded or {}).get(node, cluster.protocol),
        flush_interval_ms=0 if cluster.flush == "sync" else cluster.flush_interval_ms,
        retention_records=cluster.retention_records,
        fetch_max_bytes=cluster.fetch_max_bytes,
        unclean_election=cluster.unclean_election,
        record_epochs=cluster.record_epochs,
        timings=cluster.timings,
    )


def topic_of(cluster: Cluster, *, groups: bool = False) -> CreateTopic:
    """Return the request that makes the partitions of a cluster, with `groups` that of groups."""
    return CreateTopic(
        groups=groups,
        topic=TOPIC,
        partitions=cluster.partitions,
        min_isr=cluster.min_isr,
        replication_factor=cluster.replication_factor,
    )


def promise_of(schedule: Schedule) -> Promise:
    """Return the promise of these brokers under the faults and settings of a schedule."""
    cluster, acks = schedule.cluster, schedule.workload.acks
    rules = protocol(cluster.protocol)
    unclean = cluster.unclean_election or any(
        isinstance(fault, ElectUnclean) for fault in schedule.faults
    )
    # Leaders that are elected by votes begin with a record of their own.
    voted = rules.leader_by is LeaderBy.VOTES
    # A broker that comes back at once keeps its place in the ISR, or even the lead, without what
    # the power cut took: then one is enough (what KIP-966 mends).
    copies = 1 if rules.restart is RestartRule.AT_ONCE else None
    disks_kept = not may_lose_synced(schedule, _copies(rules, cluster))
    kept = not unclean and disks_kept and not outnumber_copies(schedule, copies)
    return Promise(
        acks=acks,
        flush=cluster.flush,
        unclean_election=unclean,
        durable_acks=acks == -1 and kept,
        committed_kept=kept,
        disks_kept=disks_kept,
        contiguous_offsets=not voted,
        silence_deposes=rules.detection is Detection.HEARTBEATS,
        retention=cluster.retention_records > 0,
        retention_records=cluster.retention_records,
        idempotent=schedule.workload.idempotent,
        groups=_groups(kept, cluster) if schedule.workload.members else None,
    )


def _groups(kept: bool, cluster: Cluster) -> GroupPromise:
    """Return the promise of the coordinator: its state is a log like all others, so that all of it
    rests on what is `kept` of a log."""
    return GroupPromise(
        kind="positions",
        order="owner" if kept else "none",
        at_least_once=kept,
        durable=kept,
        fenced=kept,
        fenced_reads=kept,
        exclusive=kept,
        epochs_rise=kept,
        redelivery_ms=QUIET_MS,
        rebalance_ms=4 * cluster.timings.session_ms,
    )


def _copies(rules: Protocol, cluster: Cluster) -> int | None:
    """Return how many brokers must lose synced data before a partition may lose records or remain
    without a leader; None: min_isr."""
    if rules.restart is RestartRule.AT_ONCE:
        return 1
    return (cluster.replication_factor - 1) // 2 + 1 if rules.leader_by is LeaderBy.VOTES else None


def check_upgrades(schedule: Schedule) -> None:
    """Refuse upgrades to a protocol that cannot be mixed with the cluster's.

    Raises UsageError.
    """
    here = protocol(schedule.cluster.protocol)
    for index, fault in enumerate(schedule.faults):
        if isinstance(fault, Upgrade) and not fault.protocol:
            raise UsageError(
                f"fault {index} ({fault.what}): needs a protocol; version is for others"
            )
        if isinstance(fault, Upgrade) and not are_compatible(here, protocol(fault.protocol)):
            raise UsageError(
                f"fault {index} (upgrade): {here.name} and {fault.protocol} cannot be mixed: only "
                "protocols that differ in the version of OffsetForLeaderEpoch can, and "
                "high-watermark with kip-101"
            )


class StartupMonitor:
    """The nodes that have started (`started`), and the brokers that the controller has registered
    and unfenced, according to the traces."""

    def __init__(self) -> None:
        self.started: set[str] = set()
        self.unfenced: set[str] = set()

    def feed(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Process trace events, in order."""
        for event in events:
            match event.get("event"):
                case trace.STARTED:
                    self.started.add(event["node"])
                case trace.BROKER if event["state"] == "unfenced":
                    self.unfenced.add(event["broker"])
                case trace.BROKER:
                    self.unfenced.discard(event["broker"])
