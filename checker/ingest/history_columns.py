"""Reading of many lines of a history at once, by column, twenty times faster than one by one.

`read_block` reads lines only if the reader of single lines (`checker.ingest.read_history`) would
report nothing about any of them. Of their operations it turns only the plain ones into tables: with
at most one send, which the completion repeats, and no assignment or crash. The others are left to
the reader of single lines, in `HistoryColumns.rest`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from checker.evidence.columns import Mask
from checker.evidence.sorting import I64, order_of
from checker.ingest import tables
from checker.ingest.line_shapes import LineTemplate, NotPlain, Scanned, scan, templates
from checker.ingest.op_columns import KINDS, TYPES, OpColumns, Words
from checker.ingest.read_history import LATE_KINDS, strict
from harness.formats.history import Op

_OF_GROUP: Final = b'"group":'
_MOVES: Final = ("assign", "subscribe", "crash")


@dataclass(frozen=True)
class HistoryColumns:
    """A part of a history, as tables. `rest`: operations, as (invocation, completion), for the
    reader of single lines; `open`: invocations without completion; `awaited`: completions whose
    invocation is in an earlier part. The others follow processes from part to part: their first and
    last time and operation, the partitions that they used, and which ended with an info."""

    tables: dict[str, pa.Table]
    rest: list[tuple[Op, Op]]
    open: list[Op]
    awaited: list[Op]
    invoked: I64
    first_us: dict[int, int]
    last_us: dict[int, int]
    first_op: dict[int, int]
    last_op: dict[int, int]
    used: dict[int, set[str]]
    retired: set[int]
    numbers: tuple[int, int]
    marks: set[str]


def read_block(first: int, text: bytes, *, uncommitted: bool = False) -> HistoryBlock:
    """Read whole lines of a history, the first of which has the number `first`. Raises NotPlain if
    one must be read by itself. `uncommitted`: readers may get records of operations that abort."""
    if _OF_GROUP in text:
        raise NotPlain
    lines = scan(text)
    number = first + np.arange(len(lines.ends))
    return HistoryBlock(lines, *templates(lines, _read), number, uncommitted=uncommitted)


def _read(line: bytes) -> tuple[Op, Any]:
    op = strict.decode(line)
    return op, msgspec.to_builtins(op)


class HistoryBlock(OpColumns):
    """Lines of a history by column, checked as the reader of single lines checks them."""

    def __init__(
        self,
        lines: Scanned,
        template: I64,
        templates: Sequence[LineTemplate[Op]],
        line: I64,
        *,
        uncommitted: bool = False,
    ) -> None:
        super().__init__(lines, template, templates)
        self.lines, self.line, self.uncommitted = lines, line, uncommitted
        self.outcome: Words = self.type, list(TYPES)
        self.kind: Words = self.f, list(KINDS)
        moved = np.isin(self.f, [KINDS.index(kind) for kind in _MOVES])
        # Ends with an unknown outcome, behind which a process must not go on.
        late = np.isin(self.f, [KINDS.index(kind) for kind in LATE_KINDS])
        self._late: Mask = late & (self.type == TYPES.index("info"))
        self.odd: Mask = moved | self.rebalanced | self.assigned | self.special

    def columns(self, run: str, origin_us: int) -> HistoryColumns:
        """Join completions with their invocations; return the operations as tables of the run
        `run`. Raises NotPlain."""
        first_us, last_us = self._times()
        first_op, last_op = self._turns()
        op, invoke = self.number["op"], self.type == TYPES.index("invoke")
        begun, ended = np.flatnonzero(invoke), np.flatnonzero(~invoke)
        begun, ended = begun[order_of((op[begun],))], ended[order_of((op[ended],))]
        for rows in (begun, ended):
            if (op[rows][1:] == op[rows][:-1]).any():
                raise NotPlain
        at = np.searchsorted(op[begun], op[ended])
        there = at < len(begun)
        there[there] = op[begun][at[there]] == op[ended][there]
        done, asked = ended[there], begun[at[there]]
        if (asked > done).any():
            raise NotPlain
        for column in (self.number["process"], self.f):
            if (column[asked] != column[done]).any():
                raise NotPlain
        without = np.ones(len(begun), bool)
        without[at[there]] = False
        # In the order of their ends, as in reading one by one.
        order = order_of((done,)) if len(done) else done
        asked, done = asked[order], done[order]
        plain = self._plain(asked, done)
        made = self._tables(run, origin_us, asked[plain], done[plain])
        both = (self.sends.count[asked] > 0) & (self.reads.count[done] > 0)
        return HistoryColumns(
            made,
            list(zip(self._ops(asked[~plain]), self._ops(done[~plain]), strict=True)),
            self._ops(np.sort(begun[without])),
            self._ops(np.sort(ended[~there])),
            op[begun],
            first_us,
            last_us,
            first_op,
            last_op,
            self._used(asked[plain], done[plain]),
            set(self.number["process"][self._late].tolist()),
            self._numbers(),
            {"transactions"} if both.any() else set(),
        )

    def _ops(self, rows: I64) -> list[Op]:
        return list(map(self.operation, rows.tolist()))

    def operation(self, row: int) -> Op:
        """Return the operation on the line with the index `row`."""
        op = strict.decode(self.lines.line(row))
        return msgspec.structs.replace(op, seq=int(self.line[row]) - 1)

    def _times(self) -> tuple[dict[int, int], dict[int, int]]:
        """Return the first and the last time of each process; none of them may go back."""
        process, t_us = self.number["process"], self.number["t_us"]
        if not len(process):
            raise NotPlain
        order = order_of((process,))
        process, t_us = process[order], t_us[order]
        same = process[1:] == process[:-1]
        if (same & (t_us[1:] < t_us[:-1])).any():
            raise NotPlain
        starts = np.flatnonzero(np.append(True, ~same))
        ends = np.append(starts[1:], len(process)) - 1
        names = process[starts].tolist()
        return (
            dict(zip(names, t_us[starts].tolist(), strict=True)),
            dict(zip(names, t_us[ends].tolist(), strict=True)),
        )

    def _turns(self) -> tuple[dict[int, int], dict[int, int]]:
        """Return the first and the last operation that each process invoked. The numbers of those
        of a process must rise, and each must have ended, with an outcome that is known, before the
        next one is invoked."""
        process, op = self.number["process"], self.number["op"]
        order = order_of((process,))
        process, op = process[order], op[order]
        invokes = (self.type == TYPES.index("invoke"))[order]
        known = ~self._late[order]
        same = process[1:] == process[:-1]
        # An invocation is followed by its own end, and an end by another invocation.
        goes_on = invokes[1:] & known[:-1]
        follows = np.where(invokes[:-1], ~invokes[1:] & (op[1:] == op[:-1]), goes_on)
        if (same & ~follows).any():
            raise NotPlain
        process, op = process[invokes], op[invokes]
        same = process[1:] == process[:-1]
        if (same & (op[1:] <= op[:-1])).any():
            raise NotPlain
        starts = np.flatnonzero(np.append(True, ~same)) if len(process) else np.zeros(0, np.int64)
        names = process[starts].tolist()
        ends = np.append(starts[1:], len(process)) - 1
        return (
            dict(zip(names, op[starts].tolist(), strict=True)),
            dict(zip(names, op[ends].tolist(), strict=True)) if names else {},
        )

    def _numbers(self) -> tuple[int, int]:
        """Return the number that the writer gave the first line, and the one after the last."""
        seq = self.number["seq"]
        if seq[0] < 0:
            if (seq != seq[0]).any():
                raise NotPlain
            return int(seq[0]), int(seq[0])
        if (seq[1:] != seq[:-1] + 1).any():
            raise NotPlain
        return int(seq[0]), int(seq[-1]) + 1

    def _plain(self, asked: I64, done: I64) -> Mask:
        """Return which operations have one invocation and one completion in the usual form."""
        found = ~(self.odd[asked] | self.odd[done])
        found &= (self.sends.count[asked] <= 1) & (
            self.sends.count[done] <= self.sends.count[asked]
        )
        both = np.flatnonzero(found & (self.sends.count[done] == 1))
        sent, known = self.sends.at[asked[both]], self.sends.at[done[both]]
        same = self.send["value"][sent] == self.send["value"][known]
        same &= self.send["count"][sent] == self.send["count"][known]
        same &= self.send_to[0][sent] == self.send_to[0][known]
        found[both] = same
        return found

    def _used(self, asked: I64, done: I64) -> dict[int, set[str]]:
        """Return the partitions that each process sent to or read."""
        made: dict[int, set[str]] = {}
        sent, read = asked[self.sends.count[asked] == 1], np.repeat(done, self.reads.count[done])
        for rows, (codes, words), at in (
            (sent, self.send_to, self.sends.at[sent]),
            (read, self.read_of, _places(self.reads.at[done], self.reads.count[done])),
        ):
            process, codes = self.number["process"][rows], codes[at]
            if not len(codes):
                continue
            order = order_of((process, codes))
            process, codes = process[order], codes[order]
            new = np.append(True, (process[1:] != process[:-1]) | (codes[1:] != codes[:-1]))
            for who, code in zip(process[new].tolist(), codes[new].tolist(), strict=True):
                made.setdefault(who, set()).add(words[code])
        return made

    def _tables(self, run: str, origin_us: int, asked: I64, done: I64) -> dict[str, pa.Table]:
        """Return the tables `ops`, `sends` and `reads` of these operations."""
        number, final = self.number, self.final[asked] | self.final[done]
        begun, ended = number["t_us"][asked], number["t_us"][done]

        def common(rows: I64 | slice) -> dict[str, Any]:
            return {
                "run": run,
                "op": number["op"][asked][rows],
                "process": number["process"][asked][rows],
                "client": (self.client[0][asked][rows], self.client[1]),
                "invoke_us": begun[rows],
                "complete_us": ended[rows],
                "outcome": (self.outcome[0][done][rows], self.outcome[1]),
                "final": final[rows],
                "proved_us": -1,
                "rebalanced": False,
                "uncommitted": self.uncommitted,
                "at_end": False,
            }

        sent = np.flatnonzero(self.sends.count[asked] == 1)
        send = self._sends(asked[sent], done[sent])
        count = np.zeros(len(asked), np.int64)
        count[sent] = send["count"]
        reads = self.reads.count[done]
        read = _places(self.reads.at[done], reads)
        runs = np.maximum(self.runs.count[read], 1)
        every, polled = self._runs(read, runs)
        row = np.repeat(np.repeat(np.arange(len(done)), reads), runs)
        of_op = np.bincount(row, polled, minlength=len(done)).astype(np.int64)
        nth = np.arange(len(read)) - np.repeat(np.cumsum(reads) - reads, reads)
        return {
            "ops": _table(
                "ops",
                common(slice(None))
                | {
                    "f": (self.kind[0][asked], self.kind[1]),
                    "error": (self.error[0][done], self.error[1]),
                    "sent": count,
                    "polled": of_op,
                    "step": number["step"][asked],
                    "second": (ended - origin_us) // 1_000_000,
                    "invoke_line": self.line[asked],
                    "complete_line": self.line[done],
                },
            ),
            "sends": _table(
                "sends",
                common(sent)
                | send
                | {
                    "seq": np.zeros(len(sent), np.int64),
                    "transaction": self.f[asked[sent]] == KINDS.index("txn"),
                    "partition": (self.send_to[0][self.sends.at[asked[sent]]], self.send_to[1]),
                },
            ),
            "reads": _table("reads", common(row) | every | {"seq": np.repeat(nth, runs)}),
        }

    def _sends(self, asked: I64, done: I64) -> dict[str, Any]:
        """Return the columns of one send each, by its completion if that has the same records."""
        at = self.sends.at[asked]
        known = np.flatnonzero(self.sends.count[done] == 1)
        known = known[
            self.send["count"][self.sends.at[done[known]]] == self.send["count"][at[known]]
        ]
        at = at.copy()
        at[known] = self.sends.at[done[known]]
        return {name: column[at] for name, column in self.send.items()}

    def _runs(self, read: I64, runs: I64) -> tuple[dict[str, Any], I64]:
        """Return the runs of records of these reads; a read without records has one empty run."""
        of = np.repeat(np.arange(len(read)), runs)
        idx = np.arange(len(of)) - np.repeat(np.cumsum(runs) - runs, runs)
        there = (self.runs.count[read] > 0)[of]
        at = (self.runs.at[read][of] + idx)[there]
        found: dict[str, Any] = {"idx": idx}
        for name, empty in (("offset", -1), ("value", -1), ("count", 0), ("epoch", -1)):
            column = np.full(len(of), empty, np.int64)
            column[there] = self.run[name][at]
            found[name] = column
        rows = read[of]
        found |= {
            "partition": (self.read_of[0][rows], self.read_of[1]),
            "node": (self.read_from[0][rows], self.read_from[1]),
            "start": self.read["start"][rows],
            "hw": self.read["hw"][rows],
            "log_start": self.read["log_start"][rows],
        }
        return found, found["count"]


def _places(begin: I64, count: I64) -> I64:
    """Return the places begin .. begin + count - 1 of each row, one after another."""
    made: I64 = np.arange(int(count.sum())) + np.repeat(begin - (np.cumsum(count) - count), count)
    return made


def _table(name: str, columns: dict[str, Any]) -> pa.Table:
    """Return a table from columns: numbers, words as codes, or one value for all rows."""
    schema, rows, arrays = tables.SCHEMAS[name], len(columns["op"]), []
    for field in schema:
        column = columns[field.name]
        if isinstance(column, tuple):
            codes, words = column
            array = pa.DictionaryArray.from_arrays(
                pa.array(codes.astype(np.int32)), pa.array(words, pa.string())
            ).cast(field.type)
        elif isinstance(column, np.ndarray):
            array = pa.array(column).cast(field.type)
        else:
            array = pa.repeat(pa.scalar(column, field.type), rows)
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=schema)
