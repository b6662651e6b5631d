"""The life of one record: who appended, copied, committed, acknowledged and lost it. Pure functions
of the events of traces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from checker.checks.findings import listing
from checker.story.evidence import LostDisk, Sent
from checker.story.replica_logs import LogBatch, ReplicaLogs
from node.formats import trace
from node.formats.event_text import Event

CAME_BACK_WITHOUT: Final = "came-back-without"
"""A leader restarted without a record that was not on its disk, and leads on in its epoch."""


class RecordMoment(NamedTuple):
    """An event that affected the record. `more` continues the sentence about the event, `breaks` is
    that of `checker.formats.story.StoryStep`, and a shortened story leaves out what is `minor`."""

    event: Event
    more: str = ""
    breaks: str = ""
    minor: bool = False


class HeldSpan(NamedTuple):
    """A time in which `node` had a batch at the record's offset; `own`: the record's batch."""

    node: str
    own: bool
    from_us: int
    until_us: int


def counts(ack: Event, acks: int) -> bool:
    """Return whether the acknowledgement promises to keep the record, in a run with `acks`."""
    return ack.acks is None or acks != -1 or ack.acks == -1


def record_at(
    events: Sequence[Event],
    offset: int,
    acks: int = -1,
    sent: Sent | None = None,
    read_us: int | None = None,
) -> LogBatch | None:
    """Return the batch at `offset` that a story is about: the one that was acknowledged as `sent`;
    else the first until `read_us` that was acknowledged, that a leader committed, or that one
    appended; else the first ever. None if there is none."""
    found = None
    if sent is not None:
        during = (e for e in events if e.event != trace.ACK or is_answered(sent, e))
        found = _record_at(during, offset, acks, acknowledged=True)
    if found is None and read_us is not None:
        found = _record_at((e for e in events if e.t_us <= read_us), offset, acks)
    return found or _record_at(events, offset, acks)


def is_answered(sent: Sent, ack: Event) -> bool:
    """Return whether a broker's acknowledgement may be the one that the client of a send got."""
    return ack.client == sent.client and sent.invoked_us <= ack.t_us <= sent.t_us


def _record_at(
    events: Iterable[Event], offset: int, acks: int, *, acknowledged: bool = False
) -> LogBatch | None:
    """Return the first batch at `offset` that was `acknowledged`, else committed or appended."""
    logs = ReplicaLogs()
    committed: LogBatch | None = None
    appended: LogBatch | None = None
    for e in events:
        if e.event == trace.APPEND:
            logs.append(e)
            if appended is None and e.role == "leader":
                appended = logs.logs[e.node].at(offset)
        elif e.event in (trace.TRUNCATED, trace.ROLE, trace.DELETED):
            logs.observe(e)
        elif e.event == trace.ACK and e.base_offset <= offset < e.leo and counts(e, acks):
            found = logs.logs[e.node].at(offset)
            if found is not None:
                return found
        elif e.event == trace.HW and e.role == "leader" and e.hw > offset and committed is None:
            committed = logs.logs[e.node].at(offset)
    return None if acknowledged else committed or appended


@dataclass
class RecordLife:
    """The life of the record in the batch `record` at `offset`, as events are taken in order. A
    loss counts only once the record must be kept: after its acknowledgement or, if a client had
    read it by `read_us`, after its commit. `lost_disks`: the disks that lost it. `moments`: the
    events that affected it; `held`: who had it when."""

    offset: int
    record: LogBatch
    read_us: int | None = None
    acks: int = -1
    lost_disks: Sequence[LostDisk] = ()
    moments: list[RecordMoment] = field(default_factory=list)
    held: list[HeldSpan] = field(default_factory=list)
    acknowledged: Event | None = None
    first_us: int = -1
    _now_us: int = -1
    _logs: ReplicaLogs = field(default_factory=ReplicaLogs)
    _since: dict[str, tuple[LogBatch, int]] = field(default_factory=dict)
    _committed: set[str] = field(default_factory=set)
    _required: bool = False
    _newest: tuple[int, str] = (-1, "")
    _decided: tuple[str | None, tuple[str, ...]] = ("", ())

    def follow(self, events: Sequence[Event]) -> None:
        """Take all events of the partition, in order of time."""
        for e in events:
            self._observe(e)
        last_us = events[-1].t_us if events else 0
        for node in list(self._since):
            self._hold(node, last_us)

    def _observe(self, e: Event) -> None:
        self._now_us = e.t_us
        if self.read_us is not None and e.t_us > self.read_us and self.holders:
            self._required = True  # read before a leader called it committed
        match e.event:
            case trace.STARTED if e.incarnation > 1 and self.first_us >= 0:
                self._say(e)
            case trace.APPEND:
                self._append(e)
            case trace.ACK if e.base_offset <= self.offset < e.leo:
                self._ack(e)
            case trace.HW:
                self._hw(e)
            case trace.TRUNCATED:
                self._truncated(e)
            case trace.DELETED:
                self._deleted(e)
            case trace.ROLE:
                self._role(e)
            case trace.PARTITION:
                before, self._decided = self._decided, (e.leader, e.isr)
                if self.first_us >= 0 and before != self._decided:
                    self._say(e, minor=before[0] == e.leader)

    @property
    def holders(self) -> list[str]:
        """The nodes whose logs hold the record after the last event taken."""
        return sorted(
            node
            for node, (batch, from_us) in self._since.items()
            if batch == self.record and self._lost(node, from_us, self._now_us) is None
        )

    def _lost(self, node: str, from_us: int, until_us: int) -> int | None:
        """Return when the disk of a node lost the record in this time, None if it did not."""
        lost = (d.t_us for d in self.lost_disks if d.node == node and from_us <= d.t_us < until_us)
        return min(lost, default=None)

    def _say(self, e: Event, more: str = "", *, breaks: str = "", minor: bool = False) -> None:
        self.moments.append(RecordMoment(e, more, breaks, minor))

    def _settle(self, e: Event) -> tuple[LogBatch | None, LogBatch | None]:
        """Return the node's record at the offset before the event and after it."""
        now = self._logs.logs[e.node].at(self.offset)
        before = self._since[e.node][0] if e.node in self._since else None
        if now != before:
            self._hold(e.node, e.t_us)
            self._committed.discard(e.node)
            if now is not None:
                self._since[e.node] = (now, e.t_us)
        return before, now

    def _hold(self, node: str, until_us: int) -> None:
        if node in self._since:
            batch, from_us = self._since.pop(node)
            lost_us = self._lost(node, from_us, until_us)
            until_us = until_us if lost_us is None else lost_us
            self.held.append(HeldSpan(node, batch == self.record, from_us, until_us))

    def _append(self, e: Event) -> None:
        self._logs.append(e)
        before, now = self._settle(e)
        if now is None or now == before or not e.base_offset <= self.offset < e.leo:
            return
        own = now == self.record
        if own and self.first_us < 0:
            self.first_us = e.t_us
        if self.first_us < 0:
            return
        more, breaks = "", ""
        if e.role == "leader":
            newest, leader = self._newest
            if not own and self._required:
                more, breaks = (
                    ": another record, in place of the one that must be kept",
                    "overwritten",
                )
            elif not own:
                more = ": another record"
            if newest > e.leader_epoch:
                more += f", although {leader} already leads epoch {newest}"
        elif not own:
            more = f": another record, of epoch {now.epoch}, at offset {self.offset}"
        self._say(e, more, breaks=breaks)

    def _ack(self, e: Event) -> None:
        if self._logs.logs[e.node].at(self.offset) != self.record:
            if self.first_us >= 0:
                self._say(e, f": another record at offset {self.offset}")
            return
        if counts(e, self.acks):
            self.acknowledged = self.acknowledged or e
            self._required = True
        self._say(e)

    def _hw(self, e: Event) -> None:
        passed = e.hw > self.offset
        if self._logs.logs[e.node].at(self.offset) != self.record:
            return
        if passed == (e.node in self._committed):
            return
        (self._committed.add if passed else self._committed.discard)(e.node)
        more = ""
        if not passed:
            more = f": offset {self.offset} is above it again"
        elif e.role == "leader":
            if self.read_us is not None:
                self._required = True
            more = f": offset {self.offset} is committed"
        self._say(e, more, minor=passed and e.role != "leader")

    def _truncated(self, e: Event) -> None:
        self._logs.observe(e)
        before, now = self._settle(e)
        if before is None or before == now or self.first_us < 0:
            return
        if before != self.record:
            self._say(e, f". Another record is removed from offset {self.offset} of {e.node}")
            return
        left = self.holders
        rest = f"still on {listing(left)}" if left else "on no replica"
        self._say(
            e,
            f". The record is removed from {e.node} and is {rest}",
            breaks=f"cut:{e.reason}" if self._required else "",
        )

    def _deleted(self, e: Event) -> None:
        self._logs.observe(e)
        before, _ = self._settle(e)
        if before == self.record and e.start > self.offset:
            self._say(e, f". Offset {self.offset} is deleted", minor=e.role != "leader")

    def _role(self, e: Event) -> None:
        was_committed = e.node in self._committed
        self._logs.observe(e)
        before, now = self._settle(e)
        short = before == self.record and now != self.record
        if e.role != "leader":
            if short:
                self._say(e, ": the record is no longer in its log")
            elif was_committed and e.hw <= self.offset and now == self.record:
                self._committed.discard(e.node)
                self._say(e, f": offset {self.offset} is above its high watermark", minor=True)
            return
        again = self._newest == (e.leader_epoch, e.node)
        self._newest = max(self._newest, (e.leader_epoch, e.node))
        if self.first_us < 0 or not (self.holders or short):
            return
        start = self._logs.logs[e.node].start
        if now is None and start > self.offset:
            self._say(e, f", and its log begins at {start}", minor=not short)
            return
        lacks = now != self.record
        wrong = CAME_BACK_WITHOUT if short and again else "elected-without"
        self._say(
            e,
            f", {'without' if lacks else 'with'} the record",
            breaks=wrong if lacks and self._required else "",
        )
