"""A leader's answer to a fetch: batches, nothing after a wait, or an error.

Followers read to the log end, consumers to the high watermark."""

from __future__ import annotations

from typing import Final

from node.core import idle, push, retention
from node.core.api import Mark
from node.core.context import Context
from node.core.protocol import RestartRule, Waiting
from node.core.replica import PendingFetch, Replica
from node.formats.messages import CONSUMER, Error, FetchRequest, FetchResponse
from node.formats.trace import REFUSED
from node.formats.wire import fetch_body

MAX_CONSUMER_WAITS: Final = 1_000


def answer_or_hold(ctx: Context, r: Replica, source: str, request: FetchRequest) -> None:
    """Answer a fetch with data, or hold it until there is data or its wait is over."""
    below = _readable_end(r, request)
    found, _ = r.log.read(request.offset, max_bytes=request.max_bytes, below=below)
    if not found and request.replica != CONSUMER and r.protocol.waiting is Waiting.IDLE_WAIT:
        r.data_waiters[request.replica] = source
        send_fetch(ctx, r, source, request, [])
        return
    if found or request.max_wait_ms <= 0 or _must_send_hw(r, request):
        send_fetch(ctx, r, source, request, found)
        return
    deadline = ctx.now_us + request.max_wait_ms * 1000
    wait = PendingFetch(source, request, deadline)
    if request.replica != CONSUMER:
        r.follower_waits[request.replica] = wait
    elif len(r.consumer_waits) >= MAX_CONSUMER_WAITS:
        refuse_traced(ctx, r, source, request, Error.OVERLOADED)
        return
    else:
        r.consumer_waits[source, request.corr] = wait
    r.wake_us = min(r.wake_us, deadline)


def _readable_end(r: Replica, request: FetchRequest) -> int:
    if request.replica != CONSUMER or r.bugs.read_beyond_hw:
        return r.log.leo
    return r.hw


def _must_send_hw(r: Replica, request: FetchRequest) -> bool:
    """Return whether a follower must get a new high watermark without waiting for data."""
    peer = r.peers.get(request.replica)
    return r.protocol.sends_hw_at_once and peer is not None and peer.hw_sent < r.hw


def serve_waiting(ctx: Context, r: Replica, *, appended: bool) -> None:
    """Answer the held fetches that can be answered: of followers if the log has grown (`appended`),
    of consumers if it was the high watermark that moved; followers wait for that too if the
    protocol says so."""
    if appended and r.data_waiters:
        idle.notify(ctx, r)
    if r.protocol.pushes:
        push.serve(ctx, r)
    if r.follower_waits and (appended or r.protocol.sends_hw_at_once):
        waits = list(r.follower_waits.values())
        r.follower_waits.clear()
        for wait in waits:
            answer_or_hold(ctx, r, wait.source, wait.request)
    if r.consumer_waits and (not appended or r.bugs.read_beyond_hw):
        for key, wait in list(r.consumer_waits.items()):
            if _readable_end(r, wait.request) > wait.request.offset:
                del r.consumer_waits[key]
                answer_or_hold(ctx, r, wait.source, wait.request)


def send_fetch(
    ctx: Context,
    r: Replica,
    to: str,
    request: FetchRequest,
    found: list[bytes],
    diverging: tuple[int, int] | None = None,
) -> None:
    if (peer := r.peers.get(request.replica)) is not None:
        peer.hw_sent = r.hw
    response = FetchResponse(
        corr=request.corr,
        partition=r.partition,
        offset=request.offset,
        last_epoch=request.last_epoch,
        request_epoch=request.leader_epoch,
        diverging=diverging,
        log_start=r.log.start,
        log_end=r.hw if request.replica == CONSUMER else r.log.leo,
        leader=r.leader,
    )
    ctx.send(to, response, fetch_body(r.leader_epoch, r.hw, found), _mark(r, request, found))


def _mark(r: Replica, request: FetchRequest, found: list[bytes]) -> Mark:
    """Mark records to followers as IF_COVERED, so that they leave while the leader's disk syncs;
    consumers get what the disk has."""
    if request.replica == CONSUMER:
        return Mark.BEFORE_COMMIT if found and r.bugs.count_before_commit else Mark.AFTER_COMMIT
    # Its disk may lack them then, so it must not lead on in this epoch after a crash.
    replicates = bool(found) and r.protocol.restart is RestartRule.AFTER_FENCING
    return Mark.IF_COVERED if replicates else Mark.AFTER_COMMIT


def refuse_traced(ctx: Context, r: Replica, to: str, request: FetchRequest, error: Error) -> None:
    if request.replica != CONSUMER and error is not Error.NOT_LEADER:
        ctx.trace(REFUSED, r.partition, kind="fetch", source=to, reason=error.value)
    refuse_fetch(ctx, to, request, error, r)


def refuse_fetch(
    ctx: Context, to: str, request: FetchRequest, error: Error, r: Replica | None
) -> None:
    """Answer a fetch with an error; `r` is None if this node has no replica of the partition."""
    before_start, log_end, consumes = None, -1, request.replica == CONSUMER
    if r is not None and r.role == "leader":
        log_end = r.hw if consumes else r.log.leo
    if r is not None and not consumes and error is Error.OFFSET_OUT_OF_RANGE:
        before_start = retention.start_of(r) if request.offset < r.log.start else None
    response = FetchResponse(
        corr=request.corr,
        partition=request.partition,
        error=error,
        offset=request.offset,
        last_epoch=request.last_epoch,
        request_epoch=request.leader_epoch,
        log_start=r.log.start if r else 0,
        before_start=before_start,
        log_end=log_end,
        leader=r.leader if r else "",
    )
    epoch = r.leader_epoch if r else -1
    ctx.send(to, response, fetch_body(epoch, r.hw if r else 0, []))
