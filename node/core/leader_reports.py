"""Leader reports: followers report to the controller that their leader does not answer.

The module has both sides. A follower without a valid response for the leader timeout reports its
leader, and reports again after each failed fetch. The controller keeps, for each partition, the
replicas that reported its leader (the witnesses). When a majority of the followers in the ISR has
reported, it elects another leader. The reports of a partition expire one leader timeout after the
last of them. They are kept in memory only: a new controller starts without any.

Source: Liftbridge's replication protocol, partition leader failure; docs/protocols.md."""

from __future__ import annotations

from dataclasses import dataclass, field

from node.core.context import Context
from node.core.image import PartitionRecord
from node.core.protocol import Detection
from node.core.replica import NEVER, Replica
from node.formats.messages import ReportLeader
from node.formats.trace import REPORTED, WITNESSED


def _timeout_us(ctx: Context) -> int:
    return ctx.config.timings.leader_timeout_ms * 1000


def maybe_report(ctx: Context, r: Replica) -> None:
    """Report the leader to the controller if the last fetch failed and no valid response came for
    the leader timeout. Called before each fetch."""
    if r.protocol.detection is not Detection.LEADER_REPORTS:
        return
    failed = r.fetching.outstanding or r.fetching.failures > 0
    if not failed or ctx.now_us - r.fetching.heard_us < _timeout_us(ctx):
        return
    ctx.trace(
        REPORTED,
        r.partition,
        leader=r.leader,
        leader_epoch=r.leader_epoch,
        partition_epoch=r.partition_epoch,
    )
    ctx.send(
        ctx.controller or ctx.config.voters[0],
        ReportLeader(
            partition=r.partition,
            replica=ctx.node,
            leader=r.leader,
            leader_epoch=r.leader_epoch,
            partition_epoch=r.partition_epoch,
        ),
    )


@dataclass(slots=True)
class _Reports:
    """The replicas that reported the leader of `leader_epoch`, and when their reports expire."""

    leader_epoch: int
    names: list[str] = field(default_factory=list)
    expires_us: int = NEVER


class Witnesses:
    """The leader reports that the controller has received, by partition."""

    def __init__(self) -> None:
        self._of: dict[str, _Reports] = {}

    def count(self, ctx: Context, state: PartitionRecord, report: ReportLeader) -> bool:
        """Count a report if it is about the present leader and epochs. Return whether the leader
        must be replaced: more than (ISR - 1) / 2 members of the ISR have reported it."""
        if (report.leader, report.leader_epoch) != (state.leader, state.leader_epoch):
            return False
        if report.partition_epoch != state.partition_epoch:
            return False
        reports = self._about(ctx, state)
        reports.expires_us = ctx.now_us + _timeout_us(ctx)
        if report.replica not in reports.names:
            reports.names.append(report.replica)
        witnesses = [name for name in reports.names if name in state.isr]
        ctx.trace(
            WITNESSED,
            state.partition,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            witnesses=witnesses,
            isr=list(state.isr),
        )
        return len(witnesses) > (len(state.isr) - 1) // 2

    def _about(self, ctx: Context, state: PartitionRecord) -> _Reports:
        """Return the reports about this leader (bug LB3: also those about its predecessors)."""
        known = self._of.get(state.partition)
        stale = known is not None and known.leader_epoch != state.leader_epoch
        if known is None or (stale and not ctx.bugs.liftbridge_witness):
            known = self._of[state.partition] = _Reports(state.leader_epoch)
        return known

    def settled(self, partition: str) -> None:
        """Stop the expiry of a partition's reports, because another leader was elected."""
        self._of[partition].expires_us = NEVER

    def expire(self, ctx: Context) -> int:
        """Drop the reports that have expired. Return when the next ones expire, in microseconds."""
        for partition, reports in list(self._of.items()):
            if reports.expires_us <= ctx.now_us:
                del self._of[partition]
        return self.next_us()

    def next_us(self) -> int:
        """Return the time at which the next reports expire in microseconds, NEVER if there are
        none."""
        return min((reports.expires_us for reports in self._of.values()), default=NEVER)
