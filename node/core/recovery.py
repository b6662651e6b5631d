"""Balanced recovery: how the controller chooses a leader if ISR and ELR are empty.

It asks every member of the last-known ELR (replicas that left the ELR because they may have lost
data) for the length of its log, and elects the longest: highest last epoch, then highest end. The
last-known ELR has at least MinISR members, so a committed record is lost only if all of them lost
it. The controller waits for all of them; an operator who cannot wait can order an unclean election.
Source: KIP-966; docs/protocols.md."""

from __future__ import annotations

from dataclasses import dataclass, field

from node.core.context import Context
from node.core.image import NO_LEADER, Image, PartitionRecord
from node.core.replica import LONG_AGO, NEVER, Replica
from node.formats.messages import ReplicaLogInfo, ReplicaLogInfoRequest


@dataclass(slots=True)
class _Question:
    """The requests about one partition in one partition epoch; answers are (epoch, end)."""

    partition_epoch: int
    answers: dict[str, tuple[int, int]] = field(default_factory=dict)
    ask_at_us: int = LONG_AGO


class Recovery:
    """The controller's recoveries under way, by partition: the log lengths asked for and
    answered."""

    def __init__(self) -> None:
        self._open: dict[str, _Question] = {}

    def look(self, ctx: Context, image: Image) -> int:
        """Ask the members of the last-known ELR of each partition that needs a recovery for their
        log ends, again after a pause. Return when to call again, in microseconds."""
        wanted = {p: s for p, s in image.partitions.items() if _can_be_asked(s, image)}
        for partition in [p for p in self._open if p not in wanted]:
            del self._open[partition]
        for partition, state in wanted.items():
            question = self._open.get(partition)
            if question is None or question.partition_epoch != state.partition_epoch:
                question = self._open[partition] = _Question(state.partition_epoch)
            if question.ask_at_us <= ctx.now_us:
                question.ask_at_us = ctx.now_us + 2 * ctx.retry_us
                self._ask(ctx, state, question)
        return self.next_us()

    def next_us(self) -> int:
        """Return the time of the next question in microseconds, NEVER if there is none."""
        return min((question.ask_at_us for question in self._open.values()), default=NEVER)

    def _ask(self, ctx: Context, state: PartitionRecord, question: _Question) -> None:
        request = ReplicaLogInfoRequest(
            partition=state.partition, partition_epoch=state.partition_epoch
        )
        for member in state.last_known_elr:
            if member not in question.answers:
                ctx.send(member, request)

    def on_info(self, image: Image, source: str, info: ReplicaLogInfo) -> str | None:
        """Note a replica's answer. Return the replica to elect once all have answered, else
        None."""
        question, state = self._open.get(info.partition), image.partitions.get(info.partition)
        if question is None or state is None or not _can_be_asked(state, image):
            return None
        if not info.partition_epoch == question.partition_epoch == state.partition_epoch:
            return None
        if info.broker_epoch != image.broker_epoch(source):
            return None
        question.answers[source] = (info.last_epoch, info.end_offset)
        if any(member not in question.answers for member in state.last_known_elr):
            return None
        # Of equals the first in replica order.
        return max(state.last_known_elr, key=lambda member: question.answers[member])


def _can_be_asked(state: PartitionRecord, image: Image) -> bool:
    """Return whether no replica leads or may lead, and all of the last-known ELR are active."""
    if state.leader != NO_LEADER or state.isr or state.elr or not state.last_known_elr:
        return False
    return all(image.is_active(member) for member in state.last_known_elr)


def on_request(ctx: Context, r: Replica, source: str, request: ReplicaLogInfoRequest) -> None:
    """Answer, as a replica, with the length of the log, once it can no longer grow. A damaged log
    is not answered for."""
    if r.partition_epoch < request.partition_epoch or r.role == "leader":
        return  # it is asked again
    if r.log.damage is not None:
        return  # what it has is not what it had: it must not be elected for it
    ctx.send(
        source,
        ReplicaLogInfo(
            corr=request.corr,
            partition=r.partition,
            partition_epoch=request.partition_epoch,
            broker_epoch=ctx.broker_epoch,
            last_epoch=r.log.last_epoch,
            end_offset=r.leo,
        ),
    )
