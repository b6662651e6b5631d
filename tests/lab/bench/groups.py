"""Makes histories of a consumer group of any size, as `synthetic.py` does, for the bench.

Members poll two records at a time, soon after they landed, and ack them; one poll in twenty is not
acked, and its records come again later. At the end is a quiet drain. In three partitions something
is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow.parquet as pq

from checker.evidence.facts import ENOUGH_SETTLED, Shape
from checker.ingest import tables
from node.formats.json_input import read_file
from tests.lab.bench.anomaly_injection import InjectedAnomaly
from tests.lab.bench.synthetic import I64, STRETCH_OPS, Made, Maker, PollRows, SendRows, Size
from tests.lab.bench.synthetic_files import TableWriter

_GROUP: Final = "group:g"
_AT_ONCE: Final = 2
_LAG_US, _POLL_US, _THINK_US = 10_000, 300, 500
_WAIT_US, _QUIET_US = 2_100_000, 10_000_000
_UNSETTLED: Final = 20
_PROMISE: Final = {"ack_wait_ms": 2_000, "redelivery_ms": 5_000, "counts": True}
_WRONG: Final = {0: "acked-redelivered", 1: "not-redelivered", 2: "undelivered"}
"""What is wrong with one poll of a key."""
_KINDS: Final = ("poll", "ack", "join")
_POLL, _ACK, _JOIN = range(3)


class Ops(NamedTuple):
    """Operations of members, one per row. `first` and `count`: their records among all of the
    stretch, in the order of key and offset; `times`: how often these were delivered."""

    t0: I64
    t1: I64
    kind: I64
    key: I64
    first: I64
    count: I64
    times: I64

    def take(self, rows: I64, **changed: Any) -> Ops:
        return Ops(*(column[rows] for column in self))._replace(**changed)


class GroupMaker(Maker):
    """Makes one history of a group, part by part, in a run folder."""

    def __init__(self, size: Size, folder: Path) -> None:
        super().__init__(size, folder)
        self.writer = TableWriter(folder, self.names)
        where = folder / "tables/groups.parquet"
        self.writer._files["groups"] = pq.ParquetWriter(where, tables.SCHEMAS["groups"])
        self.writer._wrote |= {"groups": 0}
        self._parts, self.wrong = 0, list[InjectedAnomaly]()

    def make(self) -> Made:
        """Write the tables and run.json into the folder."""
        begin = np.full(1, 1_000)
        keys = np.arange(self.size.keys)
        self._write(None, _events(begin, begin + 10, _JOIN), keys, shared=True)
        while self.sent < self.size.ops // 2:
            self._stretch(min(STRETCH_OPS // 2, self.size.ops // 2 - self.sent))
        end_us = int(self._latest_us + _WAIT_US + _QUIET_US)
        drain = np.array([end_us, end_us + _QUIET_US])
        self._write(None, _events(drain, drain + _POLL_US, _POLL), keys, shared=True, final=True)
        made = self.writer.close()
        self._about(end_us, end_us + 2 * _QUIET_US)
        about = read_file(self.folder / "run.json", dict[str, Any])
        about["promise"] = {"groups": _PROMISE}
        about["phases"] = {"start_us": 1}
        (self.folder / "run.json").write_bytes(msgspec.json.encode(about))
        return Made(made["ops"], made["sends"], made["polls"], 0, tuple(self.wrong))

    def _stretch(self, count: int) -> None:
        sends = self._sends(count)
        landed = np.flatnonzero(sends.offset >= 0)
        landed = landed[np.lexsort((sends.offset[landed], sends.key[landed]))]
        key = sends.key[landed]
        place = np.arange(len(landed)) - np.searchsorted(key, key)
        first = np.flatnonzero(place % _AT_ONCE == 0)
        size = np.diff(np.append(first, len(landed)))
        t0 = sends.landed_us[landed[first + size - 1]] + _LAG_US
        polls = Ops(
            *(t0, t0 + _POLL_US, np.full(len(first), _POLL), key[first]),
            *(first, size, np.ones(len(first), np.int64)),
        )
        rows = np.arange(len(first))
        late = rows[rows % _UNSETTLED == 1]
        again = polls.take(late, t0=t0[late] + _WAIT_US, t1=t0[late] + _WAIT_US + _POLL_US)
        again = again._replace(times=np.full(len(late), 2))
        settled = [polls.take(rows[rows % _UNSETTLED != 1]), again]
        if not self.sent:
            settled = self._choose_wrong(sends, landed, settled)
        acks = [s._replace(t0=s.t1 + _THINK_US, t1=s.t1 + 2 * _THINK_US) for s in settled]
        acks = [a._replace(kind=np.full(len(a.t0), _ACK)) for a in acks]
        every = [polls, again, *acks]
        if not self.sent:
            every = self._wrong_polls(every)
        ops = Ops(*(np.concatenate(columns) for columns in zip(*every, strict=True)))
        self._latest_us = ops.t1.max()
        self.sent += count
        self._write(sends, ops, landed)

    def _choose_wrong(self, sends: SendRows, landed: I64, settled: list[Ops]) -> list[Ops]:
        """Choose a settled poll of each key where something is wrong, all of its sends confirmed;
        return the settled polls that are left."""
        self._at: dict[int, Ops] = {}
        once = settled[0]
        for key, name in _WRONG.items():
            sure = (once.key == key) & (once.count == _AT_ONCE)
            for n in range(_AT_ONCE):
                sure[sure] &= sends.stated[landed[once.first[sure] + n]] >= 0
            row = np.flatnonzero(sure)[:1]
            self._at[key] = once.take(row)
            offset = int(sends.offset[landed[once.first[row[0]]]])
            self.wrong.append(InjectedAnomaly(self.names[key], name, offset, _AT_ONCE))
            if name != "acked-redelivered":
                once = once.take(np.delete(np.arange(len(once.t0)), row))
        return [once, *settled[1:]]

    def _wrong_polls(self, every: list[Ops]) -> list[Ops]:
        """Return all operations without a poll that is left out, and with one that comes again."""
        polls, undelivered = every[0], self._at[2]
        kept = np.flatnonzero(polls.first != undelivered.first[0])
        back = self._at[0]
        t0 = back.t0 + _QUIET_US
        more = back._replace(t0=t0, t1=t0 + _POLL_US, times=np.full(1, 2))
        return [polls.take(kept), more, *every[1:]]

    # -- tables

    def _process(self, number: I64) -> I64:
        """Return the processes of operations of this part: that of one long before is free."""
        return 10_000 + 1_000 * self._parts + number % 1_000

    def _write(
        self,
        sends: SendRows | None,
        ops: Ops,
        landed: I64,
        *,
        shared: bool = False,
        final: bool = False,
    ) -> None:
        """Append one part. `shared`: every partition must know of these operations."""
        self._parts += 1
        none, before = np.zeros(0, np.int64), self.writer._next_op
        t0 = np.concatenate((sends.t0 if sends else none, ops.t0))
        number = np.empty(len(t0), np.int64)
        number[np.argsort(t0, kind="stable")] = before + np.arange(len(t0))
        number = number[len(t0) - len(ops.t0) :]
        polls = PollRows(ops.t0, ops.t1, self._process(number), none, none, none, none, none)
        self.writer.write(sends, {0: polls}, final=final)
        self._groups(sends, ops, number, landed, shared=shared, final=final)

    def _groups(
        self,
        sends: SendRows | None,
        ops: Ops,
        number: I64,
        landed: I64,
        *,
        shared: bool,
        final: bool,
    ) -> None:
        """Append the rows of the table `groups`: of operations themselves, and of records."""
        own = np.flatnonzero((ops.kind != _ACK) | (np.cumsum(ops.kind == _ACK) <= ENOUGH_SETTLED))
        self._rows(ops, number, own, np.full(len(own), len(self.names)), final=final)
        for key in range(len(self.names)) if shared else ():
            self._rows(ops, number, own, np.full(len(own), key), final=final)
        if sends is None:
            return
        row = np.repeat(np.arange(len(ops.t0)), ops.count)
        step = np.arange(len(row)) - np.repeat(np.cumsum(ops.count) - ops.count, ops.count)
        of = landed[ops.first[row] + step]
        self._rows(ops, number, row, ops.key[row], step, sends.value[of], sends.offset[of])

    def _rows(
        self,
        ops: Ops,
        number: I64,
        row: I64,
        partition: I64,
        step: I64 | None = None,
        value: I64 | int = -1,
        offset: I64 | int = -1,
        *,
        final: bool = False,
    ) -> None:
        records = step is not None
        times = np.where(ops.kind == _POLL, ops.times, 0)[row]
        count = np.where(ops.kind == _JOIN, len(self.names), ops.count)[row]
        columns = {
            "run": self.folder.name,
            "op": number[row],
            "seq": 0 if step is None else step + 1,
            "partition": (partition, [*self.names, _GROUP]),
            "process": self._process(number[row]),
            "client": "c",
            "f": (ops.kind[row], _KINDS),
            "outcome": "ok",
            "group": "g",
            "member": "m",
            "epoch": -1,
            "invoke_us": ops.t0[row],
            "complete_us": ops.t1[row],
            "low_us": ops.t0[row],
            "final": final,
            "requeue": True,
            "shape": int(Shape.RECORDS if records else Shape.OPERATION),
            "value": value,
            "count": 1 if records else count,
            "offset": offset,
            "id": -1,
            "times": times,
            "pending": -1,
        }
        self.writer._write("groups", len(row), columns, np.argsort(number[row], kind="stable"))


def _events(t0: I64, t1: I64, kind: int) -> Ops:
    """Return operations without records, of the member of the first key."""
    zeros = np.zeros(len(t0), np.int64)
    return Ops(t0, t1, zeros + kind, zeros, zeros, zeros, zeros)
