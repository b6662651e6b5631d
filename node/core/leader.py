"""The leader: it answers fetch and produce requests, advances the high watermark and keeps its ISR.

The module knows one replica and the fetches of its peers. The order of the tests in `on_fetch` is
part of the protocol: a fetch that is refused, or that diverges, does not change the leader's state
(KAFKA-13141). All functions have the step's context `ctx` and the replica `r`. See
docs/protocols.md."""

from __future__ import annotations

from bisect import insort
from typing import Final

from node.core import batch as batches
from node.core import isr_change, retention
from node.core.batch import BatchView
from node.core.context import Context
from node.core.epochs import diverges
from node.core.high_watermark import acknowledge, advance_hw, refuse_produce
from node.core.producers import Standing, Written
from node.core.protocol import BelowMinIsr, Commit
from node.core.replica import LONG_AGO, NEVER, Peer, PendingAck, Replica
from node.core.serve import answer_or_hold, refuse_traced, send_fetch, serve_waiting
from node.formats.errors import WireError
from node.formats.messages import CONSUMER, Error, FetchRequest, ProduceRequest
from node.formats.trace import DIVERGING, DUPLICATE

MAX_PENDING_ACKS: Final = 10_000
# Read at each fetch: members of an enum are found slowly.
_ISR: Final = Commit.ISR
_NONE: Final = Error.NONE


def begin(ctx: Context, r: Replica) -> None:
    """Begin to lead the current epoch. Followers count as unknown until they fetch in this
    epoch."""
    r.role = "leader"
    r.leso = r.log.leo
    r.led_since_us = ctx.now_us
    if r.protocol.epochs_in_records and not r.bugs.lazy_epoch_cache:
        r.log.begin_epoch(r.leader_epoch)
    assert not r.peers or r.bugs.keep_peer_state, r.partition
    r.pending_alter = None
    r.maximal_isr = r.isr
    r.next_lag_check_us = ctx.now_us + ctx.lag_us
    r.wake_us = min(r.wake_us, r.next_lag_check_us)
    r.fetching.outstanding = False
    r.trace_role(ctx)
    advance_hw(ctx, r)


def resign(ctx: Context, r: Replica) -> None:
    """Stop leading, and answer all waiting requests. Records that were appended but not committed
    have an unknown outcome."""
    while r.acks:
        ack = r.acks.popleft()
        if r.bugs.ack_on_demotion:
            acknowledge(ctx, r, ack.client, ack.corr, ack.base_offset, ack.end, acks=-1)
            continue
        refuse_produce(ctx, r, ack.client, ack.corr, Error.LEADERSHIP_LOST, appended=True)
    for wait in (*r.follower_waits.values(), *r.consumer_waits.values()):
        refuse_traced(ctx, r, wait.source, wait.request, Error.NOT_LEADER)
    r.follower_waits.clear()
    r.consumer_waits.clear()
    r.data_waiters.clear()
    if not r.bugs.keep_peer_state:
        r.peers.clear()
    r.pushes.clear()
    r.pending_alter = None
    r.maximal_isr = ()
    r.leso = -1
    r.next_lag_check_us = NEVER


def on_produce(
    ctx: Context, r: Replica, source: str, request: ProduceRequest, body: bytes | None
) -> None:
    """Append the batch in `body` that a client sent. An error response says whether anything was
    appended."""
    error, appended = _check_produce(r, request), False
    batch: BatchView | None = None
    kept: Written | None = None
    if not error:
        try:
            batch = batches.view(body or b"")
            if batch.control:
                error = Error.CORRUPT_BATCH
            elif batch.produced is not None:
                standing, kept = r.producers.judge(batch.produced, batch.count)
                error, appended = _REFUSED.get(standing, Error.NONE), standing is Standing.OLD
        except WireError:
            error = Error.CORRUPT_BATCH
    if error or batch is None:
        refuse_produce(ctx, r, source, request.corr, error, appended=appended, acks=request.acks)
        return
    if kept is not None:
        _answer_duplicate(ctx, r, source, request, kept)
        return
    base, end = append(ctx, r, batch)
    if request.acks == 1 or (request.acks == -1 and r.bugs.ack_before_isr):
        acknowledge(ctx, r, source, request.corr, base, end, acks=request.acks)
    elif request.acks == -1:
        deadline = ctx.now_us + request.timeout_ms * 1000
        r.acks.append(PendingAck(source, request.corr, base, end, deadline))
        r.wake_us = min(r.wake_us, deadline)
    if not ctx.more:
        advance_hw(ctx, r)


_REFUSED: Final = {
    Standing.OLD: Error.DUPLICATE_SEQUENCE,
    Standing.GAP: Error.OUT_OF_ORDER_SEQUENCE,
    Standing.FENCED: Error.FENCED_PRODUCER_EPOCH,
    Standing.UNKNOWN: Error.UNKNOWN_PRODUCER,
}


def _answer_duplicate(
    ctx: Context, r: Replica, source: str, request: ProduceRequest, kept: Written
) -> None:
    """Answer a batch that the log has already with the offset of the original. With acks=all the
    answer does not leave before the original is committed."""
    ctx.trace(DUPLICATE, r.partition, base_offset=kept.base, leo=kept.end, hw=r.hw, client=source)
    corr, acks = request.corr, request.acks
    if acks == 1 or (acks == -1 and (kept.end <= r.hw or r.bugs.ack_duplicate_early)):
        acknowledge(ctx, r, source, corr, kept.base, kept.end, acks=acks)
    elif acks == -1:
        deadline = ctx.now_us + request.timeout_ms * 1000
        ack = PendingAck(source, corr, kept.base, kept.end, deadline)
        insort(r.acks, ack, key=lambda pending: pending.end)
        r.wake_us = min(r.wake_us, deadline)


def serve_appended(ctx: Context, r: Replica) -> None:
    """Answer, after the last message of a turn, the fetches that waited for records appended in
    this turn, and raise the high watermark."""
    if r.role == "leader":
        serve_waiting(ctx, r, appended=True)
        advance_hw(ctx, r)


def append(ctx: Context, r: Replica, batch: BatchView) -> tuple[int, int]:
    """Append a batch in the current epoch, and answer the followers that wait for data.
    Return its base offset and end. In a turn with more messages they are answered after the last
    one."""
    if ctx.config.retention_records:
        retention.at_append(ctx, r)
    epoch = r.leader_epoch if r.protocol.epochs_in_records else batches.NO_EPOCH
    one = r.log.append_as_leader(batch, epoch)
    if one.produced is not None:
        r.producers.note(one.produced, one.base_offset, one.end)
    r.trace_append(ctx, one.base_offset, r.leader_epoch, "leader")
    if ctx.more:
        ctx.appended[r.partition] = r
    else:
        serve_waiting(ctx, r, appended=True)
    return one.base_offset, one.end


def _check_produce(r: Replica, request: ProduceRequest) -> Error:
    if r.role != "leader":
        return Error.NOT_LEADER
    in_sync_counts = r.protocol.commit is _ISR and request.acks == -1
    refuses = r.protocol.below_min_isr is BelowMinIsr.REFUSE
    if in_sync_counts and refuses and len(r.isr) < r.min_isr:
        return Error.NOT_ENOUGH_REPLICAS
    if len(r.acks) >= MAX_PENDING_ACKS:
        return Error.OVERLOADED
    return _NONE


def on_fetch(ctx: Context, r: Replica, source: str, request: FetchRequest) -> None:
    """Answer a fetch of a follower or a consumer, or hold it until there is data."""
    error = _check_fetch(ctx, r, request)
    if error:
        refuse_traced(ctx, r, source, request, error)
        return
    if request.replica == CONSUMER:
        answer_or_hold(ctx, r, source, request)
        return
    if r.protocol.last_index_matches:
        _note_fetch(ctx, r, request)
        advance_hw(ctx, r)
    if _answered_diverging(ctx, r, source, request):
        return
    if request.offset > r.log.leo:
        refuse_traced(ctx, r, source, request, Error.OFFSET_OUT_OF_RANGE)
        return
    registered = ctx.image.broker_epoch(request.replica)
    if r.protocol.commit is _ISR and request.broker_epoch < registered:
        refuse_traced(ctx, r, source, request, Error.STALE_BROKER_EPOCH)
        return
    _note_fetch(ctx, r, request)
    isr_change.maybe_expand(ctx, r, request.replica)
    advance_hw(ctx, r)
    answer_or_hold(ctx, r, source, request)


def _check_fetch(ctx: Context, r: Replica, request: FetchRequest) -> Error:
    """Return why a fetch is refused by role, epoch or range; NONE if it is not."""
    if r.role != "leader":
        return Error.NOT_LEADER
    has_epoch = request.replica != CONSUMER or request.leader_epoch >= 0
    fences = r.protocol.fences_by_epoch and not r.bugs.fetch_without_current_epoch
    if fences and has_epoch:
        if request.leader_epoch < r.leader_epoch:
            return Error.FENCED_LEADER_EPOCH
        if request.leader_epoch > r.leader_epoch:
            return Error.UNKNOWN_LEADER_EPOCH
    if request.replica == CONSUMER:
        # Above the HW a consumer waits; beyond the log end its offset is meaningless.
        in_range = r.log.start <= request.offset <= r.log.leo
        return _NONE if in_range else Error.OFFSET_OUT_OF_RANGE
    if r.protocol.commit is _ISR and request.replica not in r.replicas:
        return Error.UNKNOWN_LEADER_EPOCH
    return _NONE if request.offset >= r.log.start else Error.OFFSET_OUT_OF_RANGE


def _answered_diverging(ctx: Context, r: Replica, source: str, request: FetchRequest) -> bool:
    """Answer with the diverging epoch if the follower's log is not a prefix of this one."""
    if request.last_epoch < 0 or request.offset == 0:
        return False
    if request.last_epoch == r.log.cache.latest and request.offset <= r.log.leo:
        return False  # within the current epoch, which ends where this log does
    ours = r.log.cache.end_of(request.last_epoch, r.log.leo)
    last_epoch = ours.epoch if r.bugs.compare_offsets_only else request.last_epoch
    if not diverges(ours, last_epoch=last_epoch, fetch_offset=request.offset):
        return False
    ctx.trace(
        DIVERGING,
        r.partition,
        follower=request.replica,
        fetch_offset=request.offset,
        last_fetched_epoch=request.last_epoch,
        epoch=ours.epoch,
        end_offset=ours.end,
    )
    send_fetch(ctx, r, source, request, [], diverging=(ours.epoch, ours.end))
    return True


def _note_fetch(ctx: Context, r: Replica, request: FetchRequest) -> None:
    """Record what a fetch proves: the follower's log end, and when it was caught up."""
    if request.observer:
        return
    now, leo = ctx.now_us, r.log.leo
    peer = r.peers.get(request.replica)
    if peer is None:
        in_isr = request.replica in r.isr
        caught_up = now if request.offset >= leo else r.led_since_us if in_isr else LONG_AGO
        r.peers[request.replica] = Peer(request.offset, request.broker_epoch, now, caught_up, leo)
        return
    if request.offset >= leo:
        peer.last_caught_up_us = now
    elif request.offset >= peer.leader_leo_at_fetch:
        peer.last_caught_up_us = max(peer.last_caught_up_us, peer.last_fetch_us)
    peer.leo = max(peer.leo, request.offset) if r.bugs.liftbridge_monotone else request.offset
    peer.broker_epoch = request.broker_epoch
    peer.last_fetch_us = now
    peer.leader_leo_at_fetch = leo


def tick(ctx: Context, r: Replica) -> int:
    """Answer requests whose wait is over, propose an ISR without lagging followers, and repeat an
    unanswered proposal. Return the next deadline in microseconds."""
    now = ctx.now_us
    for replica, wait in list(r.follower_waits.items()):
        if wait.deadline_us <= now:
            del r.follower_waits[replica]
            send_fetch(ctx, r, wait.source, wait.request, [])
    for key, wait in list(r.consumer_waits.items()):
        if wait.deadline_us <= now:
            del r.consumer_waits[key]
            send_fetch(ctx, r, wait.source, wait.request, [])
    overdue = [ack for ack in r.acks if ack.deadline_us <= now]
    for ack in overdue:
        r.acks.remove(ack)
        refuse_produce(ctx, r, ack.client, ack.corr, Error.REQUEST_TIMED_OUT, appended=True)
    isr_change.tick(ctx, r)
    return next_us(r)


def next_us(r: Replica) -> int:
    """Return the time of the next action of `tick` in microseconds, NEVER if there is none."""
    found = r.next_lag_check_us
    if r.pending_alter is not None and r.pending_alter.retry_at_us < found:
        found = r.pending_alter.retry_at_us
    for wait in r.follower_waits.values():
        if wait.deadline_us < found:
            found = wait.deadline_us
    for wait in r.consumer_waits.values():
        if wait.deadline_us < found:
            found = wait.deadline_us
    for ack in r.acks:
        if ack.deadline_us < found:
            found = ack.deadline_us
    return found
