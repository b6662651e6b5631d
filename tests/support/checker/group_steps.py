"""Steps of a story about a group of consumers, `g`. Records are (value, offset[, times[, id]])."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import msgspec

from harness.formats.history import (
    GROUP_STATES,
    Delivered,
    DeliveredRun,
    GroupPosition,
    OpKind,
    OpType,
)

P = "log-0"
Given = tuple[int, ...]


class GroupSteps:
    """The acts of members of a group, in a run whose promise has `groups`."""

    run: dict[str, Any]
    extra: dict[str, bytes]

    @abstractmethod
    def op(self, f: OpKind, outcome: OpType | None, **how: Any) -> int:
        """Take any operation."""

    def groups(self, **fields: Any) -> None:
        """Promise this of groups, of short times if it says no others."""
        short = {"ack_wait_ms": 10, "redelivery_ms": 10, "rebalance_ms": 30}
        self.run["promise"] = self.run["promise"] | {"groups": short | fields}

    def member(
        self, name: str, f: OpKind, *, outcome: OpType = "ok", said: Any = None, **how: Any
    ) -> int:
        """Let a member do an operation; its completion has the fields `said` besides."""
        about = {name: how.pop(name) for name in ("begin", "end", "final") if name in how}
        fields = {"group": "g", "member": name, **how}
        process = 60 + int(name[1:] or 0)
        return self.op(f, outcome, process=process, more=fields, said=said or {}, **about)

    def give(self, name: str, *records: Given, outcome: OpType = "ok", **how: Any) -> int:
        """Let a poll of a member be given records."""
        said = {"deliveries": _given(records)} if records else {}
        return self.member(name, "poll", outcome=outcome, said=said, **how)

    def settle(self, name: str, *records: Given, f: OpKind = "ack", **how: Any) -> int:
        """Let a member ack records, or give them back."""
        return self.member(name, f, deliveries=_given(records), **how)

    def own(self, name: str, epoch: int = -1, start: int = -1, **how: Any) -> int:
        """Let a member own the partition in an epoch, to go on at `start`."""
        at = (GroupPosition(partition=P, offset=start),)
        said = {"positions": at} if start >= 0 else {}
        return self.member(name, "assign", partitions=(P,), epoch=epoch, said=said, **how)

    def join(self, name: str, epoch: int = -1, **how: Any) -> int:
        """Let a member join."""
        return self.member(name, "join", partitions=(P,), said={"epoch": epoch}, **how)

    def commit(self, name: str, offset: int, epoch: int = -1, **how: Any) -> int:
        """Let a member commit a position."""
        at = (GroupPosition(partition=P, offset=offset),)
        return self.member(name, "commit", positions=at, epoch=epoch, **how)

    def fetch(self, name: str, offset: int, epoch: int = -1, **how: Any) -> int:
        """Let a position be fetched, of the group at this offset."""
        at = (GroupPosition(partition=P, offset=offset),)
        return self.member(name, "position", said={"positions": at}, epoch=epoch, **how)

    def drain(self, ms: int = 30) -> int:
        """Let a fresh member be given nothing for so long."""
        begin = self.now - 1_000
        return self.member("d9", "poll", final=True, begin=begin, end=begin + ms)

    @property
    @abstractmethod
    def now(self) -> int:
        """The time, in ms."""

    def state(self, node: str, applied: int, **fields: Any) -> None:
        """Let a node keep this state of the group."""
        line = {"node": node, "group": "g", "partition": P, "applied": applied, **fields}
        lines = self.extra.get(GROUP_STATES, b"")
        self.extra[GROUP_STATES] = lines + msgspec.json.encode(line) + b"\n"

    def keep(self, key: str, *values: int) -> None:
        """Let the log of the coordinator have these values of a key, at its first offsets."""
        for offset, value in enumerate(values):
            record = {"key": key, "value": value}
            line = {"offset": offset, "record": record}
            lines = self.extra.get(GROUP_STATES, b"")
            self.extra[GROUP_STATES] = lines + msgspec.json.encode(line) + b"\n"

    def live(self, node: str, applied: int, key: str, value: int) -> None:
        """Let a coordinator have this state after applying so much of its log."""
        self.state(node, applied, live=[[key, value]])


def _given(records: tuple[Given, ...]) -> tuple[Delivered, ...]:
    runs = []
    for value, offset, *rest in records:
        times, id = (*rest, 0, -1)[:2] if len(rest) < 2 else rest[:2]
        runs.append(DeliveredRun(value, 1, offset, id, times))
    return (Delivered(partition=P, records=tuple(runs)),)
