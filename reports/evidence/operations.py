"""The client operations of a run as columns, from the tables of its history.

Columns keep a run of a million operations in tens of megabytes. The values that clients saw in the
shown windows of logs are picked out of the tables in the same pass."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from checker.ingest.tables import Columns
from harness.formats.run_info import Phases
from reports import wording
from reports.evidence.tables import RunTables

OK: Final = 0
FAIL: Final = 1
INFO: Final = 2
OUTCOMES: Final = ("ok", "fail", "info")
WRITES: Final = ("send", "txn")
MOST_OPERATIONS: Final = 10_000_000
"""Of a longer history operations at equal distances are drawn."""

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


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
    """A window of one partition's offsets, [low, high), and the values that clients saw in it.
    `acked`, `read` (during the storm) and `final` (by final readers) map an offset to its distinct
    values."""

    partition: str
    low: int
    high: int
    acked: dict[int, list[Seen]] = field(default_factory=dict)
    read: dict[int, list[Seen]] = field(default_factory=dict)
    final: dict[int, list[Seen]] = field(default_factory=dict)

    def note(self, into: dict[int, list[Seen]], first: int, count: int, seen: Seen) -> None:
        """Add records first..first+count-1, of values that begin with `seen`, to `into`."""
        for offset in range(max(first, self.low), min(first + count, self.high)):
            value = seen.value + (offset - first) if seen.value >= 0 else seen.value
            cell = into.setdefault(offset, [])
            if all(known.value != value for known in cell):
                cell.append(Seen(value, seen.op, seen.client, seen.t_us, seen.epoch, seen.node))


@dataclass(frozen=True)
class AckGap:
    """The longest time without an acknowledged write; `partition` "" is all together."""

    partition: str
    start_us: int
    end_us: int

    @property
    def length_us(self) -> int:
        """The length of the gap in microseconds."""
        return self.end_us - self.start_us


@dataclass(frozen=True)
class Operations:
    """The operations, one row each, ordered by invocation. Text columns are codes into tables.

    `completed_us` is -1 if no completion was recorded (counted as info). `partition` is that of the
    first send or read, `value` .. `count` describe the first batch sent or the records read. The
    line columns hold the lines of the operation's begin and end in history.jsonl, 0 if unknown. In
    a very long run only one in `every` operations is here."""

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
    begin_line: Ints
    end_line: Ints
    every: int = 1

    def __len__(self) -> int:
        return len(self.op)

    @property
    def writes(self) -> Mask:
        """The rows that are sends (or transactions that send)."""
        codes = [i for i, name in enumerate(self.kinds) if name in WRITES]
        return np.array(np.isin(self.kind, codes), dtype=np.bool_)

    @property
    def acked(self) -> Mask:
        """The rows that are acknowledged writes."""
        return np.asarray(self.writes & (self.outcome == OK), dtype=np.bool_)

    def rows_of(self, ops: Collection[int]) -> dict[int, int]:
        """Return the row of each of these operation numbers that is here."""
        rows = np.flatnonzero(np.isin(self.op, list(ops)))
        return dict(zip(self.op[rows].tolist(), rows.tolist(), strict=True))

    def last_us(self) -> int:
        """Return the time of the last recorded event, 0 if there is none."""
        if not len(self):
            return 0
        return int(max(self.invoked_us.max(), self.completed_us.max()))

    def gaps(self, phases: Phases) -> dict[str, AckGap]:
        """Return the longest gap of each partition; key "" is all partitions together.

        A gap is looked for between the start of the storm and the end of writing; the time before a
        partition's first and after its last acknowledgement counts."""
        acked = self.acked
        if not acked.any():
            return {}
        start = phases.storm_us or int(self.invoked_us.min())
        stop = phases.stop_writing_us or int(self.completed_us[acked].max())
        made = {"": _longest("", self.completed_us[acked], start, stop)}
        for code, name in enumerate(self.partitions):
            times = self.completed_us[acked & (self.partition == code)]
            made[name] = _longest(name, times, start, stop)
        return made

    def title(self, row: int, zero_us: int) -> str:
        """Describe one operation in one line, for tooltips."""
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


def _longest(partition: str, times: Ints, start: int, stop: int) -> AckGap:
    inside = np.sort(times[(times > start) & (times < stop)])
    edges = np.concatenate(([start], inside, [max(start, stop)]))
    widest = int(np.argmax(np.diff(edges)))
    return AckGap(partition, int(edges[widest]), int(edges[widest + 1]))


class _Words(dict[str, int]):
    """Texts as small integers, in order of first use."""

    def __missing__(self, text: str) -> int:
        self[text] = code = len(self)
        return code

    def codes(self, table: Columns, name: str) -> Ints:
        codes, words = table[name]
        found: Ints = np.array([self[word] for word in words], np.int64)[codes]
        return found


def read(
    tables: RunTables, windows: Sequence[LogWindow] = (), cited: Collection[int] = ()
) -> Operations:
    """Read the operations, and fill `windows` with the values that clients saw in them. In a very
    long run only some operations are kept, but always those whose numbers are in `cited`."""
    every = max(1, -(-tables.number("ops") // MOST_OPERATIONS))
    words = {name: _Words() for name in ("clients", "kinds", "partitions")}
    errors = _Words({"": 0})
    parts: list[dict[str, Ints]] = [dict.fromkeys(_COLUMNS, np.zeros(0, np.int64))]
    for table in tables.rows("ops"):
        ended, invoked = table["complete_us"], table["invoke_us"]
        outcome, names = table["outcome"]
        code_of = [OUTCOMES.index(name) if name in OUTCOMES else INFO for name in names]
        op = table["op"]
        kept = (op % every == 0) | np.isin(op, list(cited)) if every > 1 else slice(None)
        found = {
            "op": op,
            "process": table["process"],
            "client": words["clients"].codes(table, "client"),
            "kind": words["kinds"].codes(table, "f"),
            "outcome": np.array(code_of, np.int64)[outcome],
            "invoked_us": np.where(invoked < 0, ended, invoked),
            "completed_us": ended,
            "sent": table["sent"],
            "polled": table["polled"],
            # Of an operation that did not end the table has an error of its own.
            "error": errors.codes(table, "error") * (ended >= 0),
            "begin_line": table["invoke_line"],
            "end_line": table["complete_line"],
        }
        parts.append({name: column[kept] for name, column in found.items()})
    made = {name: np.concatenate([part[name] for part in parts]) for name in _COLUMNS}
    order = np.argsort(made["invoked_us"], kind="stable")
    made = {name: column[order] for name, column in made.items()}
    first, is_write = _first_parts(tables, made["op"], words["partitions"], windows)
    sent, polled = made.pop("sent"), made.pop("polled")
    # A transaction that sends nothing counts as a poll: nobody has to keep anything of it.
    txn = words["kinds"].get("txn", -1)
    made["kind"][(made["kind"] == txn) & ~is_write] = words["kinds"]["poll"]
    columns: dict[str, Any] = {name: tuple(found) for name, found in words.items()} | first | made
    count = np.where(is_write, sent, polled)
    return Operations(**columns, errors=tuple(errors), count=count, every=every)


_COLUMNS: Final = (
    *("op", "process", "client", "kind", "outcome", "invoked_us", "completed_us"),
    *("sent", "polled", "error", "begin_line", "end_line"),
)


def _first_parts(
    tables: RunTables, op: Ints, partitions: _Words, windows: Sequence[LogWindow]
) -> tuple[dict[str, Ints], Mask]:
    """Return of each operation partition, value and offset of its first send, or the partition of
    its first read, and whether it sends; fill the windows."""
    by_op = np.argsort(op, kind="stable")
    found = {name: np.full(len(op), -1, np.int64) for name in ("partition", "value", "offset")}
    is_write = np.zeros(len(op), bool)
    for name, columns in (("sends", ("value", "offset")), ("reads", ())):
        for table in tables.rows(name):
            _fill(windows, table, name)
            first = np.flatnonzero(table["seq"] == 0)
            if name == "reads":
                first = first[table["idx"][first] == 0]
            wanted = table["op"][first]
            at = np.minimum(np.searchsorted(op[by_op], wanted), max(0, len(op) - 1))
            there = op[by_op[at]] == wanted if len(op) else np.zeros(len(wanted), bool)
            first, rows = first[there], by_op[at[there]]
            if name == "reads":
                first, rows = (each[~is_write[rows]] for each in (first, rows))
            else:
                is_write[rows] = True
            found["partition"][rows] = partitions.codes(table, "partition")[first]
            for column in columns:
                found[column][rows] = table[column][first]
    return found, is_write


def _fill(windows: Sequence[LogWindow], table: Columns, kind: str) -> None:
    """Note in the windows what successful operations acknowledged, or read."""
    if not windows:
        return
    partition, names = table["partition"]
    outcome, outcomes = table["outcome"]
    ok = outcome == outcomes.index("ok") if "ok" in outcomes else np.zeros(len(outcome), bool)
    offset, count = table["offset"], table["count"]
    for window in windows:
        if window.partition not in names:
            continue
        inside = ok & (partition == names.index(window.partition)) & (offset >= 0)
        inside &= (offset < window.high) & (offset + count > window.low)
        for row in np.flatnonzero(inside).tolist():
            into, epoch, node = window.acked, -1, ""
            if kind == "reads":
                into = window.final if table["final"][row] else window.read
                epoch, node = int(table["epoch"][row]), table["node"].at(row)
            value, op, t_us = (int(table[name][row]) for name in ("value", "op", "complete_us"))
            seen = Seen(value, op, table["client"].at(row), t_us, epoch, node)
            window.note(into, int(offset[row]), int(count[row]), seen)
