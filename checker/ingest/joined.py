"""Operations, each joined with its completion, as columns of the tables ops, sends and reads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain, count
from operator import attrgetter, eq
from typing import Any, Final, TypeVar

import numpy as np

from checker.evidence.columns import Mask, Words
from checker.evidence.facts import Outcome
from checker.evidence.sorting import I64
from checker.ingest.tables import Columns
from harness.formats.history import Op, Read, RecordRun, Send

_Item = TypeVar("_Item")
NO_TIME: Final = -1
_OUTCOMES: Final = {each.name.lower(): each for each in Outcome}
_NO_RECORDS: Final = (RecordRun(-1, -1, 0),)
_WITHOUT: Final = "no completion"

_FIELDS: Final = (
    *("process", "client", "type", "f", "final", "error", "step", "isolation", "group"),
    "rebalanced",
)
_LOOK: Final = attrgetter(*_FIELDS)
_SENT: Final = attrgetter("partition", "value", "count")


class Lines:
    """Some lines of a history by column. `number` is that of each in its file. The fields in
    `_FIELDS` have few different values: `looks` has each combination of them once, by field."""

    def __init__(self, ops: Sequence[Op], number: Sequence[int]) -> None:
        self.ops = ops
        self.number = numbers(number)
        self.op = numbers_of(ops, "op")
        self.t_us = numbers_of(ops, "t_us")
        self._code, looks = _coded(map(_LOOK, ops), len(ops))
        self.looks = dict(zip(_FIELDS, zip(*looks, strict=True), strict=True)) if looks else {}
        self.type, self.f = self.words("type"), self.words("f")
        self.invokes = self.are("type", "invoke")
        self.process = self.column("process")
        self.sends = list(map(attrgetter("sends"), ops))
        self.sent = np.fromiter(map(len, self.sends), np.int64, len(ops))

    def column(self, name: str, kind: type = np.int64) -> Any:
        """Return a column of one of `_FIELDS`."""
        return np.array(self.looks.get(name, ()), kind)[self._code]

    def words(self, name: str) -> Words:
        """Return a column of one of `_FIELDS` that is a text."""
        of_looks = words(self.looks.get(name, ()))
        return Words(of_looks.codes[self._code], of_looks.words)

    def are(self, name: str, *among: object) -> Mask:
        """Return which lines have one of these values in one of `_FIELDS`."""
        found = np.array([value in among for value in self.looks.get(name, ())], bool)
        return found[self._code]


class Joined:
    """Operations, each with its two lines in `lines`, of which one may be missing (-1): where it is
    invoked and where it completes. `refused`: operations whose completion names sends that they did
    not invoke; it does not count. `sends` are as invoked, with the offsets of the completion."""

    def __init__(self, lines: Lines, begun: I64, ended: I64) -> None:
        self.lines, self.begun = lines, begun
        self.first = np.where(begun < 0, ended, begun)
        self.sent = lines.sent[self.first]
        self.sends = [*chain.from_iterable(map(lines.sends.__getitem__, self.first.tolist()))]
        self.offset = numbers_of(self.sends, "offset")
        self.begin_line = np.where(begun < 0, 0, lines.number[begun])
        self.end_line = np.where(ended < 0, 0, lines.number[ended])
        self.refused = self._take_offsets(ended)
        self.ended = ended.copy()
        self.ended[self.refused] = -1
        self.last = np.where(self.ended < 0, self.first, self.ended)

    def __len__(self) -> int:
        return len(self.begun)

    def _take_offsets(self, ended: I64) -> I64:
        """Take the offsets that completions state. Return the operations that are refused."""
        again = np.flatnonzero((self.begun >= 0) & (ended >= 0) & (self.lines.sent[ended] > 0))
        sends, start = self.lines.sends, np.cumsum(self.sent) - self.sent
        alone = (self.sent[again] == 1) & (self.lines.sent[ended[again]] == 1)
        one = again[alone]
        asked = [self.sends[place] for place in start[one].tolist()]
        done = [sends[row][0] for row in ended[one].tolist()]
        same = np.fromiter(map(eq, map(_SENT, asked), map(_SENT, done)), bool, len(one))
        offset = numbers_of(done, "offset")
        stated = same & (offset >= 0)
        self.offset[start[one[stated]]] = offset[stated]
        refused = one[~same].tolist()
        for nth in again[~alone].tolist():
            begin, end = int(start[nth]), int(start[nth] + self.sent[nth])
            found = _offsets(self.sends[begin:end], sends[ended[nth]])
            if found is None:
                refused.append(nth)
            else:
                self.offset[begin:end] = np.where(found < 0, self.offset[begin:end], found)
        return numbers(sorted(refused))


def _offsets(asked: Sequence[Send], done: Sequence[Send]) -> I64 | None:
    """Return the offset that a completion states for each send; None if its sends differ."""
    offsets = {_SENT(send): send.offset for send in done}
    found = numbers([offsets.pop(_SENT(send), -1) for send in asked])
    return None if offsets else found


class HistoryColumns:
    """The columns of some operations by table, and the rows of operations in them. `isolation` and
    `origin_us` are what the run promises and when its storm began."""

    def __init__(self, joined: Joined, isolation: str, origin_us: int) -> None:
        self._joined, self._lines = joined, joined.lines
        reads = [self._lines.ops[row].reads for row in joined.last.tolist()]
        self._common = self._of_ops()
        self.sends = self._of_sends()
        self.reads = self._of_reads(reads, isolation)
        self.ops = self._of_rest(origin_us)

    def _of_ops(self) -> dict[str, Any]:
        """Return the columns of operations that all tables have."""
        joined, lines = self._joined, self._lines
        final = lines.column("final", bool)
        return {
            "op": lines.op[joined.first],
            "process": lines.process[joined.first],
            "client": _at(lines.words("client"), joined.first),
            "invoke_us": np.where(joined.begun < 0, NO_TIME, lines.t_us[joined.begun]),
            "complete_us": np.where(joined.ended < 0, NO_TIME, lines.t_us[joined.ended]),
            "outcome": _at(lines.type, joined.ended, "info"),
            "final": final[joined.first] | final[joined.last],
        }

    def _of_rest(self, origin_us: int) -> dict[str, Any]:
        """Return the columns of operations."""
        common, joined, lines = self._common, self._joined, self._lines
        when = np.where(common["complete_us"] < 0, common["invoke_us"], common["complete_us"])
        return {
            **common,
            "f": _at(lines.f, joined.first),
            "error": _at(lines.words("error"), joined.ended, _WITHOUT),
            "sent": _sums(self.sends["count"], joined.sent),
            "polled": _sums(self.reads["count"], self._runs_of_op) + self._delivered(),
            "step": lines.column("step")[joined.first],
            "second": (when - origin_us) // 1_000_000,
            "invoke_line": joined.begin_line,
            "complete_line": joined.end_line,
        }

    def _of_sends(self) -> dict[str, Any]:
        joined = self._joined
        several = self._lines.are("f", "txn")[joined.first] | (joined.sent > 1)
        return {
            **_repeated(self._common, joined.sent),
            "seq": _places(joined.sent),
            "partition": words(list(map(attrgetter("partition"), joined.sends))),
            **{name: numbers_of(joined.sends, name) for name in ("acks", "value", "count")},
            "offset": joined.offset,
            "transaction": np.repeat(several, joined.sent),
            "proved_us": np.full(len(joined.sends), NO_TIME, np.int64),
        }

    def _of_reads(self, reads: Sequence[Sequence[Read]], isolation: str) -> dict[str, Any]:
        """Return the columns of runs of records; an answer without records is one empty run."""
        each, per_op = list(chain.from_iterable(reads)), numbers(list(map(len, reads)))
        found = [read.records or _NO_RECORDS for read in each]
        runs, per_read = list(chain.from_iterable(found)), numbers(list(map(len, found)))
        self.reads_of_op, self._runs_of_op = per_op, _sums(per_read, per_op)
        of_read = {
            "seq": _places(per_op),
            "partition": words(list(map(attrgetter("partition"), each))),
            "node": words(list(map(attrgetter("node"), each))),
            "rebalanced": self._rebalanced(each, per_op),
            "at_end": np.fromiter(map(attrgetter("at_end"), each), bool, len(each)),
            **{name: numbers_of(each, name) for name in ("start", "hw", "log_start")},
        }
        dirty = {"uncommitted": self._dirty(isolation)}
        return {
            **_repeated(self._common | dirty, self._runs_of_op),
            **_repeated(of_read, per_read),
            "idx": _places(per_read),
            **{name: numbers_of(runs, name) for name in ("offset", "value", "count", "epoch")},
        }

    def _delivered(self) -> I64:
        """Return how many records each poll of a group was given."""
        joined, lines = self._joined, self._lines
        given = np.zeros(len(joined), np.int64)
        polls = lines.are("f", "poll") & ~lines.are("group", "")
        for nth in np.flatnonzero(polls[joined.first] & (joined.ended >= 0)).tolist():
            done = lines.ops[joined.ended[nth]]
            given[nth] = sum(run.count for each in done.deliveries for run in each.records)
        return given

    def _dirty(self, isolation: str) -> Mask:
        """Return which operations may read records of operations that abort: as the completion
        says, or else the invocation, or else the promise."""
        joined, lines = self._joined, self._lines
        silent, dirty = lines.are("isolation", ""), lines.are("isolation", "read_uncommitted")
        said = np.where(silent[joined.last], joined.first, joined.last)
        found: Mask = np.where(silent[said], isolation == "read_uncommitted", dirty[said])
        return found

    def _rebalanced(self, reads: Sequence[Read], per_op: I64) -> Mask:
        """Return which reads are of a partition that moved while their operation ran."""
        found = np.zeros(len(reads), bool)
        if any(self._lines.looks.get("rebalanced", ())):
            ended = np.repeat(self._joined.ended, per_op).tolist()
            for nth, (row, read) in enumerate(zip(ended, reads, strict=True)):
                found[nth] = row >= 0 and read.partition in self._lines.ops[row].rebalanced
        return found


def _at(column: Words, rows: I64, missing: str = "") -> Words:
    """Return the rows of a column of texts; row -1 has the text `missing`."""
    if not len(rows) or rows.min() >= 0:
        return Words(column.codes[rows], column.words)
    return Words(
        np.where(rows < 0, len(column.words), column.codes[rows]), [*column.words, missing]
    )


def joint(parts: Sequence[Columns]) -> Columns:
    """Return the rows of all parts as one; at least one part is needed."""
    if len(parts) == 1:
        return parts[0]
    return {name: _joint([part[name] for part in parts]) for name in parts[0]}


def outcomes(column: Words) -> I64:
    """Return outcomes as the numbers of `Outcome`. Raises ValueError for unknown words."""
    codes = [_OUTCOMES.get(word, -1) for word in column.words]
    found = numbers([*codes, -1])[column.codes]
    if found.min(initial=0) < 0:
        strange = column.words[column.codes[int(np.argmin(found))]]
        raise ValueError(f"an operation cannot end '{strange}'")
    return found


def numbers(values: Sequence[Any]) -> I64:
    """Return whole numbers as a column."""
    return np.array(values, np.int64)


def numbers_of(items: Sequence[Any], name: str) -> I64:
    """Return an attribute of these items, a whole number, as a column."""
    return np.fromiter(map(attrgetter(name), items), np.int64, len(items))


def words(texts: Sequence[str]) -> Words:
    """Return texts as a column."""
    return Words(*_coded(texts, len(texts)))


def _coded(items: Iterable[_Item], number: int) -> tuple[I64, list[_Item]]:
    """Return a code for each of so many items, and the item of each code."""
    codes: defaultdict[_Item, int] = defaultdict(count().__next__)
    return np.fromiter(map(codes.__getitem__, items), np.int64, number), list(codes)


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
    rows = np.repeat(np.arange(len(times)), times)
    return {
        name: Words(column.codes[rows], column.words) if isinstance(column, Words) else column[rows]
        for name, column in columns.items()
    }


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
