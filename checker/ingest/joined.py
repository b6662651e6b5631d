"""Operations, each joined with its completion, as columns of the tables ops, sends and reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from checker.evidence.columns import Mask, Words
from checker.evidence.facts import Outcome
from checker.evidence.sorting import I64
from checker.ingest import tables
from checker.ingest.row_group import OUTCOMES
from harness.formats.history import Op, Read, RecordRun, Send

NO_TIME: Final = -1
_NO_RECORDS: Final = (RecordRun(-1, -1, 0),)
_WITHOUT: Final = "no completion"

Columns = Mapping[str, Any]
"""Columns of a table by name: an array or `Words` each, without that of the run."""


class Joined(NamedTuple):
    """An operation: its two lines, one of which may be missing, and their numbers (0: unknown);
    `sends` are those invoked, with the offsets of the completion."""

    invoked: Op | None
    done: Op | None
    lines: tuple[int, int]
    sends: Sequence[Send]


class HistoryColumns:
    """The columns of some operations by table, and the rows of operations in them. `isolation` and
    `origin_us` are what the run promises and when its storm began."""

    def __init__(self, joined: Sequence[Joined], isolation: str, origin_us: int) -> None:
        self._ops: list[Any] = [j.invoked or j.done for j in joined]
        self._done = [j.done for j in joined]
        self._isolation = isolation
        sends = [j.sends for j in joined]
        reads = [(op if done is None else done).reads for op, done in self._both()]
        self._common = self._of_ops(joined)
        self.sends = self._of_sends(sends)
        self.reads = self._of_reads(reads)
        self.ops = self._of_rest(joined, sends, origin_us)

    def _both(self) -> Iterable[tuple[Op, Op | None]]:
        return zip(self._ops, self._done, strict=True)

    def _of_ops(self, joined: Sequence[Joined]) -> dict[str, Any]:
        """Return the columns of operations that all tables have."""
        begun = [NO_TIME if j.invoked is None else j.invoked.t_us for j in joined]
        ended = [NO_TIME if done is None else done.t_us for done in self._done]
        final = [op.final or (done is not None and done.final) for op, done in self._both()]
        return {
            "op": numbers([op.op for op in self._ops]),
            "process": numbers([op.process for op in self._ops]),
            "client": words([op.client for op in self._ops]),
            "invoke_us": numbers(begun),
            "complete_us": numbers(ended),
            "outcome": words(["info" if done is None else done.type for done in self._done]),
            "final": np.array(final, bool),
        }

    def _of_rest(
        self, joined: Sequence[Joined], sends: Sequence[Sequence[Send]], origin_us: int
    ) -> dict[str, Any]:
        """Return the columns of operations."""
        common, lines = self._common, numbers([j.lines for j in joined]).reshape(-1, 2)
        when = np.where(common["complete_us"] < 0, common["invoke_us"], common["complete_us"])
        return {
            **common,
            "f": words([op.f for op in self._ops]),
            "error": words([_WITHOUT if done is None else done.error for done in self._done]),
            "sent": _sums(self.sends["count"], numbers(list(map(len, sends)))),
            "polled": _sums(self.reads["count"], self._runs_of_op) + self._delivered(),
            "step": numbers([op.step for op in self._ops]),
            "second": (when - origin_us) // 1_000_000,
            "invoke_line": lines[:, 0],
            "complete_line": lines[:, 1],
        }

    def _of_sends(self, sends: Sequence[Sequence[Send]]) -> dict[str, Any]:
        each, per_op = list(chain.from_iterable(sends)), numbers(list(map(len, sends)))
        several = np.array([op.f == "txn" for op in self._ops], bool) | (per_op > 1)
        return {
            **_repeated(self._common, per_op),
            "seq": _places(per_op),
            "partition": words(list(map(attrgetter("partition"), each))),
            **_numbers_of(each, ("acks", "value", "count", "offset")),
            "transaction": np.repeat(several, per_op),
            "proved_us": np.full(len(each), NO_TIME, np.int64),
        }

    def _of_reads(self, reads: Sequence[Sequence[Read]]) -> dict[str, Any]:
        """Return the columns of runs of records; an answer without records is one empty run."""
        each, per_op = list(chain.from_iterable(reads)), numbers(list(map(len, reads)))
        found = [read.records or _NO_RECORDS for read in each]
        runs, per_read = list(chain.from_iterable(found)), numbers(list(map(len, found)))
        self._runs_of_op = _sums(per_read, per_op)
        of_read = {
            "seq": _places(per_op),
            "partition": words(list(map(attrgetter("partition"), each))),
            "node": words(list(map(attrgetter("node"), each))),
            "rebalanced": self._rebalanced(each, per_op),
            "at_end": np.array(list(map(attrgetter("at_end"), each)), bool),
            **_numbers_of(each, ("start", "hw", "log_start")),
        }
        return {
            **_repeated(self._common | {"uncommitted": self._dirty()}, self._runs_of_op),
            **_repeated(of_read, per_read),
            "idx": _places(per_read),
            **_numbers_of(runs, ("offset", "value", "count", "epoch")),
        }

    def _delivered(self) -> I64:
        """Return how many records each poll of a group was given."""
        polls = (done if op.group and op.f == "poll" else None for op, done in self._both())
        given = [() if done is None else done.deliveries for done in polls]
        return numbers([sum(r.count for d in each for r in d.records) for each in given])

    def _dirty(self) -> Mask:
        """Return which operations may read records of operations that abort."""
        said = ((done.isolation if done else "") or op.isolation for op, done in self._both())
        return np.array([(s or self._isolation) == "read_uncommitted" for s in said], bool)

    def _rebalanced(self, reads: Sequence[Read], per_op: I64) -> Mask:
        """Return which reads are of a partition that moved while their operation ran."""
        moved = [done.rebalanced if done else () for done in self._done]
        found = np.zeros(len(reads), bool)
        if any(moved):
            row = np.repeat(np.arange(len(per_op)), per_op).tolist()
            found[:] = [read.partition in moved[at] for at, read in zip(row, reads, strict=True)]
        return found


def table(name: str, run: str, columns: Columns) -> pa.Table:
    """Return columns as the table `name` of the run `run`."""
    schema, count, arrays = tables.SCHEMAS[name], len(columns["op"]), []
    for field in schema:
        if field.name == "run":
            arrays.append(pa.repeat(pa.scalar(run, field.type), count))
            continue
        column = columns[field.name]
        if isinstance(column, Words):
            codes = pa.array(column.codes.astype(np.int32))
            texts = pa.array(column.words, pa.string())
            array = pa.DictionaryArray.from_arrays(codes, texts).cast(field.type)
        else:
            array = pa.array(column).cast(field.type)
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=schema)


def joint(parts: Sequence[Columns]) -> Columns:
    """Return the rows of all parts as one; at least one part is needed."""
    if len(parts) == 1:
        return parts[0]
    return {name: _joint([part[name] for part in parts]) for name in parts[0]}


def outcomes(column: Words) -> I64:
    """Return outcomes as the numbers of `Outcome`."""
    codes: I64 = np.array([OUTCOMES.get(w, Outcome.INFO) for w in column.words], np.int64)
    return codes[column.codes] if len(codes) else column.codes


def numbers(values: Sequence[Any]) -> I64:
    """Return whole numbers as a column."""
    return np.array(values, np.int64)


def words(texts: Sequence[str]) -> Words:
    """Return texts as a column."""
    codes = {text: code for code, text in enumerate(dict.fromkeys(texts))}
    return Words(np.array([*map(codes.__getitem__, texts)], np.int64), list(codes))


def _joint(parts: Sequence[Any]) -> Any:
    if not isinstance(parts[0], Words):
        return np.concatenate(parts)
    codes: dict[str, int] = {}
    found = []
    for part in parts:
        own = numbers([codes.setdefault(word, len(codes)) for word in part.words])
        found.append(own[part.codes] if len(own) else part.codes)
    return Words(np.concatenate(found), list(codes))


def _repeated(columns: Columns, times: I64) -> dict[str, Any]:
    """Return columns in which each row stands as many times as `times` says."""
    made: dict[str, Any] = {}
    for name, column in columns.items():
        if isinstance(column, Words):
            made[name] = Words(np.repeat(column.codes, times), column.words)
        else:
            made[name] = np.repeat(column, times)
    return made


def _numbers_of(items: Sequence[Any], names: tuple[str, ...]) -> dict[str, I64]:
    return {name: numbers(list(map(attrgetter(name), items))) for name in names}


def _places(lengths: I64) -> I64:
    """Return 0 .. length - 1 of each of these lengths, one after another."""
    ends = np.cumsum(lengths)
    made: I64 = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths, lengths)
    return made


def _sums(values: I64, lengths: I64) -> I64:
    """Return the sums of successive values, as many of them as each length says."""
    before = np.append(0, np.cumsum(values))
    ends = np.cumsum(lengths)
    made: I64 = before[ends] - before[ends - lengths]
    return made
