"""Push replication: a leader sends its records to its followers, which fetch nothing (Raft).

The leader keeps the next offset to send to each follower. It sends new records at once, before the
earlier ones are answered. Every message names the record before its first one, and a follower whose
log does not have that record refuses it, with the end of its log that may be equal. Otherwise the
follower compares entry by entry: it skips those that it has, cuts its log at the first whose epoch
is another, and answers with the end of what it has compared. Heartbeats carry the high watermark,
and everything after the last answer again, so no message is repeated for itself.

The high-water mark pattern with generations, and Raft's rules; docs/protocols.md."""

from __future__ import annotations

from node.core import batch as batches
from node.core import retention
from node.core.api import Mark
from node.core.context import Context
from node.core.epochs import EpochEnd, truncation_target
from node.core.follower import append, truncate
from node.core.replica import Peer, Push, Replica
from node.formats.errors import WireError
from node.formats.messages import AppendEntries, AppendResponse
from node.formats.trace import REFUSED

# -- the leader -----------------------------------------------------------------------------------


def serve(ctx: Context, r: Replica, *, beat: bool = False) -> None:
    """Send each follower the records and the high watermark that were not sent to it yet; with
    `beat` send to every follower."""
    for name in r.replicas:
        if name == ctx.node:
            continue
        push = r.pushes.setdefault(name, Push(r.leso))
        if beat or push.next < r.leo or push.hw < r.hw:
            _send(ctx, r, name, push)


def _send(ctx: Context, r: Replica, to: str, push: Push) -> None:
    log, before_start = r.log, None
    if push.next < log.start:
        before_start = retention.start_of(r)
        push.next = log.start
    offset = push.next
    found, push.next = log.read(offset, max_bytes=ctx.config.fetch_max_bytes, below=log.leo)
    push.hw = r.hw
    message = AppendEntries(
        partition=r.partition,
        leader_epoch=r.leader_epoch,
        offset=offset,
        last_epoch=log.epoch_before(offset),
        hw=r.hw,
        log_start=log.start,
        before_start=before_start,
    )
    # Records leave while the leader's own disk syncs.
    mark = Mark.IF_COVERED if found else Mark.AFTER_COMMIT
    ctx.send(to, message, b"".join(found) if found else None, mark)


def on_response(ctx: Context, r: Replica, source: str, response: AppendResponse) -> None:
    """Note the end of a follower's log that an answer proves. After a refusal go back to where both
    logs may be equal."""
    push = r.pushes.get(source)
    if response.request_epoch != r.leader_epoch or response.end > r.leo or push is None:
        return
    if not response.matched:
        end = truncation_target(r.log.cache, r.leo, EpochEnd(response.epoch, response.end))
        push.next = end if end < r.log.start else r.log.hash_at(end)[0]
        return
    push.next = max(push.next, response.end)
    if not response.observer:
        now = ctx.now_us
        r.peers[source] = Peer(response.end, -1, now, now, r.leo, push.hw)


# -- the follower ---------------------------------------------------------------------------------


def on_append(
    ctx: Context, r: Replica, source: str, request: AppendEntries, body: bytes | None
) -> None:
    """Take the records of the current leader, and answer with the end of what is equal."""
    retention.restart(ctx, r, request)
    found = _may_be_equal(r, request)
    matched = found == EpochEnd(request.last_epoch, request.offset)
    if matched:
        try:
            found = EpochEnd(-1, _take(ctx, r, request.offset, body or b""))
        except WireError as error:
            ctx.trace(REFUSED, r.partition, kind="append-entries", source=source, reason=str(error))
            return
        r.set_hw(ctx, max(r.hw, min(found.end, request.hw)))
        if request.log_start > r.log.start:
            retention.follow(ctx, r, request.log_start)
    answer(ctx, r, source, request, matched=matched, found=found)


def answer(
    ctx: Context, r: Replica, to: str, request: AppendEntries, *, matched: bool, found: EpochEnd
) -> None:
    """Answer a leader, perhaps one of an older epoch."""
    ctx.send(
        to,
        AppendResponse(
            partition=r.partition,
            leader_epoch=r.leader_epoch,
            request_epoch=request.leader_epoch,
            matched=matched,
            epoch=found.epoch,
            end=found.end,
            observer=r.observer,
        ),
    )


def _may_be_equal(r: Replica, request: AppendEntries) -> EpochEnd:
    """Return the highest offset, not above the request's, below which this log may be the leader's,
    and the epoch of its record there: the records above it that the request has in common with
    this log by their place have later epochs than the leader's."""
    own = r.log.cache.end_of(request.last_epoch, r.leo)
    end = max(r.log.start, min(own.end, request.offset))
    return EpochEnd(r.log.epoch_before(end), end)


def _take(ctx: Context, r: Replica, offset: int, data: bytes) -> int:
    """Append the leader's entries from `offset` on that this log does not have, after a cut of its
    tail if one of them has another epoch. Return the end of the entries."""
    entries = batches.split(data) if data else []
    if entries and entries[0].base_offset != offset:
        raise WireError(f"entries begin at {entries[0].base_offset}, not at {offset}")
    end = entries[-1].end if entries else offset
    if r.bugs.cut_to_request:
        truncate(ctx, r, offset, "answer")
    at = 0
    while at < len(entries) and (base := entries[at].base_offset) < r.leo:
        if r.log.epoch_at(base) != entries[at].epoch:
            truncate(ctx, r, base, "conflicting-entry")
            break
        at += 1
    append(ctx, r, entries[at:])
    return end
