"""The roles of a broker's replicas, which follow from the applied metadata image.

A replica may miss states of its partition between two records that it applies (removed and added
again, leadership lost and regained). A record counts only if its partition epoch is newer than the
replica's, since a leader may have learned the state from its AlterPartition answer already. See
docs/protocols.md."""

from __future__ import annotations

from collections.abc import Iterable

from node.core import follower, isr_change, leader
from node.core.context import Context
from node.core.election import effective_min_isr
from node.core.image import NO_LEADER, PartitionRecord
from node.core.log import Damage
from node.core.protocol import LeaderBy, Protocol
from node.core.quorum import Quorum
from node.core.replica import Replica, forget_values, load, trace_damage


def apply(
    ctx: Context,
    replicas: dict[str, Replica],
    quorums: dict[str, Quorum],
    changed: Iterable[PartitionRecord],
    protocol: Protocol,
) -> list[Replica]:
    """Give replicas the roles of `changed` partition records: load new ones into `replicas`, delete
    the logs of those moved elsewhere. Return the replicas whose role changed. If the replicas vote
    for their leader, the records only name the voters: the replica gets its own `Quorum` in
    `quorums`."""
    touched = []
    for record in changed:
        r = replicas.get(record.partition)
        if ctx.node not in record.replicas:
            if r is not None:
                _remove(ctx, replicas, r)
            continue
        if r is None:
            durable = _durable(ctx, protocol)
            r = replicas[record.partition] = load(ctx, record.partition, protocol, durable=durable)
            if protocol.leader_by is LeaderBy.VOTES:
                quorums[record.partition] = Quorum(ctx, r, record.replicas)
                quorums[record.partition].start(ctx)
                touched.append(r)
        if protocol.leader_by is LeaderBy.VOTES:
            continue
        if record.partition_epoch > r.partition_epoch or record.leader_epoch > r.leader_epoch:
            _transition(ctx, r, record)
            touched.append(r)
    return touched


def _transition(ctx: Context, r: Replica, record: PartitionRecord) -> None:
    """Take the role that `record` gives this node. No truncation happens here."""
    new_epoch = record.leader_epoch > r.leader_epoch
    assert record.leader_epoch >= r.leader_epoch, (record, r.leader_epoch)
    r.replicas = record.replicas
    r.min_isr = effective_min_isr(record)
    if r.role == "leader" and not new_epoch:
        assert record.leader == ctx.node, record
        isr_change.committed(ctx, r, record.isr, record.partition_epoch)
        return
    if r.role == "leader":
        leader.resign(ctx, r)
    r.isr = record.isr
    r.partition_epoch = record.partition_epoch
    same_leader = r.bugs.keep_fetcher_in_new_epoch and record.leader == r.leader
    follows_already = r.role == "follower" and (not new_epoch or same_leader)
    r.leader_epoch = record.leader_epoch
    r.leader = record.leader
    if r.log.damage is not None and not _others_have_all(ctx.node, record):
        follower.stop(ctx, r)
    elif record.leader == ctx.node:
        leader.begin(ctx, r)
    elif record.leader == NO_LEADER:
        follower.stop(ctx, r)
    elif not follows_already:
        follower.begin(ctx, r)


def _others_have_all(node: str, record: PartitionRecord) -> bool:
    """Return whether another node leads and has all committed records, because this `node` is in
    neither ISR nor ELR."""
    if record.leader in (NO_LEADER, node):
        return False
    return node not in record.isr and node not in record.elr


def set_aside(ctx: Context, r: Replica, damage: Damage) -> None:
    """Stop leading or following with a log that was found damaged. The heartbeat reports it to the
    controller; the replica comes back as a follower when another replica leads."""
    if r.role == "leader":
        leader.resign(ctx, r)
    r.role = "none"
    trace_damage(ctx, r.partition, damage)
    r.set_hw(ctx, min(r.hw, r.leo))
    follower.stop(ctx, r)


def _remove(ctx: Context, replicas: dict[str, Replica], r: Replica) -> None:
    """Delete the log of a partition that left this node. Added again later it starts empty."""
    if r.role == "leader":
        leader.resign(ctx, r)
    r.role = "none"  # a message of the same turn may have appended: nobody is served for it now
    _delete(ctx, r.partition, r.protocol)
    del replicas[r.partition]


def _delete(ctx: Context, partition: str, protocol: Protocol) -> None:
    """Delete a log and the values beside it: an old HW would make new records look committed."""
    durable = _durable(ctx, protocol)
    ctx.storage.delete(partition, durable=durable)
    forget_values(ctx, partition, durable=durable)


def delete_orphans(ctx: Context, protocol: Protocol) -> None:
    """Delete the logs of partitions that moved to other nodes while this node was down."""
    for partition in ctx.storage.partitions():
        record = ctx.image.partitions.get(partition)
        if record is not None and ctx.node not in record.replicas:
            _delete(ctx, partition, protocol)


def _durable(ctx: Context, protocol: Protocol) -> bool:
    """Return whether writes must be synced. A voter's always: its fetch offset promises that the
    records are on disk."""
    flushed = ctx.config.flush_interval_ms == 0 and not ctx.bugs.no_fsync_before_ack
    return flushed or protocol.leader_by is LeaderBy.VOTES
