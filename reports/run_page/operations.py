"""The client operations of a run as columns, read in one pass over `history.jsonl`.

Columns (NumPy arrays) keep a run of a million operations in tens of megabytes. What the page
shows in words (witness operations, what was acknowledged and read in the grids' windows) is
picked out during the same pass, so the file is read once and never held.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from harness.formats.history import Op
from reports import wording
from reports.run_page.files import Notes, numbered_lines

OK: Final = 0
FAIL: Final = 1
INFO: Final = 2
OUTCOMES: Final = ("ok", "fail", "info")
_CODE: Final = {name: code for code, name in enumerate(OUTCOMES)}
WRITES: Final = ("send", "txn")

Ints = npt.NDArray[np.int64]
_COLUMNS: Final = (
    "op",
    "process",
    "client",
    "kind",
    "outcome",
    "invoked_us",
    "completed_us",
    "partition",
    "value",
    "count",
    "offset",
    "error",
    "final",
)


@dataclass(frozen=True)
class Seen:
    """One value at one offset as a client saw it: acknowledged by, or read in, operation `op`."""

    value: int
    op: int
    client: str
    t_us: int
    epoch: int = -1
    node: str = ""


@dataclass
class LogWindow:
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
                cell.append(Seen(value, seen.op, seen.client, seen.t_us, seen.epoch, seen.node))


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
        return np.asarray(self.writes & (self.outcome == OK), dtype=np.bool_)

    def invoked(self, op: int) -> int:
        """When an operation was begun, -1 when it is not known."""
        rows = np.flatnonzero(self.op == op)
        return int(self.invoked_us[rows[0]]) if len(rows) else -1

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
            where = wording.clip(self.partitions[self.partition[row]], 60)
        what = f"{kind} {where}".strip()
        if kind in WRITES and self.value[row] >= 0:
            last = int(self.value[row]) + count - 1
            what += f" value {self.value[row]}" + (f"–{last}" if count > 1 else "")
            if self.offset[row] >= 0:
                what += f" at offset {self.offset[row]}"
        elif kind not in WRITES and count:
            what += f", {wording.count(count, 'record')}"
        at = f"{(int(self.invoked_us[row]) - zero_us) / 1e6:.3f} s"
        if self.completed_us[row] < 0:
            took = "never completed"
        else:
            took = wording.span(int(self.completed_us[row] - self.invoked_us[row]))
        error = wording.clip(self.errors[self.error[row]], 120)
        outcome = OUTCOMES[self.outcome[row]] + (f" ({error})" if error else "")
        who = f"{wording.clip(self.clients[self.client[row]], 40)}/{self.process[row]}"
        return f"#{self.op[row]} {who} {what}: {outcome}, {at}, {took}"


class _Table(dict[str, int]):
    """Texts as small integers, in order of first use."""

    def __missing__(self, text: str) -> int:
        self[text] = code = len(self)
        return code


class _OperationRows:
    """Growing rows of operations, kept flat; `finish` turns them into columns."""

    def __init__(self) -> None:
        self.flat = array("q")
        self.clients, self.kinds, self.partitions = _Table(), _Table(), _Table()
        self.errors = _Table({"": 0})

    def add(self, invoked: Op, done: Op | None) -> None:
        """One operation; `done` is None where no completion was recorded. A transaction that sends
        nothing counts as a poll: nobody has to keep anything of it."""
        seen = done or invoked
        kind: str = invoked.f
        if kind == "txn" and not (seen.sends or invoked.sends):
            kind = "poll"
        partition, value, count, offset = -1, -1, 0, -1
        if sends := seen.sends or invoked.sends:
            first = sends[0]
            partition, value, offset = self.partitions[first.partition], first.value, first.offset
            count = first.count if len(sends) == 1 else sum(send.count for send in sends)
        elif reads := seen.reads or invoked.reads:
            partition = self.partitions[reads[0].partition]
            count = sum([run.count for read in reads for run in read.records])
        self.flat.extend(
            (
                invoked.op,
                invoked.process,
                self.clients[invoked.client],
                self.kinds[kind],
                _CODE.get(done.type, INFO) if done else INFO,
                invoked.t_us,
                done.t_us if done else -1,
                partition,
                value,
                count,
                offset,
                self.errors[done.error] if done else 0,
                invoked.final or seen.final,
            )
        )

    def finish(self) -> Operations:
        """The columns in invocation order."""
        table = np.frombuffer(self.flat, dtype=np.int64).reshape(-1, len(_COLUMNS))
        table = table[np.argsort(table[:, _COLUMNS.index("invoked_us")], kind="stable")]
        columns = {name: np.ascontiguousarray(table[:, i]) for i, name in enumerate(_COLUMNS)}
        return Operations(
            clients=tuple(self.clients),
            kinds=tuple(self.kinds),
            partitions=tuple(self.partitions),
            errors=tuple(self.errors),
            **columns,
        )


def none() -> Operations:
    """No operation at all."""
    return _OperationRows().finish()


def read(
    path: Path,
    windows: Iterable[LogWindow],
    notes: Notes,
    lines_of: dict[int, tuple[int, int]] | None = None,
) -> Operations:
    """Read `history.jsonl`, filling `windows` on the way. Bad and half lines are noted, not fatal.

    Of the operations that are keys of `lines_of` the lines of begin and end are put there.
    """
    cited = {} if lines_of is None else lines_of
    by_partition: dict[str, list[LogWindow]] = {}
    for window in windows:
        by_partition.setdefault(window.partition, []).append(window)
    rows, open_ops = _OperationRows(), dict[int, Op]()
    for number, op in numbered_lines(path, Op, notes, wanted=True):
        if op.op in cited:
            begin, end = cited[op.op]
            cited[op.op] = (begin or number, end) if op.type == "invoke" else (begin, number)
        if op.type == "invoke":
            open_ops[op.op] = op
            continue
        rows.add(open_ops.pop(op.op, op), op)
        if op.type == "ok" and by_partition:
            _fill(by_partition, op)
    for left in open_ops.values():
        rows.add(left, None)
    return rows.finish()


def _fill(windows: dict[str, list[LogWindow]], op: Op) -> None:
    """Note in the grids' windows what a successful operation acknowledged or read."""
    for send in op.sends:
        for window in windows.get(send.partition, ()):
            if send.offset >= 0:
                seen = Seen(send.value, op.op, op.client, op.t_us)
                window.note(window.acked, send.offset, send.count, seen)
    for part in op.reads:
        for window in windows.get(part.partition, ()):
            into = window.final if op.final else window.read
            for run in part.records:
                seen = Seen(run.value, op.op, op.client, op.t_us, run.epoch, part.node)
                window.note(into, run.offset, run.count, seen)
