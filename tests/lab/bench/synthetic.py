"""Makes histories of any size, as the Parquet tables that the checker reads, for the bench.

A history is that of a correct log: producers send to keys drawn at random, a record lands between
the invocation and the acknowledgement of its send, consumers read each key from its beginning in
polls of a few records, and new ones read it all again at the end. Some sends end unknown, some are
refused. Anomalies are then injected (`anomaly_injection.py`). A history is made in parts of
`STRETCH_OPS` operations, so memory grows by only one value per record."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from harness.formats.history import VALUES_PER_PROCESS
from tests.lab.bench.anomaly_injection import AnomalyInjector, InjectedAnomaly
from tests.lab.bench.synthetic_files import TableWriter

I64 = npt.NDArray[np.int64]

STRETCH_OPS: Final = 1_000_000
_SEND_EVERY_US: Final = 100
_PRODUCERS: Final = 50
_LATENCY_US: Final = (500, 4_000)  # a producer sends every 5 ms, so it never overlaps itself
_POLL_US: Final = 300
_LAG_US: Final = 10_000
_ORIGIN_US: Final = 1_000_000
_FIRST_CONSUMER: Final = 1_000
_FIRST_RETIRED: Final = 1 << 32  # a send of unknown outcome is the last of a process of its own
_UNKNOWN, _REFUSED = 0.005, 0.005
OK, INFO, FAIL = 0, 1, 2


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


class SendRows(NamedTuple):
    """Sends, one per row, with times in us. `offset` is the record's (-1: not in the log), `stated`
    the acknowledgement's (-1: none), `landed_us` the time of the append."""

    t0: I64
    t1: I64
    process: I64
    key: I64
    value: I64
    outcome: I64
    offset: I64
    stated: I64
    landed_us: I64


class PollRows(NamedTuple):
    """Polls of one key by several consumers, one per row, and the records that they returned. In
    the `record_` columns there is one row per record; `record_poll` is the row of its poll."""

    t0: I64
    t1: I64
    process: I64
    start: I64
    hw: I64
    record_poll: I64
    record_offset: I64
    record_value: I64


class Maker:
    """Makes one history, part by part, in a run folder."""

    def __init__(self, size: Size, folder: Path) -> None:
        self.size = size
        self.folder = folder
        self.names = tuple(f"key-{k:02}" for k in range(size.keys))
        self.random = np.random.default_rng(size.seed)
        self.injector = AnomalyInjector(size.anomalies, size.keys)
        self.writer = TableWriter(folder, self.names)
        self.ends = np.zeros(size.keys, np.int64)
        self.values: list[list[I64]] = [[] for _ in range(size.keys)]
        self.busy_until = np.zeros((size.keys, size.poll_records), np.int64)
        self.sent = 0

    def make(self) -> Made:
        """Write the tables and run.json into the folder, and injected.json beside it."""
        total = self.size.ops // 2
        step = min(STRETCH_OPS // 2, max(total // 2, 1))
        while self.sent < total:
            self._stretch(min(step, total - self.sent))
        wrote_until_us = _ORIGIN_US + self.sent * _SEND_EVERY_US + _LATENCY_US[1]
        end_us = self._final_reads(int(max(wrote_until_us, self.busy_until.max())) + _LAG_US)
        made = self.writer.close()
        self._about(wrote_until_us, end_us)
        injected = self.injector.injected()
        (self.folder / "injected.json").write_bytes(msgspec.json.encode(injected))
        return Made(made["ops"], made["sends"], made["polls"], made["reads"], injected)

    def _stretch(self, count: int) -> None:
        sends = self._sends(count)
        polls = {}
        for key in range(self.size.keys):
            rows = np.flatnonzero((sends.key == key) & (sends.offset >= 0))
            rows = rows[np.argsort(sends.offset[rows])]
            values = sends.value[rows]
            self.values[key].append(values)
            polls[key] = self._polls(key, sends.offset[rows], values, sends.landed_us[rows])
        sends, polls = self.injector.apply(
            sends, polls, last=self.sent + count >= self.size.ops // 2
        )
        self.sent += count
        self.writer.write(sends, polls, final=False)

    def _sends(self, count: int) -> SendRows:
        """Return the next sends of all producers."""
        nth = np.arange(self.sent, self.sent + count)
        t0 = _ORIGIN_US + nth * _SEND_EVERY_US
        latency = self.random.integers(*_LATENCY_US, count)
        landed_us = t0 + latency // 2
        process = nth % _PRODUCERS + 1
        key = self._keys(count)
        chance = self.random.random(count)
        outcome = np.where(chance < _UNKNOWN, INFO, np.where(chance > 1 - _REFUSED, FAIL, OK))
        offset = np.full(count, -1, np.int64)
        landed = np.flatnonzero(outcome != FAIL)
        order = landed[np.lexsort((nth[landed], landed_us[landed], key[landed]))]
        keys, starts, counts = np.unique(key[order], return_index=True, return_counts=True)
        place = np.arange(len(order)) - np.repeat(starts, counts)
        offset[order] = place + np.repeat(self.ends[keys], counts)
        self.ends[keys] += counts
        return SendRows(
            t0,
            t0 + latency,
            np.where(outcome == INFO, _FIRST_RETIRED + nth, process),
            key,
            process * VALUES_PER_PROCESS + nth // _PRODUCERS,
            outcome,
            offset,
            np.where(outcome == OK, offset, -1),
            landed_us,
        )

    def _keys(self, count: int) -> I64:
        keys = self.random.integers(0, self.size.keys, count)
        if self.size.hot:
            keys = np.where(self.random.random(count) < self.size.hot, 0, keys)
        return keys

    def _polls(self, key: int, offset: I64, value: I64, landed_us: I64) -> PollRows:
        """Let all consumers but the last read these records in polls without gaps."""
        size = self.size.poll_records
        first = np.arange(0, len(offset), size)
        after = np.minimum(first + size, len(offset))
        parts = []
        for consumer in range(size - 1):
            due = landed_us[after - 1] + _LAG_US + consumer
            # One after another: a poll that is due too early waits for those before it.
            wait = np.arange(len(first)) * (_POLL_US + 1)
            due = np.maximum(due, self.busy_until[key, consumer] + 1)
            t0 = np.maximum.accumulate(due - wait) + wait if len(first) else due
            if len(first):
                self.busy_until[key, consumer] = t0[-1] + _POLL_US
            known = np.searchsorted(landed_us, t0 - _POLL_US)
            process = np.full(len(first), self.process(key, consumer))
            base = int(offset[0]) if len(offset) else 0
            hw = base + np.maximum(known, after)
            parts.append((t0, t0 + _POLL_US, process, offset[first], hw))
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        return _with_records(columns, np.tile(after - first, size - 1), offset, value)

    def process(self, key: int, consumer: int) -> int:
        """Return the process that reads a key as this consumer; the last reads finally."""
        return _FIRST_CONSUMER + key * self.size.poll_records + consumer

    def _final_reads(self, begin_us: int) -> int:
        """Fresh consumers read every key from 0, a stretch of offsets at a time."""
        size, at = self.size.poll_records, np.zeros(self.size.keys, np.int64)
        t_us, ends = np.full(self.size.keys, begin_us), self.ends
        for stretch in range(max(map(len, self.values))):
            polls = {}
            for key in range(self.size.keys):
                value = self.injector.finally_read(key, int(at[key]), self.values[key][stretch])
                self.values[key][stretch] = value[:0]
                offset = at[key] + np.arange(len(value))
                first = np.arange(0, len(value), size)
                length = np.minimum(first + size, len(value)) - first
                t0 = t_us[key] + np.arange(len(first)) * (_POLL_US + 1)
                process = np.full(len(first), self.process(key, size - 1))
                hw = np.full(len(first), ends[key])
                columns = [t0, t0 + _POLL_US, process, offset[first], hw]
                polls[key] = _with_records(columns, length, offset, value)
                at[key] += len(value)
                t_us[key] += len(first) * (_POLL_US + 1)
            self.writer.write(None, polls, final=True)
        return int(t_us.max())

    def _about(self, wrote_until_us: int, end_us: int) -> None:
        """Return the description of the run."""
        heal_us = _ORIGIN_US + (wrote_until_us - _ORIGIN_US) * 9 // 10
        about: Mapping[str, Any] = {
            "format": 2,
            "run": self.folder.name,
            "state": "finished",
            "protocol": "synthetic",
            "partitions": {name: [] for name in self.names},
            "phases": {
                "start_us": 1,
                "storm_us": _ORIGIN_US,
                "heal_us": heal_us,
                "recovered_us": heal_us,
                "in_sync_us": heal_us,
                "stop_writing_us": wrote_until_us,
                "final_us": wrote_until_us,
                "end_us": end_us,
            },
        }
        (self.folder / "run.json").write_bytes(msgspec.json.encode(about))


def _with_records(columns: list[I64], length: I64, offset: I64, value: I64) -> PollRows:
    """Add polls of successive records: `length` each, the same records for each consumer."""
    poll = np.repeat(np.arange(len(length)), length)
    times = len(poll) // len(offset) if len(offset) else 0
    t0, t1, process, start, hw = columns
    return PollRows(t0, t1, process, start, hw, poll, np.tile(offset, times), np.tile(value, times))


def make_history(size: Size, folder: Path) -> Made:
    """Make a run folder that holds a history of this size, as tables only."""
    folder.mkdir(parents=True, exist_ok=True)
    return Maker(size, folder).make()
