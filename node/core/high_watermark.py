"""The high watermark of a leader, and the producers that it answers when the watermark rises.

The arithmetic is pure: KIP-966 and KIP-497 (maximal ISR); for majorities the high-water mark
pattern with Raft's rule for older terms. The HW of one leader in one epoch only rises. It may rise
at a follower's fetch, a committed ISR change, a produce request, and at the election.
See docs/protocols.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from node.core.api import Mark
from node.core.context import Context
from node.core.protocol import BelowMinIsr, Commit
from node.core.replica import Replica
from node.core.serve import serve_waiting
from node.formats.messages import Error, ProduceResponse
from node.formats.trace import ACK


def isr_high_watermark(
    maximal_isr: Iterable[str], leo_of: Mapping[str, int], *, committed_isr: int, min_isr: int
) -> int | None:
    """Return the offset below which every member of the maximal ISR has all records; None if the
    high watermark may not move.

    `maximal_isr` also has replicas that a proposal under way may have added, `leo_of` the log ends
    known in this leader epoch: a member without one blocks. `committed_isr` is the size of the
    committed ISR: while it is below `min_isr`, the controller may keep an ELR that the leader does
    not know of."""
    if committed_isr < min_isr:
        return None
    ends = []
    for member in maximal_isr:
        if member not in leo_of:
            return None
        ends.append(leo_of[member])
    return min(ends)


def majority_high_watermark(
    voters: Sequence[str],
    leo_of: Mapping[str, int],
    *,
    epoch_start: int,
    half_is_enough: bool = False,
) -> int | None:
    """Return the offset below which a majority of the voters has all records; None if the high
    watermark may not move.

    An unknown log end counts as 0. Only ends above `epoch_start` commit anything: records of older
    terms commit with a record of the leader's own term, never by counting alone (Raft, figure 8);
    -1 means that counting is enough. `half_is_enough` takes the offset that half of an even number
    of voters have: the index at N/2 of the *ascending* ends."""
    ends = sorted((leo_of.get(v, 0) for v in voters), reverse=not half_is_enough)
    candidate = ends[len(voters) // 2]
    return candidate if candidate > epoch_start else None


def advance_hw(ctx: Context, r: Replica) -> None:
    """Raise the leader's high watermark if the protocol's rule allows it, and answer the producers
    and fetches that wait for it."""
    if r.role != "leader" or r.hw >= r.log.leo:
        return  # nothing is ever committed beyond the log end
    ends = {name: peer.leo for name, peer in r.peers.items()}
    ends[ctx.node] = r.log.leo
    waits = r.protocol.below_min_isr is BelowMinIsr.WAIT
    if r.protocol.commit is Commit.ISR:
        size_matters = r.protocol.elr and not r.bugs.hw_ignores_min_isr
        candidate = isr_high_watermark(
            r.isr if r.bugs.no_maximal_isr else r.maximal_isr,
            ends,
            committed_isr=len(r.isr),
            min_isr=r.min_isr if size_matters or waits else 0,
        )
        if r.bugs.commit_leader_only:
            candidate = r.log.leo
    else:
        candidate = majority_high_watermark(
            r.replicas,
            ends,
            epoch_start=-1 if r.protocol.counts_old_terms else r.leso,
            half_is_enough=r.protocol.half_is_enough,
        )
        # Only what is in this log; a longer log counts where `last_index_matches`.
        candidate = None if candidate is None else min(candidate, r.log.leo)
    if candidate is None or candidate <= r.hw:
        return
    r.set_hw(ctx, candidate)
    while r.acks and r.acks[0].end <= r.hw:
        ack = r.acks.popleft()
        acknowledge(ctx, r, ack.client, ack.corr, ack.base_offset, ack.end, acks=-1)
    serve_waiting(ctx, r, appended=False)


def acknowledge(
    ctx: Context, r: Replica, client: str, corr: int, base: int, end: int, *, acks: int
) -> None:
    """Answer a producer that its records from `base` to `end` (exclusive) are written."""
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
    # The acknowledgement waits for the leader's own disk as well, but not for later commits.
    mark = Mark.IF_COVERED if acks == -1 else Mark.AFTER_COMMIT
    if ctx.bugs.ack_before_commit or (acks == -1 and ctx.bugs.count_before_commit):
        mark = Mark.BEFORE_COMMIT
    ctx.send(client, response, mark=mark)


def refuse_produce(
    ctx: Context, r: Replica, to: str, corr: int, error: Error, *, appended: bool, acks: int = -1
) -> None:
    """Answer a produce request with an error, unless its producer wants no answer (`acks` 0).
    `appended`: the records are in the log, so that their outcome is unknown."""
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
    """If the committed ISR fell below MinISR, answer waiting producers with an error: the outcome
    of their records is unknown."""
    if r.protocol.below_min_isr is BelowMinIsr.WAIT:
        return
    if r.role == "leader" and len(r.isr) < r.min_isr:
        while r.acks:
            ack = r.acks.popleft()
            error = Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            refuse_produce(ctx, r, ack.client, ack.corr, error, appended=True)
