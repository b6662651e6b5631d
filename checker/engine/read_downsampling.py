"""Downsampling of reads where they are read: only those are kept that judging the partition takes.

Of all reads that returned the same run of records, the earliest is kept, with the flags of all; of
all stated HWs those that are higher than all before.
Polls of a process that continue where the one before ended are left out, except at either end of
such a series. The findings are the same, with the same witnesses. Some reasons to need all polls (a
poll between them that another task read; a transaction; a record above every high watermark) show
only when all facts of the partition are together. `splittable` then says that the partition must be
judged again, by all of its reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from checker.checks import lost
from checker.checks import reads as read_checks
from checker.evidence.columns import Mask, Rows, Words, rows
from checker.evidence.contents import (
    READ_COMMITTED,
    READ_FINAL,
    READ_OK,
    READ_OTHER,
    READ_PROVES,
    first_of,
    rising,
)
from checker.evidence.facts import Contents, Marks, Outcome, Polls, SkippedPolls
from checker.evidence.group import Group
from checker.evidence.sorting import I64, is_sorted, order_of

LEAST_ROWS: Final = 4096
"""Sources with fewer rows are not downsampled."""
_BY: Final = ("op", "seq", "idx")


def downsampled(polls: Rows) -> list[Rows]:
    """Return the facts by which these polls of one run can be judged: the polls themselves, or
    fewer polls and what is to be known of the others."""
    if not polls.count or "turn" in polls.columns:
        return [polls]
    reads = _Reads(_in_order(polls))
    units = _PollRows.of(reads)
    if not units.idle.any():
        return [polls]
    kept = np.flatnonzero(units.rows(~units.idle))
    kept = kept[order_of((reads.part[kept], reads.process[kept]))]
    marks = [reads.as_contents(Marks, reads.risen())]
    return [reads.rows.take(kept), reads.earliest(), *marks, units.spans()]


def _in_order(polls: Rows) -> Rows:
    """Return the rows in the order of operation, and inside one as they were returned."""
    keys = [polls.numbers(name).astype(np.int64, copy=False) for name in _BY]
    return polls if is_sorted(keys) else polls.take(order_of(keys))


class _Reads:
    """The columns of some reads, in the order of operation."""

    def __init__(self, polls: Rows) -> None:
        self.rows = polls
        self.part, self.partitions = polls.words("partition")
        self.op, self.seq, self.idx = (polls.numbers(name) for name in _BY)
        self.process = polls.numbers("process")
        self.offset, self.value = polls.numbers("offset"), polls.numbers("value")
        self.count, self.epoch = polls.numbers("count"), polls.numbers("epoch")
        self.hw, self.start = polls.numbers("hw"), polls.numbers("start")
        self.complete_us, self.log_start = polls.numbers("complete_us"), polls.numbers("log_start")
        self.ok: Mask = polls.numbers("outcome") == Outcome.OK
        self.final: Mask = self.ok & (polls.numbers("final") != 0)
        self.uncommitted: Mask = polls.numbers("uncommitted") != 0
        self.at_end: Mask = polls.numbers("at_end") != 0
        self.end = self.offset + self.count
        self.node = polls.words("node").codes if "node" in polls.columns else None

    def earliest(self) -> Rows:
        """Return the earliest of all reads of the same records, with how all of them read it."""
        read_as = self.contents()
        return self.as_contents(Contents, np.flatnonzero(read_as), read_as=read_as)

    def as_contents(self, kind: type[Contents], kept: I64, **more: npt.NDArray[Any]) -> Rows:
        """Return these rows as facts of a kind; `more`: columns that polls do not have."""
        found = self.rows.take(kept)
        own = {name: found.columns[name] for name in kind.columns.keys() & found.columns.keys()}
        own |= {name: column[kept] for name, column in more.items()}
        return rows(kind, found.run, found.partition, **own)

    def risen(self) -> I64:
        """Return the rows in which the HW that ok answers state rose."""
        told = np.flatnonzero(self.ok & (self.hw >= 0))
        told = told[np.argsort(self.part[told], kind="stable")]
        of_parts = np.split(told, first_of(self.part[told])[1:]) if len(told) else [told]
        risen = [of[rising(self.hw[of], self.complete_us[of], self.op[of])] for of in of_parts]
        return np.concatenate(risen)

    def contents(self) -> npt.NDArray[np.uint8]:
        """Return, at the earliest read of the same records, the flags of all; 0 elsewhere. An ok
        read counts as earlier than any other, and of these a committed one."""
        rows = np.flatnonzero(self.count > 0)
        late = np.where(self.ok, 0, 2) + self.uncommitted
        same = (self.part, self.offset, self.epoch, self.count)
        order = rows[order_of([c[rows] for c in (*same, late, self.complete_us)])]
        new = np.zeros(len(order), bool)
        new[:1] = True
        for column in (*same, self.value):
            new[1:] |= np.diff(column[order]) != 0
        said = np.zeros(len(self.op), np.uint8)
        if len(starts := np.flatnonzero(new)):
            said[order[starts]] = np.bitwise_or.reduceat(self._how(order), starts)
        return said

    def _how(self, rows: I64) -> npt.NDArray[np.uint8]:
        """Return the way in which each of these reads was read."""
        how = np.where(self.ok[rows], READ_OK, READ_OTHER).astype(np.uint8)
        how[self.final[rows]] |= READ_FINAL
        how[~self.uncommitted[rows]] |= READ_COMMITTED
        how[self.ok[rows] & ~self.uncommitted[rows]] |= READ_PROVES
        return how

    def extremes(self) -> I64:
        """Return the final reads that show how far those of a partition reached, where they began
        and which end they stated; the one that states the highest start of the log; and the read of
        each node in which it stated the highest."""
        final, starts = np.flatnonzero(self.final), np.flatnonzero(self.ok & (self.log_start >= 0))
        begun = final[self.start[final] >= 0]
        found = [
            self._most(starts, self.log_start[starts]),
            self._most(final, self.end[final]),
            self._most(final, self.hw[final]),
            self._most(begun, -self.start[begun]),
        ]
        if self.node is not None:
            stated = np.flatnonzero(self.ok & (self.hw > 0))
            stated = stated[np.argsort(self.hw[stated], kind="stable")]
            nodes = int(self.node.max(initial=0)) + 1
            cell = self.part[stated] * nodes + self.node[stated]
            row = np.full(len(self.partitions) * nodes, -1, np.int64)
            row[cell] = stated
            found.append(row[row >= 0])
        return np.concatenate(found)

    def _most(self, rows: I64, what: I64) -> I64:
        """Return for each partition the row with the largest value."""
        part = self.part[rows]
        most = np.full(len(self.partitions), np.iinfo(np.int64).min)
        np.maximum.at(most, part, what)
        having = rows[what == most[part]]
        row = np.full(len(self.partitions), -1, np.int64)
        row[self.part[having]] = having
        return row[row >= 0]

    def named(self, part: I64) -> Words:
        """Return these partitions as a column."""
        return Words(part, self.partitions)


@dataclass(frozen=True)
class _PollRows:
    """The records that each operation got of one partition, one operation a row, in the order of
    partition, process and operation. `idle`: the read continues the one before it, and the next one
    continues it. `follows`: the row before is idle, this one is not. `unit`: its place among all
    rows."""

    reads: _Reads
    unit: I64
    starts: I64
    idle: Mask
    follows: Mask

    @classmethod
    def of(cls, reads: _Reads) -> _PollRows:
        """Return the polls of some reads."""
        starts, whole = _units(reads)
        last = np.append(starts[1:], len(reads.op)) - 1
        part, process = reads.part[starts], reads.process[starts]
        unit = order_of((part, process))
        same = np.zeros(len(unit), bool)
        same[1:] = part[unit][1:] == part[unit][:-1]
        same[1:] &= process[unit][1:] == process[unit][:-1]
        # If an operation read a partition in two places, its rows are kept.
        op = reads.op[starts][unit]
        again = np.flatnonzero(same[1:] & (op[1:] == op[:-1]))
        whole = whole[unit]
        whole[again] = whole[again + 1] = False
        joined = whole & same
        joined[1:] &= whole[:-1]
        joined[1:] &= reads.offset[starts][unit][1:] == reads.end[last][unit][:-1]
        joined[1:] &= reads.hw[starts][unit][1:] >= reads.hw[last][unit][:-1]
        extreme = np.zeros(len(unit), bool)
        extreme[np.searchsorted(starts, reads.extremes(), "right") - 1] = True
        idle = joined & np.append(joined[1:], False) & ~extreme[unit]
        follows = np.append(False, idle[:-1]) & ~idle
        return cls(reads, unit, starts, idle, follows)

    def rows(self, which: Mask) -> Mask:
        """Return the rows of these polls."""
        units = np.zeros(len(which), bool)
        units[self.unit] = which
        lengths = np.diff(np.append(self.starts, len(self.reads.op)))
        made: Mask = np.repeat(units, lengths)
        return made

    def spans(self) -> Rows:
        """Return between which two operations of a process others are left out."""
        after = np.flatnonzero(self.follows)
        kept = np.maximum.accumulate(np.where(self.idle, -1, np.arange(len(self.idle))))
        before = kept[after - 1]
        reads, length = self.reads, np.diff(np.append(self.starts, len(self.reads.op)))
        passed = np.cumsum(length[self.unit])
        first, last = self.starts[self.unit[before]], self.starts[self.unit[after]]
        return rows(
            SkippedPolls,
            reads.rows.run,
            reads.named(reads.part[last]),
            process=reads.process[last],
            first=reads.op[first],
            last=reads.op[last],
            count=passed[after - 1] - passed[before],
        )


def _units(reads: _Reads) -> tuple[I64, Mask]:
    """Return where the records that an operation got of one partition begin, and whether its reads
    are complete: each run begins where the one before ended, and none is missing by its number."""
    op, seq, idx, hw = reads.op, reads.seq, reads.idx, reads.hw
    opens = np.ones(len(op), bool)
    np.not_equal(op[1:], op[:-1], out=opens[1:])
    opens[1:] |= reads.part[1:] != reads.part[:-1]
    opens[1:] |= reads.process[1:] != reads.process[:-1]
    sound = reads.ok & (reads.count > 0) & (reads.offset >= 0)
    sound &= (hw < 0) | (reads.end == hw) | ((reads.end < hw) & ~reads.at_end)
    sound &= (idx > 0) | (reads.start < 0) | (reads.offset == reads.start)
    goes_on = np.where(seq[1:] == seq[:-1], idx[1:] == idx[:-1] + 1, idx[1:] == 0)
    goes_on &= (reads.offset[1:] == reads.end[:-1]) & (hw[1:] >= hw[:-1])
    sound[1:] &= opens[1:] | goes_on
    sound &= ~opens | (idx == 0)
    starts = np.flatnonzero(opens)
    whole = np.ones(len(starts), bool)
    whole[np.searchsorted(starts, np.flatnonzero(~sound), "right") - 1] = False
    return starts, whole


def splittable(group: Group) -> bool:
    """Return whether the reads that downsampling kept give the same findings as all reads would."""
    skipped = group.of(SkippedPolls)
    if not len(skipped):
        return True
    if group.has_transactions:
        return False
    process, first, last = skipped.process, skipped.first, skipped.last
    # One operation may end one stretch and begin the next.
    if ((process[1:] == process[:-1]) & (first[1:] < last[:-1])).any():
        return False
    polls = group.of(Polls)
    if not _none_missing(polls) or not _none_between(polls, process, first, last):
        return False
    return not read_checks.depends_on_every_read(group) and not lost.depends_on_every_read(group)


def _none_between(reads: Polls, process: I64, first: I64, last: I64) -> bool:
    """Return whether no remaining read is of an operation between those that were left out."""
    if not len(process):
        return True
    starts = first_of(process)
    for begin, end in zip(starts, np.append(starts[1:], len(process)), strict=True):
        own = slice(*np.searchsorted(reads.process, (process[begin], process[begin] + 1)))
        op = reads.op[own]
        inside = np.searchsorted(op, last[begin:end]) - np.searchsorted(
            op, first[begin:end], "right"
        )
        if (inside > 0).any():
            return False
    return True


def _none_missing(reads: Polls) -> bool:
    """Return whether every run of a read but its first follows the one before it."""
    later = reads.idx[1:] > 0
    before = (reads.op[1:] == reads.op[:-1]) & (reads.seq[1:] == reads.seq[:-1])
    before &= reads.idx[1:] == reads.idx[:-1] + 1
    return not len(reads) or bool(reads.idx[0] == 0 and before[later].all())
