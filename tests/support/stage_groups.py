"""The coordinator of groups of n1, stepped by hand: n1 leads `__groups-0`, n2 is in sync with it.

The output has the records that are appended (`+ key value`), the answers, and how far the log is
committed. `reaches` says up to where n2 has the log, `reaches all` that it has all of it."""

from __future__ import annotations

import random
from typing import Final

from harness.sim.disk import SimDisk
from node.core import batch as batches
from node.core import bugs as known_bugs
from node.core import follower, leader
from node.core import protocol as protocols
from node.core.api import NodeConfig
from node.core.context import Context
from node.core.groups.coordinator import Coordinator
from node.core.groups.state import CoordinatorState, StateRecord, decode_payload, plain
from node.core.high_watermark import advance_hw
from node.core.replica import Peer, load
from node.formats.messages import (
    GroupHeartbeat,
    GroupRequest,
    GroupResponse,
    OffsetCommit,
    OffsetFetch,
)
from node.formats.trace import GROUPS_PARTITION

GROUP: Final = "g"


class GroupsStage:
    """A coordinator with the known bugs `bugs` (joined by commas), and the log of its groups."""

    def __init__(self, *, protocol: str = "kafka", bugs: str = "", partitions: int = 2) -> None:
        config = NodeConfig(node="n1", voters=("v1",), brokers=("n1", "n2"))
        switched = known_bugs.parse(bugs.split(",") if bugs else ())
        self.ctx = Context(config, SimDisk(), switched, random.Random(0), 0)
        rules = known_bugs.apply_bugs(protocols.protocol(protocol), switched)
        self.r = load(self.ctx, GROUPS_PARTITION, rules, durable=True)
        self.r.replicas = self.r.isr = ("n1", "n2")
        self.r.min_isr = 2
        self.coordinator = Coordinator()
        self.partitions = tuple(f"log-{n}" for n in range(partitions))
        self._seen, self._corr = 0, 0

    # -- the partition

    def lead(self, epoch: int) -> None:
        """Make n1 the leader in an epoch."""
        self.r.leader, self.r.leader_epoch, self.r.isr = "n1", epoch, ("n1", "n2")
        leader.begin(self.ctx, self.r)
        self.settle()

    def follow(self, epoch: int) -> None:
        """Make n2 the leader in an epoch."""
        leader.resign(self.ctx, self.r)
        self.r.leader, self.r.leader_epoch = "n2", epoch
        follower.begin(self.ctx, self.r)
        self.settle()

    def reaches(self, end: int | str) -> None:
        """Let n2 have the log below `end`."""
        leo = self.r.leo if end == "all" else int(end)
        now = self.ctx.now_us
        self.r.peers["n2"] = Peer(leo, 102, now, now, leo)
        advance_hw(self.ctx, self.r)
        self.settle()

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
        batch = batches.placed(batches.build(1, b"0", control=True), self.r.leo, epoch)
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
        self.ctx.more = bool(more)
        self._ask(
            OffsetCommit(
                corr=self._next(),
                group=GROUP,
                member=member,
                epoch=epoch,
                offsets={partition: offset},
            )
        )

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
            self.coordinator.on_request(self.ctx, self.r, request.member, request)
        self.settle()

    def settle(self) -> None:
        self.coordinator.settle(self.ctx, self.r)

    # -- time, and what there is

    def wait(self, ms: int) -> None:
        """Let time pass, and the coordinator act on it."""
        self.ctx.now_us += ms * 1000
        if self.coordinator.wake_us <= self.ctx.now_us:
            self.coordinator.tick(self.ctx, self.r)
        self.settle()

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
        for out in self.ctx.effects.messages:
            if isinstance(out.message, GroupResponse):
                said.append(f"-> {out.to} {_answer(out.message)}")
        self.ctx.effects.messages.clear()
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
