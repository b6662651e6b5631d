"""Reading of many lines of a Jepsen history at once, as columns of our operations.

Only for lines in which nothing is wrong; else NotPlain is raised. The meaning of an assignment, and
of the polls of a final reader, depends on the lines before: these lines are translated one by one,
as `checker.ingest.jepsen.Translator` does it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from checker.evidence.columns import Mask
from checker.evidence.sorting import I64, order_of
from checker.ingest.edn import Doubled
from checker.ingest.history_columns import HistoryBlock
from checker.ingest.jepsen import (
    MOST_SHOWN,
    NS_PER_US,
    NotAnOperation,
    Translator,
    UnknownKind,
    keys_sent_to,
    operation,
    runs_of,
)
from checker.ingest.line_shapes import LineTemplate, NotPlain, Scanned, scan, templates
from checker.ingest.op_columns import KINDS, TYPES, Runs, filled
from harness.formats.history import Op, Read
from node.formats.json_input import Unreadable

_INVOKE, _OK, _FAIL = (TYPES.index(name) for name in ("invoke", "ok", "fail"))
_MOVES: Final = [KINDS.index(name) for name in ("assign", "subscribe")]
_READERS: Final = [KINDS.index(name) for name in ("poll", "txn")]
_MOST_DIGITS: Final = 19
_LEAST_DIGITS: Final = 4
"""The most digits of a number in a line, and the least in an exemplar of `line_shapes`."""

Forms = Callable[[bytes], Sequence[Any]]
"""A function that decodes the text of a line into forms. Raises Unreadable."""


class _Said(NamedTuple):
    """A parsed line. `op`: the operation with its time in ns, None for a line of no client;
    `seeks`: an assignment begins at the start; `polled`: how many keys each poll returned;
    `worded`: the keys that it sends to are words."""

    op: Op | None
    seeks: bool = False
    polled: tuple[int, ...] = ()
    worded: bool = False


def read_jepsen_block(
    first: int, text: bytes, forms: Forms, translator: Translator, *, uncommitted: bool
) -> _Block | None:
    """Read whole lines of a Jepsen history, the first of which has the number `first`, as our
    operations; None if none is a client's. Raises NotPlain if they must be read one by one."""
    lines = scan(text)
    codes, found = templates(lines, partial(_read, forms), _suits)
    ours = np.array([said.op is not None for said, _ in found], bool)[codes]
    if not ours.any():
        return None
    new = np.cumsum([said.op is not None for said, _ in found]) - 1
    ops = [(said, LineTemplate(said.op, at)) for said, at in found if said.op is not None]
    lines = replace(lines, first=lines.first[ours], ends=lines.ends[ours])
    number = first + np.flatnonzero(ours)
    block = _Block(lines, new[codes[ours]], ops, number, translator, uncommitted=uncommitted)
    block.follow()
    return block


def _read(forms: Forms, line: bytes) -> tuple[_Said, Any]:
    found = forms(line) if line.strip() else [{"process": "none"}]
    if len(found) != 1 or type(found[0]) is Doubled:
        raise Unreadable("it is not one sound form")
    (form,) = found
    scaled, value = form, None
    if isinstance(form, dict):
        value = form.get("value")
        if type(time := form.get("time")) is int:
            scaled = form | {"time": time * NS_PER_US}
    try:
        op = operation(scaled)
    except (NotAnOperation, UnknownKind) as error:
        raise Unreadable(str(error)) from None
    steps = value if op is not None and isinstance(value, list) else ()
    polled = [len(s[1]) for s in steps if isinstance(s, list) and s[1:] and isinstance(s[1], dict)]
    if op is None:
        return _Said(None), form
    worded = {isinstance(key, str) for key in keys_sent_to(form)}
    if len(worded) > 1:
        raise Unreadable("it has keys that are words and others that are numbers")
    seeks = bool(form.get("seek-to-beginning?"))
    return _Said(op, seeks, tuple(polled), True in worded), form


def _suits(template: LineTemplate[_Said]) -> bool:
    """Return whether a line's shape says all: also which keys are equal, where words are cut."""
    (op, _, polled, _), places = template
    if op is None:
        return True
    keys = sum(bool(places.word(read.partition).places) for read in op.reads)
    if places.keys > keys or (len(polled) > 1 and max(polled) > 1 and keys > 1):
        return False
    numbers = len(places.word(op.error).places)
    longest = len(op.error) + numbers * (_MOST_DIGITS - _LEAST_DIGITS)
    return len(op.error) < MOST_SHOWN and (not numbers or longest <= MOST_SHOWN)


class _Block(HistoryBlock):
    """The operations of some lines, and how they follow each other in their processes."""

    def __init__(
        self,
        lines: Scanned,
        code: I64,
        found: Sequence[tuple[_Said, LineTemplate[Op]]],
        line: I64,
        translator: Translator,
        *,
        uncommitted: bool,
    ) -> None:
        columns = [template for _, template in found]
        super().__init__(lines, code, columns, line, uncommitted=uncommitted)
        self.code, self.found = code, found
        self.translator = translator
        self.seeks: Mask = np.array([said.seeks for said, _ in found], bool)[code]
        self._refuse_equal_keys(np.array([max(s.polled, default=0) for s, _ in found])[code] > 1)
        self.worded: Mask = np.array([said.worded for said, _ in found], bool)[code]
        self._note_keys()
        self.number["t_us"] //= NS_PER_US
        self.taken: dict[int, Op] = {}
        self._join()
        self._join_runs()

    def _refuse_equal_keys(self, several: Mask) -> None:
        """Refuse a map with two equal keys, which this reader cannot decide."""
        row = np.repeat(np.arange(len(several)), self.reads.count)
        alike = np.flatnonzero(several[row])
        pairs = row[alike] * len(self.read_of[1]) + self.read_of[0][alike]
        by_poll = np.array([len(s.polled) for s, _ in self.found])[self.code[row[alike]]] == 1
        if len(np.unique(pairs[by_poll])) != int(by_poll.sum()):
            raise NotPlain

    def _note_keys(self) -> None:
        """Distinguish keys that are words and look like numbers from numbers."""
        codes, names = self.send_to
        worded = np.repeat(self.worded, self.sends.count)
        known, self.keys = self.translator, []
        for mask, before in ((worded, known.words), (~worded, known.numbers)):
            used = {names[code] for code in np.unique(codes[mask]).tolist()}
            self.keys.append(before.union(filter(str.isdigit, used)))
        if self.keys[0] & self.keys[1]:
            raise NotPlain

    def _join(self) -> None:
        """Give numbers to the operations, as each process invokes and completes them in turn."""
        process, invokes = self.number["process"], self.type == _INVOKE
        order = order_of((process,))
        asks, f = invokes[order], self.f[order]
        new = np.append(True, process[order][1:] != process[order][:-1])
        begun = self.translator.open
        heads, tails = np.flatnonzero(new), np.append(np.flatnonzero(new)[1:], len(order)) - 1
        names = process[order[heads]].tolist()
        open_before = np.array([name in begun for name in names], bool)
        before = np.append(False, asks[:-1])
        before[heads] = open_before
        f_before = np.append(0, f[:-1])
        f_before[heads] = [KINDS.index(begun[n][1]) if n in begun else 0 for n in names]
        if (before == asks).any() or (f_before != f)[~asks].any():
            raise NotPlain
        op = np.zeros(len(order), np.int64)
        op[invokes] = self.translator.ops + np.arange(int(invokes.sum()))
        number = op[order]
        number_before = np.append(0, number[:-1])
        number_before[heads] = [begun[n][0] if n in begun else 0 for n in names]
        op[order] = np.where(asks, number, number_before)
        self.number["op"] = op
        self.order, self.heads = order, heads
        self.last = dict(zip(names, order[tails].tolist(), strict=True))

    def _finals(self) -> Mask:
        """Return the reads of a process that began again at the start of its partitions."""
        moves = np.isin(self.f, _MOVES) & (self.type != _INVOKE) & (self.type != _FAIL)
        begun = self.translator.from_start
        if not begun and not (moves & self.seeks).any():
            return np.zeros(len(moves), bool)
        moved, rows = moves[self.order], np.arange(len(moves))
        lengths = np.diff(np.append(self.heads, len(rows)))
        last = np.maximum.accumulate(np.where(moved, rows, -1))
        heads, starts = np.repeat(self.heads, lengths), np.array([n in begun for n in self.last])
        seeks = (self.seeks & (self.type == _OK))[self.order]
        reads = np.isin(self.f, _READERS) & (self.type != _INVOKE)
        found: Mask = np.zeros(len(rows), bool)
        found[self.order] = np.where(last >= heads, seeks[last], np.repeat(starts, lengths))
        found &= reads
        return found

    def follow(self) -> None:
        """Add what depends on earlier lines: which reads are final, and where they were asked to
        begin. Afterwards the translator has taken these lines too."""
        self.final = self._finals()
        known = self.translator
        known.words, known.numbers = self.keys
        final = self.final & (self.type == _OK)
        alone = self._alone(final)
        for row in np.flatnonzero(alone | final).tolist():
            if alone[row] or self._begins(row):
                self.taken[row] = self._taken(row)
            else:
                self._read_on(row)
        self.odd[[*self.taken]] = True
        op = self.number["op"]
        known.ops += int((self.type == _INVOKE).sum())
        for process, row in self.last.items():
            known.open.pop(process, None)
            if self.type[row] == _INVOKE:
                f: Any = KINDS[self.f[row]]
                known.open[process] = int(op[row]), f

    def _alone(self, final: Mask) -> Mask:
        """Return the lines that must be read one by one: those of rare forms, and `final` reads,
        whose start depends on the lines before them."""
        row = np.repeat(np.arange(len(final)), self.reads.count)
        empty = np.bincount(row, self.runs.count == 0, len(final)) > 0
        nothing = np.bincount(row, self.runs.count, len(final)) == 0
        asked = final & (empty | nothing & (self.f == KINDS.index("poll")))
        alone: Mask = np.isin(self.f, _MOVES) | self.rebalanced | self.assigned | asked
        return alone

    def _begins(self, row: int) -> bool:
        """Return whether a final read returns the first records of a partition."""
        places = self.translator.from_start[int(self.number["process"][row])]
        begin, count = self.reads.at[row], self.reads.count[row]
        codes, names = self.read_of
        return any(places.get(names[code]) == 0 for code in codes[begin : begin + count])

    def _read_on(self, row: int) -> None:
        """Remember how far a final read has come; each of its reads returned records."""
        places = self.translator.from_start[int(self.number["process"][row])]
        codes, names = self.read_of
        begin = self.reads.at[row]
        for read in range(begin, begin + self.reads.count[row]):
            last = self.runs.at[read] + self.runs.count[read] - 1
            places[names[codes[read]]] = int(self.run["offset"][last] + self.run["count"][last])

    def operation(self, row: int) -> Op:
        """Return the operation on one line."""
        return self.taken.get(row) or self._filled(row)

    def _filled(self, row: int) -> Op:
        op = filled(self.found[self.code[row]][1], self.lines, row)
        return msgspec.structs.replace(
            op,
            reads=tuple(map(_as_runs, op.reads)),
            final=bool(self.final[row]),
            seq=int(self.line[row]) - 1,
            **{name: int(self.number[name][row]) for name in ("op", "t_us")},
        )

    def _taken(self, row: int) -> Op:
        """Return the operation on a line that is taken alone."""
        op = self._filled(row)
        return op if op.type == "invoke" else self.translator.completed(op, bool(self.seeks[row]))

    def _join_runs(self) -> None:
        """Join records that follow each other in a read to runs of rising offsets and values."""
        offset, value, length = (self.run[name] for name in ("offset", "value", "count"))
        new = np.ones(len(offset), bool)
        new[1:] = (np.diff(offset) != length[:-1]) | (np.diff(value) != length[:-1])
        new[1:] |= value[:-1] < 0
        new[self.runs.at[self.runs.count > 0]] = True
        begins = np.flatnonzero(new)
        count = np.diff(np.append(0, np.cumsum(length))[np.append(begins, len(new))])
        self.run = {name: column[begins] for name, column in self.run.items()} | {"count": count}
        before = np.append(0, np.cumsum(new))
        at = before[self.runs.at]
        self.runs = Runs(at, before[self.runs.at + self.runs.count] - at)


def _as_runs(read: Read) -> Read:
    """Return a read with its records, which may be one each, joined into the longest runs."""
    pairs = [
        [run.offset + nth, run.value + nth if run.value >= 0 else None]
        for run in read.records
        for nth in range(run.count)
    ]
    return msgspec.structs.replace(read, records=tuple(runs_of(pairs)))
