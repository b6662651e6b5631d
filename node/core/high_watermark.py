"""When a leader raises its high watermark, and who is answered then.

The HW is monotone on one leader in one epoch. Triggers: a follower's fetch, a committed ISR
change, a produce, and becoming leader. See docs/protocols.md.
"""

from __future__ import annotations

from node.core.acks import acknowledge
from node.core.context import Context
from node.core.isr import isr_high_watermark, majority_high_watermark
from node.core.protocol import BelowMinIsr, Commit
from node.core.replica import Replica
from node.core.serve import serve_waiting


def advance_hw(ctx: Context, r: Replica) -> None:
    """Raise the high watermark if the protocol's rule allows, and answer who waited for it."""
    if r.role != "leader" or r.hw >= r.log.leo:
        return  # nothing is ever committed beyond the log end
    ends = {name: peer.leo for name, peer in r.peers.items()}
    ends[ctx.node] = r.leo
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
            candidate = r.leo
    else:
        candidate = majority_high_watermark(
            r.replicas,
            ends,
            epoch_start=-1 if r.protocol.counts_old_terms else r.leso,
            half_is_enough=r.protocol.half_is_enough,
        )
        # Only what is in this log; a longer log counts where `last_index_matches`.
        candidate = None if candidate is None else min(candidate, r.leo)
    if candidate is None or candidate <= r.hw:
        return
    r.set_hw(ctx, candidate)
    while r.acks and r.acks[0].end <= r.hw:
        ack = r.acks.popleft()
        acknowledge(ctx, r, ack.client, ack.corr, ack.base_offset, ack.end, acks=-1)
    serve_waiting(ctx, r, followers=False)
