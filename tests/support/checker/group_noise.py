"""Random histories of consumer groups that no system wrote: operations of few members on few
records in any order, so that every definition meets its members and near misses. Most are wrong."""

from __future__ import annotations

import random
from typing import Any, Final

from harness.formats.history import (
    Delivered,
    DeliveredRun,
    GroupPosition,
    Op,
    OpKind,
    Read,
    RecordRun,
    Send,
)
from harness.formats.run_info import GroupPromise

PARTITIONS: Final = ("log-0", "log-1")
MS: Final = 1000
OUTCOMES: Final = {"ok": 16, "info": 2, "fail": 2, "none": 1}
WEIGHTS: Final[dict[str, dict[OpKind, float]]] = {
    "acks": {
        "poll": 6,
        "ack": 4,
        "nack": 1.5,
        "join": 1,
        "leave": 0.4,
        "assign": 0.5,
        "position": 2,
    },
    "positions": {"poll": 8, "join": 1, "leave": 0.4, "assign": 3, "commit": 4, "position": 3},
    "stuck": {"poll": 3},
}


def promise(rng: random.Random) -> GroupPromise:
    """Return any promise."""
    said = (
        "at_least_once",
        "durable",
        "fenced",
        "fenced_reads",
        "exclusive",
        "epochs_rise",
        "counts",
    )
    return GroupPromise(
        kind=rng.choice(["acks", "positions"]),
        order=rng.choice(["none", "first", "owner"]),
        ack_wait_ms=rng.choice([0, 5, 20]),
        redelivery_ms=rng.choice([0, 5, 20]),
        max_deliver=rng.choice([-1, -1, 1, 2, 3]),
        rebalance_ms=rng.choice([10, 30]),
        **{name: rng.random() < 0.75 for name in said},
    )


class Noise:
    """One history: two groups at most, of three members, with two partitions at most."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(f"noise {seed}")
        self.promise = promise(rng)
        self.partitions = PARTITIONS[: rng.choice([1, 1, 2])]
        self.until = rng.choice([20, 60, 200])
        self.has_offsets, self.has_ids = rng.random() < 0.8, rng.random() < 0.4
        self.records = {name: rng.choice([1, 2, 4, 6, 12]) for name in self.partitions}
        self._cut = rng.choice([0, 0, 0, 50])
        """What is added to some of the values: the log was cut, and has others at these offsets."""
        self._strays = rng.choice([0, 0, 0.1])
        """How often a value is given that was sent elsewhere or by nobody, or cannot be read."""
        self._at: dict[tuple[str, str], int] = {}  # by member and partition: where it polls next
        self._lines: list[tuple[int, float, Op]] = []
        self._ops = 0
        for name, count in self.records.items():
            for nth in range(count):
                for more in sorted({0, self._cut}):
                    self._send(name, nth + more, nth)
        for group in ("g", "h")[: rng.choice([1, 1, 1, 2])]:
            kind = "stuck" if rng.random() < 0.1 else self.promise.kind
            if kind == "stuck":
                self._member(group, "join", at=rng.randint(0, 9), member="m1")
                for at in range(0, self.until, rng.choice([3, 3, 4, 11])):
                    self._member(group, "poll", at=at, member="m1")
            for _ in range(rng.choice([3, 8, 20])):
                self._member(group, rng.choices([*WEIGHTS[kind]], [*WEIGHTS[kind].values()])[0])
            if rng.random() < 0.85:
                self._drain(group)

        for name in self.partitions if rng.random() < 0.3 else ():
            self._read(name)

    @property
    def lines(self) -> list[Op]:
        """The lines in the order of time, those of one time in any that a history can have."""
        return [op for _, _, op in sorted(self._lines, key=lambda line: line[:2])]

    def _op(self, f: OpKind, begin: int, end: int, asked: Any, said: Any, how: str = "") -> None:
        how = how or self.rng.choices([*OUTCOMES], [*OUTCOMES.values()])[0]
        base: dict[str, Any] = {"op": self._ops, "process": self._ops, "client": "c", "f": f}
        self._ops += 1
        first, last = sorted((self.rng.random(), self.rng.random()))
        begun = Op(t_us=begin * MS, type="invoke", **base, **asked)
        self._lines.append((begin, first, begun))
        if how in ("ok", "info", "fail"):
            partly = how == "info" and f == "poll" and self.rng.random() < 0.3
            told = said if how == "ok" or partly else {}
            ended = Op(t_us=end * MS, type=how, **base, **{**asked, **told})
            self._lines.append((end, last, ended))

    def _when(self, at: int = -1) -> tuple[int, int]:
        begin = self.rng.randint(0, self.until) if at < 0 else at
        return begin, begin + self.rng.choice([0, 1, 1, 2, 5, self.until // 2])

    def _value(self, partition: str, nth: int) -> int:
        return 100 * (1 + PARTITIONS.index(partition)) + nth

    def _send(self, partition: str, nth: int, offset: int) -> None:
        asked = Send(partition=partition, value=self._value(partition, nth))
        stated = self.has_offsets and self.rng.random() < 0.8
        known = Send(partition=partition, value=asked.value, offset=offset) if stated else asked
        self._op("send", *self._when(), {"sends": (asked,)}, {"sends": (known,)})

    def _read(self, partition: str) -> None:
        """Add a final read of the first records, or of all."""
        begin, end = self._when(self.rng.choice([self.until // 2, self.until]))
        count = self.rng.randint(0, self.records[partition])
        runs = (RecordRun(0, self._value(partition, 0), count),) if count else ()
        read = Read(partition=partition, start=0, records=runs)
        asked = {"reads": (Read(partition=partition, start=0),), "final": True}
        self._op("poll", begin, end, asked, {"reads": (read,)}, "ok")

    def _some(self) -> list[str]:
        return self.rng.sample(self.partitions, self.rng.randint(1, len(self.partitions)))

    def _run(self, member: str, partition: str, *, polled: bool) -> DeliveredRun:
        """Return records: mostly those behind the ones that the member polled last, else any."""
        rng, most = self.rng, self.records[partition]
        after = min(self._at.get((member, partition), 0) + rng.choice([0, 0, 1, 1]), most - 1)
        begin = after if polled and rng.random() < 0.5 else rng.randrange(most)
        count = rng.randint(1, min(3, most - begin))
        self._at[member, partition] = begin + count
        number = rng.randint(0, 8) if self.has_ids and polled and rng.random() < 0.8 else -1
        times = rng.choice([0, 1, 1, 2, 3]) if polled else 0
        offset = begin if self.has_offsets else -1
        value = self._value(partition, begin + rng.choice([0, self._cut]))
        if rng.random() < self._strays:
            value = rng.choice([self._value(rng.choice(PARTITIONS), begin), 900 + begin, -7])
        return DeliveredRun(value, count, offset, number, times)

    def _records(self, member: str, *, polled: bool = True) -> tuple[Delivered, ...]:
        of = {name: range(self.rng.choice([1, 1, 2])) for name in self._some()}
        runs = {
            n: tuple(self._run(member, n, polled=polled) for _ in each) for n, each in of.items()
        }
        return tuple(Delivered(partition=name, records=each) for name, each in runs.items())

    def _positions(self, lowest: int = -1) -> tuple[GroupPosition, ...]:
        at = {name: self.rng.randint(lowest, self.records[name]) for name in self._some()}
        return tuple(GroupPosition(partition=name, offset=each) for name, each in at.items())

    def _member(self, group: str, f: OpKind, *, at: int = -1, member: str = "") -> None:
        """Add any operation of a member."""
        rng, (begin, end) = self.rng, self._when(at)
        member = member or rng.choice(["m1", "m2", "m3"])
        asked: dict[str, Any] = {"group": group, "member": member}
        said: dict[str, Any] = {}
        epoch = rng.choice([-1, 0, 1, 1, 2, 2, 3, 4])
        if f == "poll" and rng.random() < 0.8:
            since = {"since_us": rng.randint(max(0, begin - 10), begin) * MS}
            said = {"deliveries": self._records(member), **(since if rng.random() < 0.3 else {})}
        elif f in ("ack", "nack"):
            asked["deliveries"] = self._records(member, polled=False)
            asked["requeue"] = f == "ack" or rng.random() < 0.6
        elif f == "join":
            asked["partitions"], said = self.partitions, {"epoch": epoch}
        elif f == "assign":
            asked |= {"epoch": epoch, "partitions": tuple(self._some())}
            said = {"positions": self._positions()} if rng.random() < 0.6 else {}
        elif f == "commit":
            asked |= {"epoch": epoch, "positions": self._positions(0)}
        elif f == "position":
            asked |= {"epoch": epoch, "final": rng.random() < 0.4}
            said = {"positions": self._positions()}
        elif f == "leave":
            f = rng.choice(["leave", "crash"])
        sure = f in ("assign", "position", "leave", "crash")
        self._op(f, begin, end, asked, said, rng.choice(["ok"] * 5 + ["fail"]) if sure else "")

    def _drain(self, group: str) -> None:
        """Add final polls, perhaps of a member of the storm, and perhaps a final fetch."""
        rng, span = self.rng, self.promise.ack_wait_ms + self.promise.redelivery_ms
        at = rng.choice([self.until // 2, self.until, 2 * self.until])
        for _ in range(rng.randint(1, 6)):
            member, lasts = rng.choice(["m1", "d"]), rng.choice([0, 1, 3])
            said = {"deliveries": self._records(member)} if rng.random() < 0.25 else {}
            asked = {"group": group, "member": member, "final": True}
            how = rng.choices(["ok", "info", "fail"], [20, 1, 1])[0]
            self._op("poll", at, at + lasts, asked, said, how)
            at += rng.choice([1, lasts, span // 3, span // 2, span + rng.choice([0, 0, 1])])
        if rng.random() < 0.6:
            asked = {"group": group, "member": "x", "final": True}
            self._op("position", at, at + 1, asked, {"positions": self._positions()}, "ok")
