"""The lines of a history, joined into operations: an operation is invoked once and completed at
most once, and a process does one operation after another while its clock rises.

Lines are taken some thousand at a time and by column; only those that break a rule are looked at
one by one. What they make are columns of the tables ops, sends and reads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, count
from operator import attrgetter, eq
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np

from checker.evidence.columns import Mask, Words
from checker.evidence.facts import Outcome
from checker.evidence.sorting import I64, order_of
from checker.ingest.source import LineNumbers
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


LATE_KINDS: Final = ("send", "poll", "txn")
"""The operations that may take effect late, so that their process must not go on after an info."""
DAMAGE: Final = "damage"
_NEVER: Final = int(np.iinfo(np.int64).max)


class Said(NamedTuple):
    """A sentence about a row of some lines; `kind` is that of the problem, or DAMAGE."""

    row: int
    kind: str
    sentence: str


class MetNumbers:
    """The numbers of operations that were met, as ranges, sorted and apart: `begin` .. `end`."""

    def __init__(self) -> None:
        self.begin, self.end = numbers(()), numbers(())

    def __len__(self) -> int:
        return int((self.end - self.begin).sum())

    def have_gaps(self) -> bool:
        """Return whether a number is missing between 0 and the last one."""
        return bool(len(self.begin) > 1 or self.begin[:1].any())

    def include(self, found: I64) -> Mask:
        """Return which of these numbers were met."""
        place = np.searchsorted(self.begin, found, "right") - 1
        met: Mask = found < np.append(self.end, np.iinfo(np.int64).min)[place]
        return met

    def add(self, begin: I64, end: I64) -> None:
        """Note that the numbers in these ranges were met."""
        begin, end = np.append(self.begin, begin), np.append(self.end, end)
        order = np.argsort(begin, kind="stable")
        begin, end = begin[order], np.maximum.accumulate(end[order])
        apart = begin[1:] > end[:-1]
        self.begin = begin[np.append(True, apart)[: len(begin)]]
        self.end = end[np.append(apart, True)[: len(end)]]


class _ByProcess:
    """Rows of some lines in the order of their processes, and which of them are the first and the
    last of a process."""

    def __init__(self, lines: Lines, rows: I64) -> None:
        self.rows = rows[order_of((lines.process[rows],))] if len(rows) else rows
        self.process = lines.process[self.rows]
        other = self.process[1:] != self.process[:-1]
        self.first = np.append(True, other)[: len(rows)]
        self.last = np.append(other, True)[: len(rows)]

    def before(self, values: I64, known: Mapping[int, int], unknown: int) -> I64:
        """Return for each row the value of the one before it in its process, and for the first of a
        process what is known of that, or `unknown`."""
        found = np.append(0, values[:-1])[: len(values)]
        found[self.first] = [known.get(p, unknown) for p in self.process[self.first].tolist()]
        return found

    def of_last(self, values: I64) -> Iterator[tuple[int, int]]:
        """Yield each process with the value of its last row."""
        return zip(self.process[self.last].tolist(), values[self.last].tolist(), strict=True)


class _Ends(NamedTuple):
    """The operations that end, in order: the rows where they were invoked (-1: nowhere) and where
    they end; the rows that invoke or end an operation again; and those, of earlier lines first,
    where operations were invoked that are open."""

    begun: I64
    ended: I64
    again: I64
    open: I64


class OperationJoin:
    """A join of operations with their completions, and what it must know of earlier lines. `open`
    has the operations that have not completed, with their lines; `in_turn`: the numbers of the
    operations of each process rise in the order in which it invoked them. If the lines are only a
    part of a history (`partial`), ends of operations of earlier parts are kept in `orphans`."""

    def __init__(self, *, partial: bool = False) -> None:
        self.partial = partial
        self.orphans: list[tuple[int, Op]] = []
        # by process the time of its first line and whether that invokes, and its first operation
        self.first: dict[int, tuple[int, bool]] = {}
        self.first_op: dict[int, int] = {}
        # If lines are lost, half an operation may be missing, which is no further mistake.
        self.lines_lost = False
        self.numbers = LineNumbers(None if partial else 0)
        self.seen = MetNumbers()
        self.open: dict[int, tuple[int, Op]] = {}
        self.last_us: dict[int, int] = {}
        self.last_op: dict[int, int] = {}
        # processes whose last operation has not ended, with the row where it will; and those that
        # met an unknown outcome
        self.busy: dict[int, int] = {}
        self.retired: set[int] = set()
        self.in_turn = True
        # the time and number of every invocation, in order of line
        self.invoked: list[tuple[I64, I64]] = []
        # what shows in the history: names of flags of `HistoryParts`
        self.marks: set[str] = set()

    def take(
        self, ops: Sequence[Op], number: Sequence[int], lost: int | None, *, last: bool
    ) -> tuple[Joined, list[Said]]:
        """Return the operations that end on some lines, and what is wrong with the lines. From the
        row `lost` on, lines are missing. Behind the `last` lines come operations that never end."""
        # Rows of earlier lines follow those of these lines.
        met = self.open.keys() & set(map(attrgetter("op"), ops))
        known = {op: each for op, each in self.open.items() if op in met}
        others = [each for op, each in self.open.items() if last and op not in known]
        earlier = [*known.values(), *others]
        lines = Lines([*ops, *(op for _, op in earlier)], [*number, *(at for at, _ in earlier)])
        rows = np.arange(len(ops))
        pairs = self._pairs(lines, rows, [*known])
        lost_from = 0 if self.lines_lost else _NEVER if lost is None else lost
        for row in pairs.again[lines.invokes[pairs.again]][:1].tolist():
            lost_from = min(lost_from, row + 1)
        self.lines_lost = lost_from < _NEVER
        by_process = _ByProcess(lines, rows)
        invoking = _ByProcess(lines, rows[lines.invokes[rows]])
        own = pairs
        if self.partial:
            own = self._without_orphans(lines, pairs)
            self._note_first(by_process, invoking, lines)
        begun, ended = own.begun, own.ended
        if last:
            still = len(ops) + len(known) + np.arange(len(others))
            begun = np.concatenate((begun, still, pairs.open))
            ended = np.append(ended, np.full(len(begun) - len(ended), -1))
        joined = Joined(lines, begun, ended)
        self.invoked.append(
            (lines.t_us[rows][lines.invokes[rows]], lines.op[rows][lines.invokes[rows]])
        )
        said = [
            *self._gaps(lines, numbers_of(ops, "seq")),
            *self._times(by_process, lines),
            *self._turns(invoking, lines, pairs, lost_from),
            *_wrong_ends(joined, own, lost_from),
        ]
        return joined, said

    def go_on(self, after: OperationJoin) -> bool:
        """Take what the join of the next part of a history knows of processes and lines, and return
        whether no rule is broken between this part and that."""
        sound = self.numbers.go_on(after.numbers)
        for process, (t_us, invokes) in after.first.items():
            sound &= t_us >= self.last_us.get(process, 0)
            sound &= not (invokes and process in self.busy)
            self.busy.pop(process, None)
        for process, op in after.first_op.items():
            sound &= process not in self.retired and op > self.last_op.get(process, -1)
        self.last_us |= after.last_us
        self.last_op |= after.last_op
        self.busy |= after.busy
        self.retired |= after.retired
        return sound and after.in_turn

    def _note_first(self, each: _ByProcess, invoking: _ByProcess, lines: Lines) -> None:
        """Note what the first of these lines of each process, and its first operation, are."""
        for row in each.rows[each.first].tolist():
            about = int(lines.t_us[row]), bool(lines.invokes[row])
            self.first.setdefault(int(lines.process[row]), about)
        for row in invoking.rows[invoking.first].tolist():
            self.first_op.setdefault(int(lines.process[row]), int(lines.op[row]))

    def _without_orphans(self, lines: Lines, pairs: _Ends) -> _Ends:
        """Return the operations that these lines invoke, and keep the ends of others."""
        own = pairs.begun >= 0
        rows = pairs.ended[~own].tolist()
        self.orphans += [(int(lines.number[row]), lines.ops[row]) for row in rows]
        return pairs._replace(begun=pairs.begun[own], ended=pairs.ended[own])

    def _pairs(self, lines: Lines, rows: I64, known: Sequence[int]) -> _Ends:
        """Find the ends of operations among `rows`. Behind them, `lines` has the invocations of the
        operations `known`, which are open."""
        op, invokes = lines.op[rows], lines.invokes[rows]
        order = order_of((op,))
        new = np.append(True, op[order][1:] != op[order][:-1])[: len(op)]
        first, which = order[new], op[order][new]
        met = self.seen.include(which)
        self.seen.add(which[~met], which[~met] + 1)
        begin = np.where(~met & invokes[first], first, -1)
        begin[np.searchsorted(which, numbers(known))] = len(rows) + np.arange(len(known))
        ends = ~invokes[order]
        of, end = np.cumsum(new)[ends] - 1, np.full(len(which), -1)
        earliest = np.append(True, of[1:] != of[:-1])[: len(of)]
        end[of[earliest]] = order[ends][earliest]
        # What was met and is not open has ended already.
        end[met & (begin < 0)] = -1
        still = np.sort(begin[(begin >= 0) & (end < 0)])
        self._note_open(lines, still, which[end >= 0])
        again = np.ones(len(lines.ops), bool)
        again[begin[begin >= 0]] = again[end[end >= 0]] = False
        begun, ended = begin[end >= 0], end[end >= 0]
        in_order = np.argsort(ended)
        still = np.roll(still, int((still >= len(rows)).sum()))
        return _Ends(begun[in_order], ended[in_order], np.flatnonzero(again[rows]), still)

    def _note_open(self, lines: Lines, begun: I64, ended: I64) -> None:
        """Note the rows where operations began that are open, and the operations that ended."""
        for op in self.open.keys() & set(ended.tolist()):
            del self.open[op]
        for row in begun.tolist():
            op = lines.ops[row]
            self.open.setdefault(op.op, (int(lines.number[row]), op))

    def _gaps(self, lines: Lines, seq: I64) -> Iterator[Said]:
        """Yield where the numbers that lines may have are not those of successive lines."""
        if self.numbers.take_all(seq):
            return
        for row, (number, at) in enumerate(zip(seq.tolist(), lines.number.tolist(), strict=False)):
            if gap := self.numbers.gap(number):
                yield Said(row, DAMAGE, f"line {at}: {gap}.")

    def _times(self, each: _ByProcess, lines: Lines) -> Iterator[Said]:
        """Yield where the clock of a process goes back."""
        t_us = lines.t_us[each.rows]
        back = each.before(t_us, self.last_us, 0) - t_us
        self.last_us.update(each.of_last(t_us))
        for place in np.flatnonzero(back > 0).tolist():
            self.marks.add("clock_back")
            row = int(each.rows[place])
            within = f"process {each.process[place]}"
            sentence = (
                f"line {lines.number[row]}: time goes back by {back[place]} us within {within}."
            )
            yield Said(row, "time", sentence)

    def _turns(
        self, each: _ByProcess, lines: Lines, pairs: _Ends, lost_from: int
    ) -> Iterator[Said]:
        """Yield where a process goes on although its last operation has not ended, or has an
        unknown outcome; `each`: the rows of invocations."""
        op, end = lines.op[each.rows], self._own_ends(lines, pairs)
        last = each.before(op, self.last_op, -1)
        busy = each.before(end[each.rows], self.busy, -1) > each.rows
        retired = self._retired(each, lines, pairs)
        self.in_turn &= not (last > op).any()
        self.last_op.update(each.of_last(op))
        self.busy.update(each.of_last(end[each.rows]))
        self.busy = {process: at for process, at in self.busy.items() if at == _NEVER}
        # What it did in an earlier part is not known here.
        went_on = ((last >= 0) | self.partial) & (last != op)
        wrong = (busy | retired) & went_on & (each.rows < lost_from)
        for place in np.flatnonzero(wrong).tolist():
            self.marks.add("overlap")
            row = int(each.rows[place])
            how = "its outcome is unknown" if retired[place] else "it has not ended"
            yield Said(
                row,
                "overlap",
                f"line {lines.number[row]}: process {each.process[place]} invokes operation "
                f"{op[place]} after operation {last[place]}, and {how}. A process does one "
                "operation after another: give each thread a process number of its own, and a new "
                "one after an info.",
            )

    def _own_ends(self, lines: Lines, pairs: _Ends) -> I64:
        """Return for each row the row where its own process ends the operation that it invokes.
        Note those of operations that earlier lines invoked."""
        begun, ended = pairs.begun[pairs.begun >= 0], pairs.ended[pairs.begun >= 0]
        own = lines.process[begun] == lines.process[ended]
        end = np.full(len(lines.ops), _NEVER)
        end[begun[own]] = ended[own]
        for row in begun[own & (begun > ended)].tolist():
            process = int(lines.process[row])
            if self.last_op.get(process) == lines.op[row]:
                self.busy[process] = int(end[row])
        return end

    def _retired(self, each: _ByProcess, lines: Lines, pairs: _Ends) -> Mask:
        """Return which invocations are of a process that met an unknown outcome before."""
        late = lines.are("type", "info") & lines.are("f", *LATE_KINDS)
        rows = pairs.ended[late[pairs.ended]]
        retires: dict[int, int] = {}
        for row, process in zip(rows.tolist(), lines.process[rows].tolist(), strict=True):
            retires.setdefault(process, row)
        of_process = numbers(
            [
                -1 if process in self.retired else retires.get(process, _NEVER)
                for process in each.process[each.first].tolist()
            ]
        )
        self.retired.update(retires)
        found: Mask = of_process[np.cumsum(each.first) - 1] < each.rows
        return found


def _wrong_ends(joined: Joined, pairs: _Ends, lost_from: int) -> Iterator[Said]:
    """Yield what is wrong with the beginnings and ends of operations."""
    lines, begun, ended = joined.lines, pairs.begun, pairs.ended
    for row in pairs.again.tolist():
        how = (
            "is invoked twice."
            if lines.invokes[row]
            else ("is completed twice; the first completion counts.")
        )
        yield Said(row, "twice", f"line {lines.number[row]}: operation {lines.op[row]} {how}")
    for row in ended[(begun < 0) & (ended < lost_from)].tolist():
        what = f"operation {lines.op[row]} ends but was never invoked."
        yield Said(row, "orphan", f"line {lines.number[row]}: {what}")
    other = (lines.process[begun] != lines.process[ended]) | (
        lines.f.codes[begun] != lines.f.codes[ended]
    )
    for place in np.flatnonzero(other & (begun >= 0)).tolist():
        invoked, op = lines.ops[begun[place]], lines.ops[ended[place]]
        yield Said(
            int(ended[place]),
            "other",
            f"line {lines.number[ended[place]]}: operation {op.op} ends as {op.f} of process "
            f"{op.process}, but was invoked as {invoked.f} of process {invoked.process}.",
        )
    for place in joined.refused.tolist():
        row = int(ended[place])
        what = f"operation {lines.op[row]} ends with sends that it did not invoke."
        yield Said(row, "other", what)
