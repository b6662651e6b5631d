"""Makes histories of any size, as the Parquet tables that the checker reads, for the bench.

A history is that of a correct log: producers send to keys drawn at random, a record lands between
the invocation and the acknowledgement of its send, consumers read each key from its beginning in
polls of a few records, and new ones read it all again at the end. Some sends end unknown, some are
refused. A stretch of operations is drawn once and repeated until there are enough; anomalies are
injected into the first one (`anomaly_injection.py`)."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import structs

from harness.formats.history import (
    VALUES_PER_PROCESS,
    Delivered,
    DeliveredRun,
    Op,
    Read,
    RecordRun,
    Send,
    encode,
)
from tests.lab.bench.anomaly_injection import InjectedAnomaly, check_names, inject
from tests.lab.bench.repeated_tables import RepeatedTables

STRETCH_SENDS: Final = 5_000
ORIGIN_US: Final = 1_000_000
_SEND_EVERY_US: Final = 100
_PRODUCERS: Final = 50
_LATENCY_US: Final = (500, 4_000)  # a producer sends every 5 ms, so it never overlaps itself
_POLL_US: Final = 300
_LAG_US: Final = 10_000
_FIRST_CONSUMER: Final = 1_000
_FIRST_RETIRED: Final = 1 << 32  # a send of unknown outcome is the last of a process of its own
_OUTCOMES: Final = ["ok"] * 198 + ["info", "fail"]
_NODES: Final = ("n1", "n2", "n3")


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a history: about `ops` operations, half of them polls of `poll_records` records.
    `hot`: the first key's share of the sends; 0: all are equal. `anomalies` are injected."""

    ops: int
    keys: int = 20
    poll_records: int = 5
    seed: int = 1
    hot: float = 0.0
    anomalies: tuple[str, ...] = ()


class Made(NamedTuple):
    """A generated history: its numbers of operations and records, and its injected anomalies."""

    ops: int
    sends: int
    polls: int
    records_read: int
    injected: tuple[InjectedAnomaly, ...]


@dataclass(slots=True)
class Did:
    """An operation on one key. `records` has the offsets and values that a poll returned, or that a
    member of a group settles. Of a send, `at` is the place of its record in the log and `offset`
    the acknowledged one (-1: none)."""

    t0_us: int
    t1_us: int
    process: int
    key: int
    f: Any
    outcome: Any = "ok"
    value: int = -1
    at: int = -1
    offset: int = -1
    landed_us: int = 0
    start: int = -1
    hw: int = -1
    records: list[tuple[int, int]] = field(default_factory=list)
    times: int = 0
    client: str = ""
    final: bool = False


class Maker:
    """Makes one history, stretch by stretch."""

    def __init__(self, size: Size) -> None:
        check_names(size.anomalies, size.keys)
        self.size = size
        self.names = tuple(f"key-{k:02}" for k in range(size.keys))
        rng = random.Random(size.seed)
        sends = size.ops // 2
        self.times = max(sends // STRETCH_SENDS, 1)
        self.count = sends if self.times == 1 else sends // self.times // _PRODUCERS * _PRODUCERS
        self.drawn = [
            (
                0 if rng.random() < size.hot else rng.randrange(size.keys),
                rng.randrange(*_LATENCY_US),
                rng.choice(_OUTCOMES),
            )
            for _ in range(self.count)
        ]
        self.landed = [0] * size.keys
        self.period_us = 0
        self.injected: list[InjectedAnomaly] = []
        first = self.stretch(0)
        self.ops, self.first_ops = len(first), len(self.begun())
        self.period_us = max(each.t1_us for each in first) + 1 - ORIGIN_US
        self.end_us = ORIGIN_US + self.times * self.period_us + _LAG_US

    def stretch(self, n: int) -> list[Did]:
        """Return the n-th repetition."""
        landed: list[list[Did]] = [[] for _ in self.names]
        sends = [self._send(n, i) for i in range(self.count)]
        for each in sorted(sends, key=lambda send: send.landed_us):
            if each.outcome != "fail":
                each.at = n * self.landed[each.key] + len(landed[each.key])
                landed[each.key].append(each)
            each.offset = each.at if each.outcome == "ok" else -1
        if not n:
            self.landed = [*map(len, landed)]
        return sends + [did for own in landed for did in self.readers(own)]

    def _send(self, n: int, i: int) -> Did:
        key, latency_us, outcome = self.drawn[i]
        nth = n * self.count + i
        t0_us = ORIGIN_US + n * self.period_us + i * _SEND_EVERY_US
        producer = nth % _PRODUCERS + 1
        return Did(
            *(t0_us, t0_us + latency_us),
            _FIRST_RETIRED + nth if outcome == "info" else producer,
            *(key, "send", outcome),
            value=producer * VALUES_PER_PROCESS + nth // _PRODUCERS,
            landed_us=t0_us + latency_us // 2,
            client=f"p{producer}",
        )

    def readers(self, landed: list[Did]) -> Iterator[Did]:
        """Let all consumers of a key but the last read these records in polls without gaps."""
        times_us = [each.landed_us for each in landed]
        for consumer in range(self.size.poll_records - 1):
            free_us = 0
            for first in range(0, len(landed), self.size.poll_records):
                batch = landed[first : first + self.size.poll_records]
                # A poll that is due too early waits for those before it.
                t0_us = max(batch[-1].landed_us + _LAG_US + consumer, free_us)
                free_us = t0_us + _POLL_US + 1
                known = max(bisect_right(times_us, t0_us - _POLL_US), first + len(batch))
                yield self._poll(t0_us, batch, consumer, landed[0].at + known)

    def _poll(self, t0_us: int, batch: list[Did], consumer: int, hw: int) -> Did:
        process = self._consumer(key := batch[0].key, consumer)
        return Did(
            *(t0_us, t0_us + _POLL_US, process, key, "poll"),
            client=f"c{process}",
            start=batch[0].at,
            hw=hw,
            records=[(each.at, each.value) for each in batch],
        )

    def _consumer(self, key: int, consumer: int) -> int:
        """Return the process that reads a key as this consumer; the last reads finally."""
        return _FIRST_CONSUMER + key * self.size.poll_records + consumer

    def begun(self) -> list[Did]:
        """Return the first stretch, with the anomalies in it."""
        did = self.stretch(0)
        self.injected = []
        for key, name in enumerate(self.size.anomalies):
            found = inject(name, did, key)
            self.injected += (InjectedAnomaly(self.names[key], *each) for each in found)
        return did

    def finals(self, n: int, did: Iterable[Did]) -> Iterator[Did]:
        """Yield the reads of fresh consumers, who get of a stretch what the last consumer got."""
        last = self.size.poll_records - 2
        longest = max(self.landed) // self.size.poll_records + 1
        free_us = [self.end_us + n * longest * (_POLL_US + 1)] * self.size.keys
        for each in did:
            if each.process == self._consumer(each.key, last):
                t0_us, process = free_us[each.key], each.process + 1
                free_us[each.key] += _POLL_US + 1
                made = replace(each, t0_us=t0_us, t1_us=t0_us + _POLL_US, process=process)
                made.hw, made.client = self.landed[each.key] * self.times, f"c{process}"
                made.final = True
                yield made

    def lines(self, n: int) -> list[Op]:
        """Return the lines of the n-th stretch; of the first after the last, the final reads."""
        final, n = n >= self.times, n % self.times
        did = self.stretch(n) if n else self.begun()
        if not final:
            return self.told(did, self._before(n))
        did = [*self.finals(n, did)]
        return self.told(did, self._before(self.times) + n * len(did))

    def _before(self, n: int) -> int:
        """Return how many operations there are before the n-th stretch."""
        return self.first_ops + (n - 1) * self.ops if n else 0

    def told(self, did: Iterable[Did], first: int) -> list[Op]:
        """Return operations as lines, numbered from `first` in the order of their invocation."""
        ordered = sorted(did, key=lambda each: each.t0_us)
        told = [line for n, each in enumerate(ordered, first) for line in self._told(n, each)]
        return sorted(told, key=lambda line: line.t_us)

    def _told(self, number: int, did: Did) -> tuple[Op, Op]:
        """Return an operation as its invocation and its completion."""
        asked: dict[str, Any] = {}
        said: dict[str, Any] = {}
        name = self.names[did.key]
        if did.f == "send":
            asked = {"sends": (Send(partition=name, value=did.value),)}
            said = {"sends": (Send(partition=name, value=did.value, offset=did.offset),)}
        elif not did.times:
            read = Read(partition=name, start=did.start)
            runs = tuple(RecordRun(*record) for record in did.records)
            asked = {"reads": (read,)}
            node = _NODES[did.key % len(_NODES)]
            said = {"reads": (structs.replace(read, records=runs, hw=did.hw, node=node),)}
        else:
            asked = {"group": "g", "member": "m"}
            asked["partitions"] = self.names if did.f == "join" else ()
            given = tuple(DeliveredRun(v, 1, at, -1, did.times) for at, v in did.records)
            settles = {"deliveries": (Delivered(partition=name, records=given),) * bool(given)}
            said, asked = settles, asked | (settles if did.f == "ack" else {})
        common = {"op": number, "process": did.process, "client": did.client, "f": did.f}
        common |= {"final": did.final} | asked
        begun = Op(t_us=did.t0_us, type="invoke", **common)
        return begun, Op(t_us=did.t1_us, type=did.outcome, **common | said)

    def write_tables(self, folder: Path) -> dict[str, int]:
        """Write the tables; return the number of rows of each."""
        made = RepeatedTables(folder, self.names)
        for first in (0, self.times):
            made.append(self.lines(first))
            made.repeat(lambda n, first=first: self.lines(first + n), 1, self.times)
        return made.close()

    def about(self) -> dict[str, Any]:
        """Return what run.json has besides."""
        heal_us, wrote_us = self.end_us * 9 // 10, self.end_us - _LAG_US
        phases = {"start_us": 1, "storm_us": ORIGIN_US, "end_us": self._ended_us()}
        phases |= dict.fromkeys(("heal_us", "recovered_us", "in_sync_us"), heal_us)
        return {"phases": phases | dict.fromkeys(("stop_writing_us", "final_us"), wrote_us)}

    def _ended_us(self) -> int:
        return self.lines(2 * self.times - 1)[-1].t_us

    def make(self, folder: Path) -> Made:
        """Write a run folder with tables only."""
        rows = self.write_tables(folder)
        self.describe(folder)
        counts = rows["ops"], rows["sends"], rows["ops"] - rows["sends"]
        return Made(*counts, rows.get("reads", 0), tuple(sorted(self.injected)))

    def describe(self, folder: Path) -> None:
        """Write run.json."""
        about = {"format": 2, "run": folder.name, "state": "finished", "protocol": "synthetic"}
        about["partitions"] = {name: [] for name in self.names}
        (folder / "run.json").write_bytes(msgspec.json.encode(about | self.about()))

    def write_lines(self, folder: Path) -> None:
        """Write the same history as a run folder with lines."""
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "history.jsonl").open("wb") as out:
            for n in range(2 * self.times):
                out.writelines(map(encode, self.lines(n)))
        self.describe(folder)


def make_history(size: Size, folder: Path) -> Made:
    """Make a run folder that holds a history of this size, as tables only."""
    return Maker(size).make(folder)
