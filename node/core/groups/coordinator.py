"""The coordinator of consumer groups: the leader of the groups partition.

Its state is that of its log. A new leader replays its log to the log end at its election, and
serves nothing until all of that is committed: until then it may still be cut. Each decision is
appended as one batch and applied at once, and its answer waits until that batch is committed; the
answer to a request that changes nothing waits for the last batch that was applied before. So no
answer states what can be lost. A leader that resigns drops the state; the outcome of what waits is
unknown."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from node.core import batch as batches
from node.core import leader
from node.core.context import Context
from node.core.groups.decide import LEAVES, Decided, decide, remove
from node.core.groups.state import (
    GROUP,
    MEMBER,
    CoordinatorState,
    GroupTarget,
    StateRecord,
    encode_batch,
    plain,
)
from node.core.high_watermark import advance_hw
from node.core.protocol import BelowMinIsr, Commit
from node.core.replica import NEVER, Replica
from node.formats.messages import (
    Error,
    GroupHeartbeat,
    GroupRequest,
    GroupResponse,
    OffsetCommit,
    OffsetFetch,
)
from node.formats.trace import GROUP_STATE

MAX_WAITING: Final = 1_000
APPENDS_PER_STATE: Final = 50
"""After so many batches the coordinator traces its state."""


@dataclass(slots=True)
class WaitingAnswer:
    """An answer that leaves when the log below `end` is committed."""

    client: str
    end: int
    answer: GroupResponse


class Coordinator:
    """The part of a broker that coordinates groups while it leads their partition. `applied` is the
    offset below which the log is in `state`, None while it does not lead; it serves when the high
    watermark has reached `serves_at`. `heard_us` is when each (group, member) last reported and
    kept nothing that it must give up."""

    def __init__(self) -> None:
        self.state: CoordinatorState | None = None
        self.epoch = -1
        self.applied = 0
        self.serves_at = 0
        self.serving = False
        self.heard_us: dict[tuple[str, str], int] = {}
        self.wake_us = NEVER
        self._waiting: deque[WaitingAnswer] = deque()
        # What a bug applies before it appends it, with the client that waits for the answer.
        self._late: list[tuple[str, Decided]] = []
        self._untraced = 0
        self._kept: CoordinatorState | None = None

    def on_request(
        self, ctx: Context, r: Replica | None, source: str, request: GroupRequest
    ) -> None:
        """Decide a request of a member, or refuse it: nothing is appended then."""
        if any((w.client, w.answer.corr) == (source, request.corr) for w in self._waiting):
            return  # a copy that the network made
        error = self._unable(r)
        if r is None or error is not Error.NONE:
            key = request.group, request.member
            if isinstance(request, GroupHeartbeat) and key in self.heard_us:
                self.heard_us[key] = ctx.now_us  # It lives, whatever can be decided.
            refusal = GroupResponse(corr=request.corr, error=error, leader=r.leader if r else "")
            answers = error is Error.LOADING and ctx.bugs.serve_while_loading
            if answers and isinstance(request, OffsetFetch):
                none = dict.fromkeys(request.partitions, -1)
                refusal = GroupResponse(corr=request.corr, epoch=request.epoch, offsets=none)
            ctx.send(source, refusal)
            return
        self._decide(ctx, r, source, request)

    def _decide(self, ctx: Context, r: Replica, source: str, request: GroupRequest) -> None:
        assert self.state is not None
        decided = decide(self.state, r.bugs, request)
        if decided.answer.error is not Error.NONE:
            ctx.send(source, replace(decided.answer, leader=r.leader))
            return
        if isinstance(request, GroupHeartbeat):
            if request.epoch == LEAVES:
                self.heard_us.pop((request.group, request.member), None)
            elif {*request.owned} <= {*decided.answer.assigned}:
                # One that keeps what it must give up has the time of a session to do so.
                self.heard_us[request.group, request.member] = ctx.now_us
            if self.wake_us == NEVER:
                self._set_wake(ctx)
        late = isinstance(request, OffsetCommit) and ctx.more and r.bugs.apply_before_append_order
        if late or (_empties(decided.records) and r.bugs.late_group_tombstone):
            self.state.apply(decided.records)
            self._late.append((source, decided))
            return
        early = isinstance(request, OffsetCommit) and r.bugs.ack_commit_at_append
        self._carry_out(ctx, r, source, decided, early=early)
        if self._late and not r.bugs.apply_before_append_order:
            self._append_late(ctx, r)

    def _carry_out(
        self, ctx: Context, r: Replica, source: str, decided: Decided, *, early: bool = False
    ) -> None:
        """Append and apply the records of a decision, and let its answer wait for them."""
        self._append(ctx, r, decided.records)
        answer = replace(decided.answer, appended=bool(decided.records))
        if source and (early or r.hw >= self.applied):
            ctx.send(source, answer)
        elif source:
            self._waiting.append(WaitingAnswer(source, self.applied, answer))

    def _append(
        self, ctx: Context, r: Replica, records: list[StateRecord], *, apply: bool = True
    ) -> None:
        assert self.state is not None
        logged = records
        if r.bugs.epoch_not_logged:
            logged = [each for each in records if not isinstance(each.value, GroupTarget)]
        if logged:
            _, self.applied = leader.append(ctx, r, batches.view(encode_batch(logged)))
            self._untraced += 1
        if apply:
            self.state.apply(records)
        if logged and not ctx.more:
            advance_hw(ctx, r)
        if self._untraced >= APPENDS_PER_STATE:
            self._trace(ctx, r)

    def _append_late(self, ctx: Context, r: Replica) -> None:
        late, self._late = self._late[::-1], []
        for client, decided in late:
            self._append(ctx, r, decided.records, apply=False)
            self._waiting.append(WaitingAnswer(client, self.applied, decided.answer))

    # -- leadership

    def settle(self, ctx: Context, r: Replica | None) -> None:
        """Take or drop leadership after a step, and send the answers that waited for its high
        watermark."""
        if self.state is not None and (
            r is None or r.role != "leader" or r.leader_epoch != self.epoch
        ):
            self.resign(ctx, r)
        if r is None:
            return
        if r.role == "leader" and self.state is None:
            self._load(ctx, r)
        if self.state is None and not r.bugs.answer_by_any_hw:
            return
        if self._late and r.bugs.apply_before_append_order and not ctx.more:
            self._append_late(ctx, r)
        if self.state is not None and not self.serving and r.hw >= self.serves_at:
            self._serve(ctx, r)
        if self._waiting and self.state is not None and _below_min_isr(r):
            self._refuse_waiting(ctx, r, Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        while self._waiting and self._waiting[0].end <= r.hw:
            wait = self._waiting.popleft()
            ctx.send(wait.client, wait.answer)

    def _load(self, ctx: Context, r: Replica) -> None:
        """Replay the log to its end at the election."""
        self.epoch, self.serving = r.leader_epoch, False
        self.state, kept = CoordinatorState(), self._kept
        if kept is not None and r.bugs.keep_state_over_leadership:
            self.state = kept
        else:
            self.state.replay(r.log, r.log.start, r.hw if r.bugs.load_to_hw else r.leo)
        self.applied = self.serves_at = r.leo

    def _serve(self, ctx: Context, r: Replica) -> None:
        """Begin to serve, and the sessions of all members with it."""
        assert self.state is not None
        self.serving = True
        self.heard_us = {
            (key[1], key[2]): ctx.now_us for key in self.state.values if key[0] == MEMBER
        }
        self._set_wake(ctx)
        self._trace(ctx, r)

    def resign(self, ctx: Context, r: Replica | None) -> None:
        """Trace and drop the state. The outcome of what waits is unknown."""
        if self.state is None:
            return
        if r is not None and r.leader_epoch >= self.epoch and self.serving:
            self._trace(ctx, r)
        if r is None or not r.bugs.answer_by_any_hw:
            self._refuse_waiting(ctx, r, Error.LEADERSHIP_LOST)
        self._kept, self.state, self.serving = self.state, None, False
        self.heard_us, self._late, self.wake_us = {}, [], NEVER

    def _refuse_waiting(self, ctx: Context, r: Replica | None, error: Error) -> None:
        """Answer all that waits with an error. What was appended has an unknown outcome."""
        hint = "" if r is None else r.leader
        while self._waiting:
            wait = self._waiting.popleft()
            refusal = GroupResponse(
                corr=wait.answer.corr, error=error, appended=wait.answer.appended, leader=hint
            )
            ctx.send(wait.client, refusal)

    # -- time

    def tick(self, ctx: Context, r: Replica | None) -> None:
        """Remove the members whose sessions are over."""
        if self.state is None or r is None or not self.serving:
            self.wake_us = NEVER
            return
        if _below_min_isr(r):
            # It can remove nobody: all have another session.
            self.heard_us = dict.fromkeys(self.heard_us, ctx.now_us)
            self._set_wake(ctx)
            return
        over = ctx.now_us - ctx.config.timings.session_ms * 1000
        ended: dict[str, list[str]] = {}
        for (group, member), heard_us in self.heard_us.items():
            if heard_us <= over:
                ended.setdefault(group, []).append(member)
        for group, names in ended.items():
            for name in names:
                del self.heard_us[group, name]
            records = remove(self.state, r.bugs, group, names)
            removal = Decided(records, GroupResponse())
            if _empties(records) and r.bugs.late_group_tombstone:
                self.state.apply(records)
                self._late.append(("", removal))
            else:
                self._carry_out(ctx, r, "", removal)
        self._set_wake(ctx)

    def _set_wake(self, ctx: Context) -> None:
        first_us = min(self.heard_us.values(), default=NEVER)
        self.wake_us = first_us + ctx.config.timings.session_ms * 1000 if self.heard_us else NEVER

    # -- whether it can

    def _unable(self, r: Replica | None) -> Error:
        """Return why nothing can be decided now, NONE if it can."""
        if r is None:
            return Error.UNKNOWN_PARTITION
        if r.role != "leader" or self.state is None or r.leader_epoch != self.epoch:
            return Error.NOT_LEADER
        if not self.serving:
            return Error.LOADING
        if _below_min_isr(r):
            return Error.NOT_ENOUGH_REPLICAS
        return Error.OVERLOADED if len(self._waiting) >= MAX_WAITING else Error.NONE

    def _trace(self, ctx: Context, r: Replica) -> None:
        """Trace the state, so that it can be compared with what its log makes."""
        assert self.state is not None
        self._untraced = 0
        end, chain = r.log.hash_at(self.applied)
        if end != self.applied:
            return  # a new leader has cut it in this very step
        ctx.trace(
            GROUP_STATE,
            r.partition,
            applied=end,
            hash=chain,
            leader_epoch=self.epoch,
            live=plain(self.state.values),
        )


def _below_min_isr(r: Replica) -> bool:
    """Return whether the leader may commit nothing that it would tell: the ISR is too small."""
    protocol = r.protocol
    counts = protocol.commit is Commit.ISR and protocol.below_min_isr is BelowMinIsr.REFUSE
    return counts and len(r.isr) < r.min_isr


def _empties(records: list[StateRecord]) -> bool:
    """Return whether a decision leaves a group without members."""
    return any(
        isinstance(each.value, GroupTarget) and not each.value.target
        for each in records
        if each.key[0] == GROUP
    )
