"""A history counted while it is read: what all measures are made of, small whatever its size.

`tallies` counts operations that are alike: of the same second, client or partition, kind and
outcome, and of latencies that differ by less than one in 128. `acks` says for each stretch of time
in which anything was acknowledged when that was first and last: the longest time without an
acknowledgement lies between two of them. Sends around faults are counted apart
(`checker.ingest.fault_windows`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from checker.evidence.sorting import I64, alike, any_order_of
from checker.ingest import tables
from checker.ingest.fault_windows import InjectedFault
from checker.ingest.row_group import Table

PRECISION_BITS: Final = 7
RUN, CLIENT, PARTITION, AFTER = "run", "client", "partition", "after"
# Stretches of acknowledgements: of the whole run, and of each of its partitions.
STRETCH_US: Final = {RUN: 1_000, PARTITION: 100_000}
_NO_SECOND: Final = -1
_OF_ANSWERS: Final = ("partition", "outcome", "invoke_us", "complete_us")


def coarse(latency_us: I64) -> I64:
    """Latencies rounded down by less than one in 128, so that equal ones can be counted: a run has
    then few different ones, whatever its size. Below 256 us they are exact; -1 stays."""
    bits = np.maximum(np.frexp(latency_us + 0.5)[1] - 1 - PRECISION_BITS, 0)
    made: I64 = (latency_us >> bits) << bits
    return made


def tallied(
    run: str, source: Mapping[str, Table], injected: Sequence[InjectedFault] = ()
) -> dict[str, pa.Table]:
    """The tables `tallies` and `acks` of some rows of the tables `ops`, `sends` and `reads`.

    Sends are also counted around each of `injected`: `by` is then the window, `second` the fault's
    number; and in `acks` the first acknowledgement of each partition after its end.
    """
    counted, acks = [], []
    for name, table in source.items():
        if not table.num_rows:
            continue
        if name == "ops":
            part = _Rows(run, table, table.words("f"))
            second = table.numbers("second")
            records = table.numbers("sent") + table.numbers("polled")
            counted.append(part.count(RUN, None, second, records))
            counted.append(part.count(CLIENT, "client", None, records))
            acks.append(part.acks(RUN, None))
        elif name == "sends":
            part = _Rows(run, table, "send")
            counted.append(part.count(PARTITION, "partition", None, table.numbers("count")))
            acks.append(part.acks(PARTITION, "partition"))
            for fault in injected:
                acks.append(part.first_after(fault))
                for window, begin_us, end_us in fault.windows():
                    counted += part.inside(window, fault.nth, begin_us, end_us)
        elif name == "reads":
            answers, records, once = _answers(table)
            part = _Rows(run, answers, "poll")
            counted.append(part.count(PARTITION, "partition", None, records, once))
    made = {"tallies": joined(counted, "tallies"), "acks": joined(acks, "acks")}
    return {name: table for name, table in made.items() if table.num_rows}


def _answers(table: Table) -> tuple[Table, I64, I64]:
    """A row an answer, how many records it has, and 1 where it begins here: a read of many runs of
    records is one answer, and mostly its runs follow each other."""
    records, idx, op = (table.numbers(name) for name in ("count", "idx", "op"))
    follows = np.zeros(len(idx), bool)
    follows[1:] = (idx[1:] == idx[:-1] + 1) & (op[1:] == op[:-1])
    starts = np.flatnonzero(~follows)
    begins = (idx[starts] == 0).astype(np.int64)
    if len(starts) == len(idx):
        return table, records, begins
    names = [n for n in _OF_ANSWERS if n in table.rows.schema.names]
    rows = table.rows.select(names).take(pa.array(starts))
    return Table(rows), np.add.reduceat(records, starts), begins


_Words = tuple[I64, Sequence[str]]


class _Rows:
    """Some rows of a table, what they say of outcome and latency."""

    def __init__(self, run: str, table: Table, f: _Words | str) -> None:
        self.run, self.table = run, table
        rows = table.num_rows
        self.f: _Words = (np.zeros(rows, np.int64), [f]) if isinstance(f, str) else f
        self.outcome = table.words("outcome")
        self.complete_us = table.numbers("complete_us")
        invoke_us = table.numbers("invoke_us")
        codes, words = self.outcome
        ok = codes == words.index("ok") if "ok" in words else np.zeros(rows, bool)
        # An ok operation of which both times are not known has no latency, and counts as info.
        self.ok = ok & (self.complete_us >= 0) & (invoke_us >= 0)
        self.invoke_us = invoke_us
        self.us = np.where(self.ok, coarse(self.complete_us - invoke_us), -1)

    def named(self, name: str | None) -> _Words:
        if name is None:
            return np.zeros(self.table.num_rows, np.int64), [""]
        return self.table.words(name)

    def count(
        self,
        by: str,
        name: str | None,
        second: I64 | int | None,
        records: I64,
        times: I64 | None = None,
        rows: I64 | None = None,
    ) -> pa.Table:
        """How many rows (all, or those given) are alike, and how many records they have."""
        name_of, names = self.named(name)
        second = _NO_SECOND if second is None else second
        seconds = np.full(len(name_of), second) if isinstance(second, int) else second
        columns = (name_of, seconds, self.f[0], self.outcome[0], self.us)
        sums = (np.ones(len(name_of), np.int64) if times is None else times, records)
        if rows is not None:
            columns = tuple(column[rows] for column in columns)  # type: ignore[assignment]
            sums = (sums[0][rows], sums[1][rows])
        (name_of, seconds, f, outcome, us), (times, records) = alike(columns, sums)
        return _table(
            "tallies",
            {
                "run": self.run,
                "by": by,
                "name": (name_of, names),
                "second": seconds,
                "f": (f, self.f[1]),
                "outcome": (outcome, self.outcome[1]),
                "us": us,
                "times": times,
                "records": records,
            },
        )

    def inside(self, window: str, nth: int, begin_us: int, end_us: int) -> Iterator[pa.Table]:
        """Sends that were invoked in a window of time, of each partition and of all."""
        rows = np.flatnonzero((self.invoke_us >= begin_us) & (self.invoke_us < end_us))
        if len(rows):
            records = self.table.numbers("count")
            for name in ("partition", None):
                yield self.count(window, name, nth, records, rows=rows)

    def first_after(self, fault: InjectedFault) -> pa.Table:
        """The first acknowledgement of each partition after a fault ended."""
        rows = np.flatnonzero(self.ok & (self.complete_us > fault.end_us))
        name_of, names = self.named("partition")
        order = rows[any_order_of((name_of[rows], self.complete_us[rows]))] if len(rows) else rows
        first = order[np.diff(name_of[order], prepend=-1) != 0]
        done = self.complete_us[first]
        return _table(
            "acks",
            {
                "run": self.run,
                "by": AFTER,
                "name": (name_of[first], names),
                "stretch": np.full(len(first), fault.nth),
                "first_us": done,
                "last_us": done,
            },
        )

    def acks(self, by: str, name: str | None) -> pa.Table:
        """The first and last acknowledgement of each stretch of time that has any."""
        codes, words = self.f
        sent = codes == words.index("send") if "send" in words else np.zeros(len(codes), bool)
        rows = np.flatnonzero(self.ok & sent)
        name_of, names = self.named(name)
        name_of, done = name_of[rows], self.complete_us[rows]
        order = any_order_of((name_of, done)) if len(rows) else rows
        name_of, done = name_of[order], done[order]
        stretch = done // STRETCH_US[by]
        new = np.ones(len(rows), bool)
        new[1:] = (np.diff(name_of) != 0) | (np.diff(stretch) != 0)
        starts = np.flatnonzero(new)
        ends = np.append(starts[1:], len(rows))[: len(starts)] - 1
        return _table(
            "acks",
            {
                "run": self.run,
                "by": by,
                "name": (name_of[starts], names),
                "stretch": stretch[starts],
                "first_us": done[starts],
                "last_us": done[ends],
            },
        )


def _table(name: str, columns: Mapping[str, Any]) -> pa.Table:
    """A table from columns: numbers, words as codes, or one text for all rows."""
    schema = tables.SCHEMAS[name]
    rows = next(len(c) for c in columns.values() if isinstance(c, np.ndarray))
    arrays = []
    for field in schema:
        column = columns[field.name]
        if isinstance(column, str):
            arrays.append(pa.repeat(pa.scalar(column, field.type), rows))
        elif isinstance(column, tuple):
            codes, words = column
            arrays.append(pa.array(words, pa.string()).take(pa.array(codes)))
        else:
            arrays.append(pa.array(column, field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def joined(parts: Iterable[pa.Table], name: str) -> pa.Table:
    """Parts of one of these tables as one."""
    return pa.concat_tables([tables.SCHEMAS[name].empty_table(), *parts])
