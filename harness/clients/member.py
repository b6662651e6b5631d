"""A member of a consumer group of our brokers: it joins, reads what it owns, and commits (pure).

It commits as members do that are not perfect: most positions at once, some late, some after it has
lost the partition, some never. A commit carries the epoch in which its records were read. It
crashes or leaves from time to time, and comes back under another name. At the end of a run a
member drains what is left."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from harness.clients.consumer import decode_records
from harness.clients.session import DEFAULT_RETRY_US, Call, MetadataCache, Request, Session, Thread
from harness.clients.types import NEVER_US
from harness.formats.history import Delivered, DeliveredRun, GroupPosition, Op, OpKind, OpType
from node.core.api import Deliver
from node.formats.errors import WireError
from node.formats.messages import (
    Error,
    FetchRequest,
    FetchResponse,
    GroupHeartbeat,
    GroupResponse,
    OffsetCommit,
    OffsetFetch,
)
from node.formats.timings import Timings
from node.formats.trace import GROUPS_PARTITION
from node.formats.wire import split_fetch_body

GROUP: Final = "group"
THREADS: Final = 4
"""Of a member: one for its membership, one that reads, and those that commit."""
PAUSE_US: Final = 10_000
"""The pause between two reads."""
QUIET_MS: Final = 1_000
"""A drain ends when nothing has come for so long."""
_FENCED: Final = frozenset({Error.UNKNOWN_MEMBER, Error.FENCED_MEMBER_EPOCH})
_CHANGES: Final = frozenset({"join", "leave", "commit"})
"""Operations that may have taken effect without an answer."""
SHARES: Final = (("now", 60), ("soon", 20), ("late", 10), ("again", 5), ("never", 5))
"""How many percent of what it is given a member settles how; of positions none is given back."""
_STALE: Final = 0.5
"""So often a member commits what it has read of a partition when it owns that no more."""
_REFETCHES: Final = 0.2
"""This part of its reads is a fetch of the positions of what it owns."""


def way_to_settle(rng: random.Random, shares: Sequence[tuple[str, int]]) -> str:
    """Return in which way of `shares` a member settles what it is given."""
    return rng.choices([way for way, _ in shares], [share for _, share in shares])[0]


def delay(rng: random.Random, way: str, soon: int, late: int) -> int:
    """Return the time after which it does so: `soon` at most, or when it is `late`."""
    return {"soon": rng.randint(0, soon), "late": late}.get(way, 0)


class _Commit(NamedTuple):
    """A commit to send at a time, in the epoch in which the member read."""

    at_us: int
    epoch: int
    partition: str
    offset: int


class GroupMember(Session):
    """A member that lives until it is stopped, in one name after another; with `drains` it stays,
    commits at once, and is `done` when nothing comes any more."""

    def __init__(
        self,
        client: str,
        metadata: MetadataCache,
        threads: list[Thread],
        next_op: Callable[[], int],
        *,
        partitions: Sequence[str],
        timings: Timings,
        timeout_us: int,
        rng: random.Random,
        drains: bool = False,
        retry_us: int = DEFAULT_RETRY_US,
    ) -> None:
        super().__init__(client, metadata, threads, next_op, retry_us)
        self._membership, self._reader, self._committers = threads[0], threads[1], threads[2:]
        self._partitions = tuple(partitions)
        self._session_us, self._wait_ms = timings.session_ms * 1000, timings.fetch_wait_ms
        self._timeout_us, self._rng, self._drains = timeout_us, rng, drains
        self.done = False
        self._lives = 0
        self._quiet_since_us = NEVER_US
        self._begin_life(0)

    @property
    def missing(self) -> dict[str, int]:
        """Nothing: the final readers say what they have not read."""
        return {}

    def _begin_life(self, pause_us: int) -> None:
        """Come back under another name, after a pause."""
        self._lives += 1
        self._name = f"{self.client}-{self._lives}"
        self._epoch, self._group_epoch = 0, -1
        self._owned: dict[str, int] = {}
        self._wanted: tuple[str, ...] = ()
        self._asked: tuple[str, ...] = ()
        self._commits: list[_Commit] = []
        self._membership.next_us = self._now_us + PAUSE_US + pause_us
        life_us = round(self._session_us * self._rng.uniform(1, 4))
        self._ends_us = NEVER_US if self._drains else self._membership.next_us + life_us
        self._reader.next_us = self._membership.next_us

    # -- what comes next

    def _invoke(self, thread: Thread) -> Call | None:
        if thread is self._membership:
            return self._stay(thread)
        return self._read(thread) if thread is self._reader else self._next_commit(thread)

    def _stay(self, thread: Thread) -> Call | None:
        """Join the group, say that this member lives, or end its life."""
        if self._epoch and self._now_us >= self._ends_us:
            return self._end_life(thread)
        thread.next_us = self._now_us + self._session_us // 5
        if not self._epoch:
            self._joined = self._begin(thread, "join", partitions=self._partitions)
        # A heartbeat renews the join, and is no operation of its own.
        return Call(self._joined, GROUPS_PARTITION, self._now_us + self._session_us)

    def _end_life(self, thread: Thread) -> Call | None:
        leaves = self._rng.random() < 0.5
        for each in (self._reader, *self._committers):
            if each.call is not None:
                self._end(each, each.call, self._unknown(each.call), error="the member ended")
        op = self._begin(thread, "leave" if leaves else "crash")
        if leaves:
            self._owned, self._wanted, self._commits = {}, (), []
            return Call(op, GROUPS_PARTITION, self._now_us + self._timeout_us)
        self._log.complete(self._now_us, thread, op, "ok")
        self._begin_life(round(self._session_us * self._rng.uniform(0, 2)))
        return None

    def _read(self, thread: Thread) -> Call | None:
        """Fetch the positions of what was given to this member, or poll what it owns."""
        thread.next_us = self._now_us + PAUSE_US
        until_us = self._now_us + self._timeout_us
        is_over = self._drains and self._is_quiet() and not self._commits
        refetch = not self._drains and self._rng.random() < _REFETCHES
        self._asked = self._wanted or (tuple(self._owned) if is_over or refetch else ())
        if self._asked:
            op = self._begin(thread, "position", final=is_over)
            return Call(op, GROUPS_PARTITION, until_us)
        if not self._owned:
            return None
        partition, position = next(iter(self._owned.items()))
        del self._owned[partition]
        self._owned[partition] = position  # to the end of the turn
        final = self._drains and len(self._owned) == len(self._partitions)
        if final:
            self._quiet_since_us = min(self._quiet_since_us, self._now_us)
        return Call(self._begin(thread, "poll", final=final), partition, until_us)

    def _is_quiet(self) -> bool:
        return self._now_us - self._quiet_since_us >= QUIET_MS * 1000

    def _next_commit(self, thread: Thread) -> Call | None:
        due = min(self._commits, default=None)
        thread.next_us = NEVER_US if due is None else due.at_us
        if due is None or due.at_us > self._now_us:
            return None
        self._commits.remove(due)
        position = GroupPosition(partition=due.partition, offset=due.offset)
        op = self._begin(thread, "commit", epoch=due.epoch, positions=(position,))
        return Call(op, GROUPS_PARTITION, self._now_us + self._timeout_us)

    # -- requests

    def _request(self, call: Call) -> Request:
        op = call.invocation
        who: dict[str, Any] = {"corr": call.corr, "group": GROUP, "member": self._name}
        if op.f == "poll":
            left_ms = max(0, (call.deadline_us - self._now_us) // 2000)
            return FetchRequest(
                corr=call.corr,
                partition=call.partition,
                offset=self._owned[call.partition],
                max_wait_ms=min(self._wait_ms, left_ms),
            )
        if op.f == "commit":
            offsets = {each.partition: each.offset for each in op.positions}
            return OffsetCommit(**who, epoch=op.epoch, offsets=offsets)
        # A read or a heartbeat may be sent again; a late copy of a commit would set it back.
        call.overdue_us = self._now_us + self._session_us // 3
        if op.f == "position":
            return OffsetFetch(**who, epoch=op.epoch, partitions=self._asked)
        if op.f == "leave":
            return GroupHeartbeat(**who, epoch=-1)
        return GroupHeartbeat(
            **who,
            epoch=self._epoch,
            group_epoch=self._group_epoch,
            owned=(*self._owned, *self._wanted),
            subscribed=self._partitions,
        )

    # -- answers

    def _answered(self, thread: Thread, call: Call, answer: Deliver) -> None:
        message = answer.message
        assert isinstance(message, FetchResponse | GroupResponse)
        if message.error is Error.NONE:
            if isinstance(message, FetchResponse):
                self._polled(thread, call, answer)
            else:
                self._done(thread, call, message)
        elif message.error in _FENCED or message.error is Error.OFFSET_OUT_OF_RANGE:
            self._end(thread, call, "info" if call.in_doubt else "fail", error=str(message.error))
            if thread is self._membership:
                self._lose(thread)
        else:
            self._metadata.forget(call.partition, call.node)
            self._metadata.hint(call.partition, message.leader, refused_by=call.node)
            if isinstance(message, GroupResponse) and message.appended:
                self._end(thread, call, self._unknown(call), error=str(message.error))
            else:
                self._again(call, str(message.error))

    def _expired(self, thread: Thread, call: Call) -> None:
        if call.corr != 0:
            self._metadata.forget(call.partition, call.node)
        how = self._unknown(call) if call.corr != 0 or call.in_doubt else "fail"
        self._end(thread, call, how, error="timeout" if call.corr != 0 else call.error)

    def _overdue(self, call: Call) -> None:
        call.in_doubt = call.invocation.f in _CHANGES
        self._metadata.forget(call.partition, call.node)
        self._again(call, "timeout")

    def _done(self, thread: Thread, call: Call, message: GroupResponse) -> None:
        """Take what the coordinator answered."""
        if call.invocation.f == "position":
            found = message.offsets.items()
            positions = tuple(GroupPosition(partition=p, offset=at) for p, at in found)
            self._end(thread, call, "ok", positions=positions)
            self._own({p: max(0, at) for p, at in found if p in self._wanted})
            self.done = call.invocation.final
            self._stopped = self._stopped or self.done
        elif thread is not self._membership or call.invocation.f == "leave":
            self._end(thread, call, "ok")
        else:
            self._end(thread, call, "ok", epoch=message.epoch)
            self._learn(message)

    def _learn(self, message: GroupResponse) -> None:
        """Drop what the coordinator takes at once, and ask where to go on with what it gives."""
        dropped = [p for p in self._owned if p not in message.assigned]
        self._drop(dropped)
        self._epoch, self._group_epoch = message.epoch, message.group_epoch
        if dropped:
            self._membership.next_us = self._now_us
        self._wanted = tuple(p for p in message.assigned if p not in self._owned)

    def _lose(self, thread: Thread) -> None:
        """Begin again as a member that owns nothing: its session is over."""
        self._drop(list(self._owned))
        self._epoch, self._wanted = 0, ()
        thread.next_us = self._now_us

    def _drop(self, partitions: Sequence[str]) -> None:
        """Read nothing more of these partitions, and say so. A poll under way is not waited for:
        what an owner is given belongs to one assignment."""
        call = self._reader.call
        if partitions and call is not None and call.invocation.f == "poll":
            self._end(self._reader, call, "fail", error="the assignment changed")
        for partition in partitions:
            end = self._owned.pop(partition)
            if end and self._rng.random() < _STALE:
                after_us = self._rng.randint(0, self._session_us)
                self._commit_later(after_us, partition, end)
        if partitions:
            self._assign(self._membership)

    def _own(self, given: dict[str, int]) -> None:
        self._owned |= given
        self._wanted = ()
        if given:
            self._assign(self._reader)

    def _assign(self, thread: Thread) -> None:
        """Put on record all that this member owns, and where its polls go on."""
        positions = tuple(GroupPosition(partition=p, offset=at) for p, at in self._owned.items())
        op = self._begin(thread, "assign", partitions=tuple(self._owned))
        self._log.complete(self._now_us, thread, op, "ok", positions=positions)

    def _polled(self, thread: Thread, call: Call, answer: Deliver) -> None:
        partition = call.partition
        try:
            _, _, data = split_fetch_body(answer.body)
            runs, end = decode_records(data, self._owned[partition])
        except WireError as error:
            self._end(thread, call, "fail", error=f"corrupt answer: {error}")
            return
        records = tuple(DeliveredRun(run.value, run.count, run.offset) for run in runs)
        given = (Delivered(partition=partition, records=records),) if records else ()
        self._end(thread, call, "ok", deliveries=given)
        self._owned[partition] = end
        if records:
            self._quiet_since_us = self._now_us if self._quiet_since_us < NEVER_US else NEVER_US
            self._plan_commit(partition, end)

    def _plan_commit(self, partition: str, end: int) -> None:
        session_us = self._session_us
        way = "now" if self._drains else way_to_settle(self._rng, SHARES)
        after_us = delay(self._rng, way, session_us // 2, 2 * session_us)
        if way not in ("again", "never"):
            self._commit_later(after_us, partition, end)

    def _commit_later(self, after_us: int, partition: str, end: int) -> None:
        at_us = self._now_us + after_us
        self._commits.append(_Commit(at_us, self._epoch, partition, end))
        for thread in self._committers:
            thread.next_us = min(thread.next_us, at_us)

    # -- the history

    def _begin(self, thread: Thread, f: OpKind, **fields: Any) -> Op:
        of = {"group": GROUP, "member": self._name, "epoch": self._epoch or -1}
        return self._log.invoke(self._now_us, thread, f, **(of | fields))

    def _end(
        self, thread: Thread, call: Call, how: OpType, *, error: str = "", **fields: Any
    ) -> None:
        """End a call and, unless it is a heartbeat, the operation that it makes."""
        op, thread.call = call.invocation, None
        if op.f != "join" or not self._epoch:
            fields = fields if how == "ok" else {}
            self._log.complete(self._now_us, thread, op, how, error=error, **fields)
        if op.f == "leave":
            self._begin_life(0)

    def _unknown(self, call: Call) -> OpType:
        """Return how a call ends that was perhaps carried out."""
        return "info" if call.invocation.f in _CHANGES else "fail"
