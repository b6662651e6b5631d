"""Our own brokers as a schedule describes them, in whichever world they run (pure)."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from harness.rundir import Promise
from nemesis.disks import outnumber_copies
from nemesis.schedule import Cluster, Schedule
from node.core.api import CoreTimings, NodeConfig
from node.core.messages import CreateTopic
from node.core.protocol import Detection, LeaderBy, Restart, protocol

CAPABILITIES: Final = ("trace", "logs", "hw", "epochs")
"""What a run of ours leaves behind: everything that a check can ask for."""
TOPIC: Final = "log"


class Exit(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `exits.jsonl`: one end of a process."""

    node: str
    incarnation: int
    t_us: int
    code: int
    by: Literal["kill", "stop", "itself"]
    expected: bool


def node_config(cluster: Cluster, node: str, incarnation: int) -> NodeConfig:
    """What the core of one node is told."""
    timings = {name: getattr(cluster.timings, name) for name in CoreTimings.__struct_fields__}
    return NodeConfig(
        node=node, voters=cluster.voter_names(), brokers=cluster.broker_names(),
        incarnation=incarnation, protocol=cluster.protocol, switches=cluster.switches,
        flush_interval_ms=0 if cluster.flush == "sync" else cluster.flush_interval_ms,
        unclean_election=cluster.unclean_election, timings=CoreTimings(**timings),
    )  # fmt: skip


def topic_of(cluster: Cluster) -> CreateTopic:
    """The request that makes the partitions of a cluster."""
    return CreateTopic(
        topic=TOPIC, partitions=cluster.partitions, min_isr=cluster.min_isr,
        replication_factor=cluster.replication_factor,
    )  # fmt: skip


def promise_of(schedule: Schedule) -> Promise:
    """What these brokers promise under this schedule."""
    cluster, acks = schedule.cluster, schedule.workload.acks
    rules = protocol(cluster.protocol)
    # Leaders that are elected by votes begin with a record of their own.
    voted = rules.leader_by is LeaderBy.VOTES
    # A broker that comes back at once keeps its place in the ISR, or even the lead, without what
    # the power cut took: then one is enough (what KIP-966 mends).
    copies = 1 if rules.restart is Restart.AT_ONCE else cluster.min_isr
    return Promise(
        acks=acks, flush=cluster.flush, unclean_election=cluster.unclean_election,
        durable_acks=acks == -1 and not cluster.unclean_election
        and not outnumber_copies(schedule, copies),
        contiguous_offsets=not voted,
        silence_deposes=rules.detection is Detection.HEARTBEATS,
    )  # fmt: skip
