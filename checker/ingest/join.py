"""The rules of a history: an operation is invoked once and completed at most once, and a process
does one operation after another while its clock rises.

Lines are taken some thousand at a time and by column; only those that break a rule are looked at
one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

import numpy as np

from checker.evidence.columns import Mask
from checker.evidence.sorting import I64, order_of
from checker.ingest.joined import Joined, Lines, numbers, numbers_of
from checker.ingest.source import LineNumbers
from harness.formats.history import Op

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
