"""The coordinator of groups of n1, stepped by hand: n1 leads `__groups-0`, n2 is in sync with it.

The output has the records that are appended (`+ key value`), the answers, and how far the log is
committed. `reaches` says up to where n2 has the log, `reaches all` that it has all of it."""

from __future__ import annotations

from typing import Final

from node.core import batch as batches
from node.core.api import Deliver, Tick
from node.core.groups.coordinator import Coordinator
from node.core.groups.state import CoordinatorState, StateRecord, decode_payload, plain
from node.formats.messages import (
    FetchRequest,
    GroupHeartbeat,
    GroupRequest,
    GroupResponse,
    OffsetCommit,
    OffsetFetch,
)
from node.formats.trace import GROUPS_PARTITION
from tests.support.lone_broker import LoneBroker, broker_epoch, placed

GROUP: Final = "g"


class GroupsStage(LoneBroker):
    """A coordinator with the known bugs `bugs` (joined by commas), and the log of its groups."""

    partition = GROUPS_PARTITION

    def __init__(self, *, protocol: str = "kafka", bugs: str = "", partitions: int = 2) -> None:
        switched = tuple(bugs.split(",")) if bugs else ()
        super().__init__(brokers=("n1", "n2"), protocol=protocol, bugs=switched)
        self.partitions = tuple(f"log-{n}" for n in range(partitions))
        self._seen = self._corr = self._at = 0

    @property
    def coordinator(self) -> Coordinator:
        assert self.core.coordinator is not None
        return self.core.coordinator

    # -- the partition

    def lead(self, epoch: int) -> None:
        """Make n1 the leader in an epoch."""
        self._place("n1", epoch)

    def follow(self, epoch: int) -> None:
        """Make n2 the leader in an epoch."""
        self._place("n2", epoch)

    def _place(self, leads: str, epoch: int) -> None:
        self._at += 1
        both = "n1,n2"
        record = placed(leads, epoch, both, at=self._at, replicas=both, partition=self.partition)
        self.hears(record)
        self.settle()

    def reaches(self, end: int | str) -> None:
        """Let n2 have the log below `end`."""
        leo = self.r.leo if end == "all" else int(end)
        fetch = FetchRequest(
            partition=self.partition,
            replica="n2",
            offset=leo,
            last_epoch=self.r.log.epoch_at(leo - 1) if leo else -1,
            leader_epoch=self.r.leader_epoch,
            broker_epoch=broker_epoch("n2"),
        )
        self.takes("n2", fetch)

    def isr(self, names: str) -> None:
        """Set the committed ISR."""
        self.r.isr = self.r.maximal_isr = tuple(names.split(","))
        self.settle()

    def cut(self, end: int) -> None:
        """Cut the log, as a follower does."""
        self.r.log.truncate(end)
        self._seen = min(self._seen, end)

    def gets(self, epoch: int) -> None:
        """Let a follower get a batch of its leader, which is committed."""
        batch = batches.view(batches.build(1, b"0", control=True))
        batch = batches.placed(batch, self.r.leo, epoch)
        self.r.log.append_as_follower([batch])
        self.r.set_hw(self.ctx, self.r.leo)
        self.settle()

    # -- the members

    def join(self, member: str, copies: int = 1) -> None:
        """Let a member join, in so many copies of one request."""
        self._ask(self._beat(member, 0), copies)

    def beat(self, member: str, epoch: int, owned: str = "", sees: int = -1) -> None:
        """Let a member say that it lives, what it owns, and the group's epoch as far as it sees."""
        self._ask(self._beat(member, epoch, owned, sees))

    def leave(self, member: str) -> None:
        self._ask(self._beat(member, -1))

    def _beat(self, member: str, epoch: int, owned: str = "", sees: int = -1) -> GroupHeartbeat:
        state = self.coordinator.state
        latest = 0 if state is None else state.group(GROUP).epoch
        return GroupHeartbeat(
            corr=self._next(),
            group=GROUP,
            member=member,
            epoch=epoch,
            group_epoch=latest if sees < 0 else sees,
            owned=tuple(owned.split(",")) if owned else (),
            subscribed=self.partitions,
        )

    def commit(
        self, member: str, epoch: int, partition: str, offset: int, *, more: int = 0
    ) -> None:
        """Let a member commit a position; `more`: other messages of the turn follow."""
        offsets = {partition: offset}
        request = OffsetCommit(
            corr=self._next(), group=GROUP, member=member, epoch=epoch, offsets=offsets
        )
        self.step(Deliver(member, request, more=bool(more)))

    def fetch(self, member: str, epoch: int, partition: str) -> None:
        self._ask(
            OffsetFetch(
                corr=self._next(), group=GROUP, member=member, epoch=epoch, partitions=(partition,)
            )
        )

    def _next(self) -> int:
        self._corr += 1
        return self._corr

    def _ask(self, request: GroupRequest, copies: int = 1) -> None:
        for _ in range(copies):
            self.takes(request.member, request)

    def settle(self) -> None:
        self.step(Tick())

    # -- time, and what there is

    def wait(self, ms: int) -> None:
        self.sleep(ms)

    def state(self) -> list[str]:
        """Return the live state, and whether it is what the log makes."""
        live = self.coordinator.state
        if live is None:
            return ["no state"]
        made = CoordinatorState()
        made.replay(self.r.log, 0, self.r.leo)
        same = "as in its log" if made.values == live.values else "unlike its log"
        return [
            *(_text(StateRecord(tuple(k), live.values[tuple(k)])) for k, _ in plain(live.values)),
            same,
        ]

    def observe(self) -> list[str]:
        found, after = self.r.log.read(self._seen, max_bytes=1 << 20, below=self.r.leo)
        said = []
        for data in found:
            said += [f"+ {_text(record)}" for record in decode_payload(batches.view(data).payload)]
        self._seen = after
        for to, message, _ in self.sent():
            if isinstance(message, GroupResponse):
                said.append(f"-> {to} {_answer(message)}")
        return [*said, f"log end {self.r.leo}, committed {self.r.hw}"]


def _text(record: StateRecord) -> str:
    value, key = record.value, " ".join(record.key)
    if value is None:
        return f"{key} removed"
    fields = {name: getattr(value, name) for name in value.__struct_fields__}
    return f"{key} " + " ".join(f"{name}={_plain(said)}" for name, said in fields.items())


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_plain(each)}" for key, each in value.items()) + "}"
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _answer(message: GroupResponse) -> str:
    if message.error:
        return f"#{message.corr} {message.error}" + (" appended" if message.appended else "")
    said = f"#{message.corr} epoch {message.epoch}"
    if message.assigned:
        said += f" owns {_plain(message.assigned)}"
    return said + (f" positions {_plain(message.offsets)}" if message.offsets else "")
