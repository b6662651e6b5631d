"""What a leader does with a produce request. See docs/protocols.md."""

from __future__ import annotations

from typing import Final

from node.core import batch as batches
from node.core.acks import acknowledge, answer_produce
from node.core.context import Context
from node.core.high_watermark import advance_hw
from node.core.messages import Error, ProduceRequest
from node.core.protocol import BelowMinIsr, Commit
from node.core.replica import PendingAck, Replica
from node.core.serve import serve_waiting
from node.formats.errors import WireError
from node.formats.trace import APPEND

MAX_PENDING_ACKS: Final = 10_000


def on_produce(
    ctx: Context, r: Replica, source: str, request: ProduceRequest, body: bytes | None
) -> None:
    """A client appends one batch. A refusal says whether anything was appended."""
    error = _check_produce(r, request)
    if error is Error.NONE:
        try:
            if batches.view(body or b"").control:
                error = Error.CORRUPT_BATCH
        except WireError:
            error = Error.CORRUPT_BATCH
    if error is not Error.NONE or body is None:
        answer_produce(ctx, r, source, request.corr, error, appended=False, acks=request.acks)
        return
    base, end = append(ctx, r, body)
    if request.acks == 1 or (request.acks == -1 and r.bugs.ack_before_isr):
        acknowledge(ctx, r, source, request.corr, base, end, acks=request.acks)
    elif request.acks == -1:
        deadline = ctx.now_us + request.timeout_ms * 1000
        r.acks.append(PendingAck(source, request.corr, base, end, deadline))
        r.wake_us = min(r.wake_us, deadline)
    advance_hw(ctx, r)


def append(ctx: Context, r: Replica, body: bytes) -> tuple[int, int]:
    """Append a checked batch in the current epoch; followers that wait get it at once."""
    one = r.log.append_as_leader(body, r.leader_epoch)
    ctx.trace(
        APPEND,
        r.partition,
        base_offset=one.base_offset,
        leo=one.end,
        leader_epoch=one.epoch,
        hash=r.log.chain.hex(),
        role="leader",
    )
    serve_waiting(ctx, r, followers=True)
    return one.base_offset, one.end


def _check_produce(r: Replica, request: ProduceRequest) -> Error:
    if r.role != "leader":
        return Error.NOT_LEADER
    in_sync_counts = r.protocol.commit is Commit.ISR and request.acks == -1
    refuses = r.protocol.below_min_isr is BelowMinIsr.REFUSE
    if in_sync_counts and refuses and len(r.isr) < r.min_isr:
        return Error.NOT_ENOUGH_REPLICAS
    if len(r.acks) >= MAX_PENDING_ACKS:
        return Error.OVERLOADED
    return Error.NONE
