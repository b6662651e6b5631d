"""The client operations of a run as columns, read in one pass over `history.jsonl`.

Columns (NumPy arrays) keep a run of a million operations in tens of megabytes. What the page
shows in words (witness operations, what was acknowledged and read in the grids' windows) is
picked out during the same pass, so the file is read once and never held.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from harness.history import Op
from reports import words
from reports.files import Notes, json_lines

OK: Final = 0
FAIL: Final = 1
INFO: Final = 2
OUTCOMES: Final = ("ok", "fail", "info")
_CODE: Final = {"ok": OK, "fail": FAIL, "info": INFO}
WRITES: Final = ("send", "txn")

Ints = npt.NDArray[np.int64]
_COLUMNS: Final = (
    "op", "process", "client", "kind", "outcome", "invoked_us", "completed_us", "partition",
    "value", "count", "offset", "error", "final",
)  # fmt: skip


@dataclass(frozen=True)
class Seen:
    """One value at one offset as a client saw it: acknowledged by, or read in, operation `op`."""

    value: int
    op: int
    client: str
    t_us: int
    epoch: int = -1


@dataclass
class Focus:
    """A window of one partition's offsets, [low, high), and what clients saw in it.

    `acked`, `read` (during the storm) and `final` map an offset to the distinct values seen there.
    """

    partition: str
    low: int
    high: int
    acked: dict[int, list[Seen]] = field(default_factory=dict)
    read: dict[int, list[Seen]] = field(default_factory=dict)
    final: dict[int, list[Seen]] = field(default_factory=dict)

    def note(self, into: dict[int, list[Seen]], first: int, count: int, seen: Seen) -> None:
        """Keep the part of records first..first+count-1 that lies in the window."""
        for offset in range(max(first, self.low), min(first + count, self.high)):
            value = seen.value + (offset - first) if seen.value >= 0 else seen.value
            cell = into.setdefault(offset, [])
            if all(known.value != value for known in cell):
                cell.append(Seen(value, seen.op, seen.client, seen.t_us, seen.epoch))


@dataclass(frozen=True)
class Operations:
    """All operations, one row each, ordered by invocation. Text columns are codes into tables.

    `completed_us` is -1 where no completion was recorded (counted as info). `partition` is that
    of the first send or read, `value` .. `count` the first batch sent or the records read.
    """

    clients: tuple[str, ...]
    kinds: tuple[str, ...]
    partitions: tuple[str, ...]
    errors: tuple[str, ...]
    op: Ints
    process: Ints
    client: Ints
    kind: Ints
    outcome: Ints
    invoked_us: Ints
    completed_us: Ints
    partition: Ints
    value: Ints
    count: Ints
    offset: Ints
    error: Ints
    final: Ints

    def __len__(self) -> int:
        return len(self.op)

    @property
    def writes(self) -> npt.NDArray[np.bool_]:
        """Which rows are sends (or transactions that send)."""
        codes = [i for i, name in enumerate(self.kinds) if name in WRITES]
        return np.array(np.isin(self.kind, codes), dtype=np.bool_)

    @property
    def acked(self) -> npt.NDArray[np.bool_]:
        """Which rows are acknowledged writes."""
        return self.writes & (self.outcome == OK)

    def last_us(self) -> int:
        """When the last recorded thing happened, 0 when nothing did."""
        if not len(self):
            return 0
        return int(max(self.invoked_us.max(), self.completed_us.max()))

    def title(self, row: int, zero_us: int) -> str:
        """One operation in one line, for tooltips."""
        kind, count = self.kinds[self.kind[row]], int(self.count[row])
        where = ""
        if self.partition[row] >= 0:
            where = words.clip(self.partitions[self.partition[row]], 60)
        what = f"{kind} {where}".strip()
        if kind in WRITES and self.value[row] >= 0:
            last = int(self.value[row]) + count - 1
            what += f" value {self.value[row]}" + (f"–{last}" if count > 1 else "")
            if self.offset[row] >= 0:
                what += f" at offset {self.offset[row]}"
        elif kind not in WRITES and count:
            what += f", {words.count(count, 'record')}"
        at = f"{(int(self.invoked_us[row]) - zero_us) / 1e6:.3f} s"
        if self.completed_us[row] < 0:
            took = "never completed"
        else:
            took = words.span(int(self.completed_us[row] - self.invoked_us[row]))
        error = self.errors[self.error[row]]
        return (
            f"#{self.op[row]} {words.clip(self.clients[self.client[row]], 40)}/{self.process[row]} {what}: "
            f"{OUTCOMES[self.outcome[row]]}{f' ({words.clip(error, 120)})' if error else ''}, "
            f"{at}, {took}"
        )


class _Table:
    """Texts as small integers, in order of first use."""

    def __init__(self, first: Sequence[str] = ()) -> None:
        self.codes: dict[str, int] = {text: i for i, text in enumerate(first)}

    def __getitem__(self, text: str) -> int:
        return self.codes.setdefault(text, len(self.codes))


class _Columns:
    """Growing columns of operations; `finish` turns them into `Operations`."""

    def __init__(self) -> None:
        self.columns = {name: array("q") for name in _COLUMNS}
        self.clients, self.kinds = _Table(), _Table()
        self.partitions, self.errors = _Table(), _Table([""])

    def add(self, invoked: Op, done: Op | None) -> None:
        """One operation; `done` is None where no completion was recorded."""
        seen = done or invoked
        partition, value, count, offset = "", -1, 0, -1
        if seen.sends or invoked.sends:
            sends = seen.sends or invoked.sends
            first = sends[0]
            partition, value, offset = first.partition, first.value, first.offset
            count = sum(send.count for send in sends)
        elif seen.reads or invoked.reads:
            reads = seen.reads or invoked.reads
            partition = reads[0].partition
            count = sum(run.count for read in reads for run in read.records)
        row = (
            invoked.op, invoked.process, self.clients[invoked.client], self.kinds[invoked.f],
            _CODE.get(done.type, INFO) if done else INFO, invoked.t_us, done.t_us if done else -1,
            self.partitions[partition] if partition else -1, value, count, offset,
            self.errors[done.error if done else ""], int(invoked.final or seen.final),
        )  # fmt: skip
        for column, number in zip(self.columns.values(), row, strict=True):
            column.append(number)

    def finish(self) -> Operations:
        """The columns in invocation order."""
        arrays = {k: np.array(v, dtype=np.int64) for k, v in self.columns.items()}
        order = np.argsort(arrays["invoked_us"], kind="stable")
        return Operations(
            clients=tuple(self.clients.codes), kinds=tuple(self.kinds.codes),
            partitions=tuple(self.partitions.codes), errors=tuple(self.errors.codes),
            **{k: v[order] for k, v in arrays.items()},
        )  # fmt: skip


def read(path: Path, foci: Iterable[Focus], notes: Notes) -> Operations:
    """Read `history.jsonl`, filling `foci` on the way. Bad and half lines are noted, not fatal."""
    by_partition: dict[str, list[Focus]] = {}
    for focus in foci:
        by_partition.setdefault(focus.partition, []).append(focus)
    columns, open_ops = _Columns(), dict[int, Op]()
    for op in json_lines(path, Op, notes, wanted=True):
        if op.type == "invoke":
            open_ops[op.op] = op
            continue
        invoked = open_ops.pop(op.op, op)
        columns.add(invoked, op)
        if op.type == "ok" and by_partition:
            _fill(by_partition, op)
    for left in open_ops.values():
        columns.add(left, None)
    return columns.finish()


def _fill(foci: dict[str, list[Focus]], op: Op) -> None:
    """Note in the grids' windows what a successful operation acknowledged or read."""
    for send in op.sends:
        for focus in foci.get(send.partition, ()):
            if send.offset >= 0:
                seen = Seen(send.value, op.op, op.client, op.t_us)
                focus.note(focus.acked, send.offset, send.count, seen)
    for part in op.reads:
        for focus in foci.get(part.partition, ()):
            into = focus.final if op.final else focus.read
            for run in part.records:
                seen = Seen(run.value, op.op, op.client, op.t_us, run.epoch)
                focus.note(into, run.offset, run.count, seen)
