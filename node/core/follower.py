"""The follower: it fetches from its leader, cuts records that the leader lacks, and appends.

The module knows one replica and its one outstanding fetch. A response counts only if it comes from
the current leader, is of the epoch that the fetch was sent in, and matches the present log end in
offset and last epoch. The offset alone is not enough: after a cut and new records the log may end
there again, and a late second copy of the diverging response would cut records that were
acknowledged since.

All functions have the step's context `ctx` and the replica `r`. See docs/protocols.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from node.core import batch as batches
from node.core import idle, leader_reports, retention, truncation
from node.core.batch import BatchView
from node.core.context import Context
from node.core.epochs import EpochEnd, truncation_target
from node.core.image import check_payload
from node.core.protocol import Truncation, Waiting
from node.core.replica import NEVER, Replica
from node.formats.errors import InvariantBroken, WireError
from node.formats.messages import (
    HW_ONLY,
    UNDEFINED,
    EpochEndResponse,
    Error,
    FetchRequest,
    FetchResponse,
)
from node.formats.trace import METADATA_PARTITION, REFUSED, TRUNCATED
from node.formats.wire import split_fetch_body

_ON_FETCH: Final = Truncation.ON_FETCH
"""Read at each fetch: members of an enum are found slowly."""


def begin(ctx: Context, r: Replica) -> None:
    """Follow `r.leader` in `r.leader_epoch`: cut the log as the protocol says, then fetch."""
    r.role = "follower"
    r.fetching.outstanding = False
    r.fetching.failures = 0
    r.fetching.heard_us = ctx.now_us
    r.trace_role(ctx)
    prepare(ctx, r)
    proceed(ctx, r)


def prepare(ctx: Context, r: Replica) -> None:
    """Prepare the first fetch from a leader as the protocol says: cut the log to the high
    watermark, or note the epoch whose end the leader must be asked for."""
    r.fetching.cut = False
    if r.log.damage is not None:
        _repair(ctx, r)
    r.fetching.asking = truncation.epoch_to_ask(r)
    if truncation.cuts_unasked(r) and r.hw < r.log.leo:
        truncate(ctx, r, r.hw, "own-high-watermark")


def proceed(ctx: Context, r: Replica) -> None:
    """Ask the leader where an epoch ends if that is still to be known, else send a fetch."""
    if truncation.falls_back(r):
        r.fetching.asking = None
        truncate(ctx, r, r.hw, "own-high-watermark")
    if r.fetching.asking is not None:
        truncation.ask(ctx, r, r.fetching.asking)
    else:
        fetch(ctx, r, r.leader)


def on_epoch_end(ctx: Context, r: Replica, source: str, response: EpochEndResponse) -> None:
    """Cut the log to the epoch end in the leader's answer, then ask again or begin to fetch."""
    if r.role != "follower" or source != r.leader or response.asked != r.fetching.asking:
        return
    if r.protocol.fences_by_epoch and response.request_epoch != r.leader_epoch:
        return
    if response.error:
        _back_off(ctx, r)
        return
    cut = truncation.decide(r, response)
    reason = "offset-for-leader-epoch"
    if response.version == HW_ONLY:
        reason = "leader-high-watermark"
    elif response.end_offset == UNDEFINED:
        reason = "own-high-watermark"
    truncate(ctx, r, cut.target, reason)
    r.fetching.failures = 0
    r.fetching.heard_us = ctx.now_us
    r.fetching.asking = cut.again
    proceed(ctx, r)


def stop(ctx: Context, r: Replica) -> None:
    """Keep the log and fetch nothing, because the partition has no leader."""
    r.role = "none"
    r.fetching.outstanding = False
    r.wake_us = NEVER
    r.trace_role(ctx)


def fetch(ctx: Context, r: Replica, to: str) -> None:
    """Send a fetch to node `to`, from this replica's log end on."""
    request = FetchRequest(
        partition=r.partition,
        replica=ctx.node,
        broker_epoch=ctx.broker_epoch,
        leader_epoch=r.leader_epoch,
        offset=r.log.leo,
        last_epoch=_last_fetched_epoch(r),
        max_wait_ms=ctx.config.timings.fetch_wait_ms,
        max_bytes=ctx.config.fetch_max_bytes,
        observer=r.observer,
    )
    ctx.send(to, request)
    r.fetching.outstanding = True
    r.fetching.notified = False
    r.fetching.sent_offset = r.log.leo
    r.fetching.deadline_us = ctx.now_us + ctx.config.timings.fetch_timeout_ms * 1000
    r.wake_us = min(r.wake_us, r.fetching.deadline_us)


def _last_fetched_epoch(r: Replica) -> int:
    """Return the last epoch that a fetch carries: that of the last record, or -1 if the protocol
    does not truncate on fetch."""
    if r.protocol.truncation is not _ON_FETCH:
        return -1
    if r.bugs.one_round_only and r.fetching.cut:
        return -1
    return r.log.cache.latest if r.bugs.keep_empty_epoch else r.log.last_epoch


def _matches_last_fetch(r: Replica, response: FetchResponse) -> bool:
    """Return whether the response answers the fetch that this log would send now (offset and last
    epoch), or a rule or bug accepts it anyway."""
    if r.bugs.accept_any_response:
        return True
    if r.bugs.match_by_offset_only:
        return response.offset == r.log.leo
    if (response.offset, response.last_epoch) == (r.log.leo, _last_fetched_epoch(r)):
        return True
    takes_late = r.protocol.appends_by_index or r.bugs.cut_on_every_answer
    records = not response.error and response.diverging is None
    return takes_late and records and response.offset <= r.log.leo


def on_response(
    ctx: Context, r: Replica, source: str, response: FetchResponse, body: bytes | None
) -> bool:
    """Handle a fetch response. Return whether it counted, as an answer to the last fetch."""
    leader_epoch, hw, data = split_fetch_body(body)
    if r.role != "follower" or source != r.leader or r.fetching.asking is not None:
        return False
    if not _matches_last_fetch(r, response):
        return False
    fences, bugs = r.protocol.fences_by_epoch, r.bugs
    if fences and response.request_epoch != r.leader_epoch and not bugs.stale_epoch_response:
        return False
    if response.error:
        _on_error(ctx, r, response)
        return True
    fences &= not bugs.stale_epoch_response and not bugs.fetch_without_current_epoch
    if fences and leader_epoch != r.leader_epoch:
        return False
    if response.diverging is not None:
        # HW and records of a diverging response are not for this log (KAFKA-14704).
        if bugs.hw_from_diverging_response:
            r.set_hw(ctx, min(r.log.leo, hw))
        diverging = EpochEnd(*response.diverging)
        target = truncation_target(r.log.cache, r.log.leo, diverging)
        if bugs.no_local_lookup:
            target = diverging.end
        r.fetching.cut = True
        if not truncate(ctx, r, target, "diverging-epoch"):
            _back_off(ctx, r)
            return True
    else:
        try:
            append(ctx, r, _fetched(ctx, r, data))
        except WireError as error:
            ctx.trace(REFUSED, r.partition, kind="fetch-response", source=source, reason=str(error))
            _back_off(ctx, r)
            return True
        floor = r.hw if r.protocol.hw_only_rises else r.log.start
        r.set_hw(ctx, max(floor, min(r.log.leo, hw)))
        if response.log_start > r.log.start:
            retention.follow(ctx, r, response.log_start)
        if response.offset != r.fetching.sent_offset:
            return True  # a late response: that to the last fetch is still to come
    r.fetching.failures = 0
    r.fetching.heard_us = ctx.now_us
    if not data and r.protocol.waiting is Waiting.IDLE_WAIT:
        idle.sleep(ctx, r)
    else:
        fetch(ctx, r, r.leader)
    return True


def _fetched(ctx: Context, r: Replica, data: bytes) -> Sequence[BatchView]:
    """Return the batches of a response that are to be appended."""
    fetched = batches.split(data) if data else []
    if r.partition == METADATA_PARTITION:
        for one in fetched:
            check_payload(one.payload)
    if fetched and r.bugs.cut_on_every_answer:
        truncate(ctx, r, fetched[0].base_offset, "answer")
    if r.protocol.appends_by_index:
        fetched = [one for one in fetched if one.end > r.log.leo]
    return fetched


def append(ctx: Context, r: Replica, fetched: Sequence[BatchView]) -> None:
    """Append the leader's batches; each must start exactly at the log end, epochs never falling."""
    if not fetched:
        return
    r.log.append_as_follower(fetched)
    if not r.bugs.followers_forget_producers:
        for one in fetched:
            if one.produced is not None:
                r.producers.note(one.produced, one.base_offset, one.end)
    r.trace_append(ctx, fetched[0].base_offset, fetched[-1].epoch, "follower")


def _repair(ctx: Context, r: Replica) -> None:
    """Remove the damaged part of the log, so that it is fetched again from the leader."""
    assert r.log.damage is not None
    damaged_at, start = r.log.damage.offset, r.log.start
    r.log.repair()
    r.producers.rebuild(r.log.produced())
    r.save_hw(ctx)
    _trace_cut(ctx, r, damaged_at, start, "damaged")


def truncate(ctx: Context, r: Replica, target: int, reason: str) -> bool:
    """Cut the log, and lower the high watermark to its end. Return whether anything was cut: if
    not, the next fetch would be the same, and is sent after a pause."""
    before, start = r.log.leo, r.log.start
    if r.bugs.keep_empty_epoch and target >= before:
        return False
    if r.protocol.hw_only_rises and target < r.hw:
        raise InvariantBroken(
            f"{r.partition}: {ctx.node} was asked to cut committed records: "
            f"to {target}, its high watermark is {r.hw}"
        )
    leo = r.log.truncate(target)
    if leo < before and not r.bugs.keep_truncated_producers:
        r.producers.rebuild(r.log.produced())
    if not r.bugs.keep_hw_at_truncation:
        r.set_hw(ctx, min(r.hw, leo))
    _trace_cut(ctx, r, before, start, reason)
    return leo < before


def _trace_cut(ctx: Context, r: Replica, from_leo: int, start: int, reason: str) -> None:
    """Trace that the log was cut, which ended at `from_leo` and began at `start`."""
    leo, chain = r.log.leo, r.log.chain.hex() if r.log.leo else ""
    ctx.trace(
        TRUNCATED, r.partition, from_leo=from_leo, leo=leo, hw=r.hw, reason=reason, hash=chain
    )
    retention.trace_emptied(ctx, r, start)


def _on_error(ctx: Context, r: Replica, response: FetchResponse) -> None:
    """Cut a log that is out of range, or start it over where the leader's begins; after any other
    error wait and fetch again."""
    if response.error is Error.OFFSET_OUT_OF_RANGE and retention.restart(ctx, r, response):
        r.fetching.failures = 0
        r.fetching.heard_us = ctx.now_us
        fetch(ctx, r, r.leader)
        return
    if response.error is Error.OFFSET_OUT_OF_RANGE and 0 <= response.log_end < r.log.leo:
        truncate(ctx, r, response.log_end, "out-of-range")
        fetch(ctx, r, r.leader)
        return
    _back_off(ctx, r)


def _back_off(ctx: Context, r: Replica) -> None:
    """Pause before the next fetch; the pause grows with failures, to four times the base."""
    r.fetching.outstanding = False
    r.fetching.note_failure()
    r.fetching.deadline_us = ctx.now_us + ctx.retry_us * r.fetching.failures
    r.wake_us = min(r.wake_us, r.fetching.deadline_us)


def tick(ctx: Context, r: Replica) -> int:
    """Fetch again if an answer is overdue or a pause is over. Return the next deadline in
    microseconds."""
    if r.role != "follower":
        return NEVER
    if r.fetching.deadline_us <= ctx.now_us:
        if r.fetching.outstanding and r.fetching.asking is not None:
            r.fetching.note_failure()
        leader_reports.maybe_report(ctx, r)
        proceed(ctx, r)
    return next_us(r)


def next_us(r: Replica) -> int:
    """Return the time of the next action of `tick` in microseconds, NEVER if there is none."""
    return r.fetching.deadline_us if r.role == "follower" else NEVER
