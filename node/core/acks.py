"""How a leader answers a produce request, and those that wait for the ISR."""

from __future__ import annotations

from node.core.api import Mark
from node.core.context import Context
from node.core.messages import Error, ProduceResponse
from node.core.protocol import BelowMinIsr
from node.core.replica import Replica
from node.formats.trace import ACK


def acknowledge(
    ctx: Context, r: Replica, client: str, corr: int, base: int, end: int, *, acks: int
) -> None:
    ctx.trace(
        ACK,
        r.partition,
        base_offset=base,
        leo=end,
        acks=acks,
        hw=r.hw,
        isr=list(r.isr),
        client=client,
    )
    response = ProduceResponse(
        corr=corr,
        partition=r.partition,
        appended=True,
        base_offset=base,
        leader_epoch=r.leader_epoch,
        leader=r.leader,
    )
    # Nothing promised may be known before it is on disk, and the leader's own part counts.
    mark = Mark.AT_ONCE if ctx.bugs.ack_before_commit else Mark.AFTER_COMMIT
    ctx.send(client, response, mark=mark)


def answer_produce(
    ctx: Context, r: Replica, to: str, corr: int, error: Error, *, appended: bool, acks: int = -1
) -> None:
    if acks == 0:
        return
    ctx.send(
        to,
        ProduceResponse(
            corr=corr,
            partition=r.partition,
            error=error,
            appended=appended,
            leader_epoch=r.leader_epoch,
            leader=r.leader,
        ),
    )


def fail_acks_below_min_isr(ctx: Context, r: Replica) -> None:
    """The committed ISR fell below MinISR: waiting producers learn that nothing is certain."""
    if r.protocol.below_min_isr is BelowMinIsr.WAIT:
        return
    if r.role == "leader" and len(r.isr) < r.min_isr:
        while r.acks:
            ack = r.acks.popleft()
            error = Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            answer_produce(ctx, r, ack.client, ack.corr, error, appended=True)
