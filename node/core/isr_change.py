"""Changes of the ISR by its leader, which proposes a new one to the controller.

While a proposal is in flight the high watermark waits for every replica that may already be a
member (the maximal ISR); only a definite answer narrows it again. A replica has one proposal at a
time, and one without an answer is never rolled back. See docs/protocols.md; KIP-497, KIP-841,
KIP-903, KIP-966."""

from __future__ import annotations

from node.core.context import Context
from node.core.high_watermark import advance_hw, fail_acks_below_min_isr
from node.core.protocol import Commit, Detection
from node.core.replica import NEVER, Peer, PendingAlter, Replica
from node.formats.messages import AlterPartition, AlterPartitionResponse, Error
from node.formats.trace import ISR, PROPOSED

DEFINITE_REFUSALS = (Error.INELIGIBLE_REPLICA,)
"""Errors which prove that no copy of the proposal can ever be applied: the controller raises the
partition epoch with them."""


def maybe_expand(ctx: Context, r: Replica, follower: str) -> None:
    """Propose a follower for the ISR if all five rules of expansion hold after its fetch
    (docs/protocols.md)."""
    if follower in r.isr or follower not in r.replicas or r.pending_alter is not None:
        return
    if r.protocol.commit is not Commit.ISR:
        return
    peer = r.peers[follower]  # rule 4: peers hold only fetches of the current leader epoch
    if not _complete_enough(ctx, r, peer):
        return
    if not ctx.image.is_active(follower) and not r.bugs.expand_fenced:
        return
    stale = peer.broker_epoch != ctx.image.broker_epoch(follower)
    if stale and not r.bugs.expand_stale_process:
        return
    _propose(ctx, r, (*r.isr, follower), added={follower: peer.broker_epoch})


def _complete_enough(ctx: Context, r: Replica, peer: Peer) -> bool:
    """Return whether rules 1-3 of expansion hold; with bug M5 only "at or above the HW", with M5b
    only the lag."""
    caught_up_ago_us = ctx.now_us - peer.last_caught_up_us
    if r.bugs.expand_at_hw:
        return peer.leo >= r.hw
    if r.bugs.expand_by_lag_only:
        return caught_up_ago_us <= ctx.lag_us
    return may_expand(
        fetch_offset=peer.leo,
        hw=r.hw,
        leso=r.leso,
        caught_up_ago_us=caught_up_ago_us,
        lag_us=ctx.lag_us,
    )


def may_expand(
    *, fetch_offset: int, hw: int, leso: int, caught_up_ago_us: int, lag_us: int
) -> bool:
    """Return whether a follower's log is complete enough to enter the ISR (rules 1-3 of five): it
    fetched from `hw` and from the leader's epoch start offset `leso` or above, and was at the log
    end at most `lag_us` ago.

    Below `leso` the leader's own high watermark may be stale, so `hw` alone does not prove
    completeness (KAFKA-7128). Rules 4 and 5, that the fetch is of this leader epoch and of the
    registered, active process, are tested by `maybe_expand`."""
    return caught_up_ago_us <= lag_us and fetch_offset >= hw and fetch_offset >= leso


def _shrink_laggards(ctx: Context, r: Replica) -> None:
    """Propose an ISR without the followers that have not been at the log end for the lag time."""
    if r.pending_alter is not None:
        return
    stays = []
    for member in r.isr:
        peer = r.peers.get(member)
        caught_up_us = r.led_since_us if peer is None else peer.last_caught_up_us
        # A replica at the end of an idle log stays, but only if the controller detects failures.
        excused = r.protocol.detection is Detection.HEARTBEATS
        at_end = excused and peer is not None and peer.leo >= r.leo
        if member == ctx.node or at_end or ctx.now_us - caught_up_us <= ctx.lag_us:
            stays.append(member)
    if len(stays) < len(r.isr):
        _propose(ctx, r, tuple(stays), added={})


def _expand_unheard(ctx: Context, r: Replica) -> None:
    """Propose a replica for the ISR that has not fetched in this leader epoch (bug M29, against
    rule 4)."""
    for name in r.replicas:
        unheard = name not in r.isr and name not in r.peers and ctx.image.is_active(name)
        if unheard and r.pending_alter is None:
            _propose(ctx, r, (*r.isr, name), added={name: ctx.image.broker_epoch(name)})


def _propose(ctx: Context, r: Replica, isr: tuple[str, ...], added: dict[str, int]) -> None:
    request = AlterPartition(
        partition=r.partition,
        broker=ctx.node,
        broker_epoch=ctx.broker_epoch,
        leader_epoch=r.leader_epoch,
        partition_epoch=r.partition_epoch,
        isr=tuple((member, added.get(member, -1)) for member in isr),
    )
    r.pending_alter = PendingAlter(isr, request, r.partition_epoch + 1, 0)
    r.maximal_isr = (*r.isr, *(m for m in isr if m not in r.isr))
    ctx.trace(
        PROPOSED,
        r.partition,
        isr=list(isr),
        leader_epoch=r.leader_epoch,
        partition_epoch=r.partition_epoch,
    )
    _send(ctx, r.pending_alter)
    r.wake_us = min(r.wake_us, r.pending_alter.retry_at_us)


def _send(ctx: Context, pending: PendingAlter) -> None:
    """Send (again) to the node believed to be the controller; any other answers with a hint."""
    pending.retry_at_us = ctx.now_us + 2 * ctx.retry_us
    ctx.send(ctx.controller or ctx.config.voters[0], pending.request)


def on_response(ctx: Context, r: Replica, response: AlterPartitionResponse) -> None:
    """Handle the controller's answer to this leader's proposal of an ISR."""
    pending = r.pending_alter
    if r.role != "leader" or pending is None:
        return
    if response.request_epoch != pending.request.partition_epoch:
        return
    if not response.error:
        if response.leader_epoch == r.leader_epoch and response.partition_epoch > r.partition_epoch:
            committed(ctx, r, response.isr, response.partition_epoch)
    elif response.error in DEFINITE_REFUSALS and response.leader_epoch == r.leader_epoch:
        committed(ctx, r, r.isr, response.partition_epoch)


def committed(ctx: Context, r: Replica, isr: tuple[str, ...], partition_epoch: int) -> None:
    """Set the leader's ISR and partition epoch to those that the controller committed, and end a
    proposal that they answer."""
    assert partition_epoch >= r.partition_epoch, (r.partition, partition_epoch, r.partition_epoch)
    r.partition_epoch = partition_epoch
    r.isr = isr
    if r.pending_alter is not None and partition_epoch >= r.pending_alter.expected:
        r.pending_alter = None
    proposed = () if r.pending_alter is None else r.pending_alter.isr
    r.maximal_isr = (*isr, *(m for m in proposed if m not in isr))
    ctx.trace(
        ISR,
        r.partition,
        isr=list(r.isr),
        maximal_isr=list(r.maximal_isr),
        leader_epoch=r.leader_epoch,
        partition_epoch=partition_epoch,
    )
    fail_acks_below_min_isr(ctx, r)
    advance_hw(ctx, r)


def tick(ctx: Context, r: Replica) -> None:
    """Send an unanswered proposal again; every half lag time, propose an ISR without the replicas
    that lag."""
    if r.protocol.commit is not Commit.ISR:
        r.next_lag_check_us = NEVER
        return
    if r.pending_alter is not None and r.pending_alter.retry_at_us <= ctx.now_us:
        if r.bugs.rollback_on_timeout:
            r.pending_alter, r.maximal_isr = None, r.isr
        else:
            _send(ctx, r.pending_alter)
    if r.next_lag_check_us <= ctx.now_us:
        _shrink_laggards(ctx, r)
        if r.bugs.expand_unheard:
            _expand_unheard(ctx, r)
        r.next_lag_check_us = ctx.now_us + ctx.lag_us // 2
