"""Contents of a partition, as far as they are known: the reads, and the offsets of each value.

Built once for each group and shared by the checks. Successive records are kept as runs (first
offset, first value, count) for as long as possible; repetitions are removed before runs are
expanded, and no table has a row for each offset.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self

import numpy as np

from checker.evidence.columns import Mask
from checker.evidence.facts import (
    Contents,
    Deletions,
    LogHeads,
    LogRecords,
    Marks,
    Outcome,
    Polls,
    Sends,
    SkippedPolls,
    Unplaced,
)
from checker.evidence.group import Group
from checker.evidence.sorting import (
    I64,
    any_order_of,
    distinct,
    is_constant,
    order_of,
    picked,
    repeated,
    searchsorted_sorted,
)
from harness.formats.run_info import Promise

READ_OK: Final = 1
READ_FINAL: Final = 2
READ_OTHER: Final = 4
ACKED: Final = 8
ACKED_WEAKLY: Final = 16
SENT_INFO: Final = 32
READ_COMMITTED: Final = 64
READ_PROVES: Final = 128
"""An ok read with read_committed, which proves that what it returned was committed."""

NEVER: Final = np.iinfo(np.int64).max
_DIRTY: Final = 1 << 61
"""Added to the time of a dirty read, so that any other read counts as earlier."""
_ALL_ACKS: Final = -1
MARK: Final = -2
"""Stands for the send of a known position that a HW shows; one below, if its poll was left out."""


class Columnar:
    """A table: a dataclass whose fields are columns of equal length."""

    def __len__(self) -> int:
        return len(next(iter(vars(self).values())))

    def take(self, index: I64 | Mask) -> Self:
        """Return the rows at `index`, in that order."""
        if index.dtype == np.bool_:
            if index.all():
                return self
            index = np.flatnonzero(index)
        return type(self)(*(picked(column, index) for column in vars(self).values()))


@dataclass(frozen=True)
class Records(Columnar):
    """Records, a row each: offset, value, leader epoch, the OR of flags such as READ_OK, code of
    the node (-1: none), and when an ok read of the record first completed (or NEVER)."""

    offset: I64
    value: I64
    epoch: I64
    flags: I64
    node: I64
    t_us: I64


def expand(count: I64) -> tuple[I64, I64]:
    """Return for each record of runs of `count` records the row of its run, and its place there."""
    run = np.repeat(np.arange(len(count)), count)
    place = np.arange(len(run)) - np.repeat(np.cumsum(count) - count, count)
    return run, place


def merge(
    offset: I64,
    value: I64,
    epoch: I64,
    flags: I64,
    node: I64,
    count: I64 | None = None,
    t_us: I64 | None = None,
) -> Records:
    """Return records without repetitions of (offset, value, epoch, node), sorted by these: with the
    OR of the flags and the earliest of the times. With `count`, each row stands for that many
    successive records."""
    if t_us is None:
        t_us = repeated(NEVER, len(offset))
    if count is not None:
        runs = _distinct((offset, value, epoch, node, count), flags, t_us)
        (offset, value, epoch, node, count), flags, t_us = runs
        if (count == 1).all():
            return Records(offset, value, epoch, flags, node, t_us)
        run, place = expand(count)
        offset, value = offset[run] + place, value[run] + np.where(value[run] >= 0, place, 0)
        epoch, node, t_us = (picked(column, run) for column in (epoch, node, t_us))
        flags = flags[run]
    (offset, value, epoch, node), flags, t_us = _distinct((offset, value, epoch, node), flags, t_us)
    return Records(offset, value, epoch, flags, node, t_us)


def _distinct(columns: tuple[I64, ...], flags: I64, t_us: I64) -> tuple[tuple[I64, ...], I64, I64]:
    """Return rows without repetition, sorted by the columns in turn, with the OR of their flags and
    the earliest of their times."""
    if not len(flags):
        return columns, flags, t_us
    # Columns that are all the same, as most are, need no sorting.
    varied = [c for c in columns if not is_constant(c) and c.min() != c.max()]
    order = any_order_of(varied or columns[:1])
    new = np.zeros(len(order), dtype=bool)
    new[0] = True
    for column in varied:
        ordered = column[order]
        new[1:] |= ordered[1:] != ordered[:-1]
    starts = np.flatnonzero(new)
    kept = order[starts]
    return (
        tuple(c[kept] for c in columns),
        np.bitwise_or.reduceat(flags[order], starts),
        np.minimum.reduceat(t_us[order], starts),
    )


def first_of(keys: I64) -> I64:
    """Return the first row of each group of equal keys in a sorted column."""
    new = np.ones(len(keys), dtype=bool)
    np.not_equal(keys[1:], keys[:-1], out=new[1:])
    return np.flatnonzero(new)


def rising(hw: I64, t_us: I64, op: I64) -> I64:
    """Return the rows in which a HW is higher than at all times before, by time; of one moment the
    highest, and of these the lowest operation."""
    order = np.lexsort((op, -hw, t_us))
    return order[first_of(np.maximum.accumulate(hw[order]))]


def find(haystack: I64, needles: I64) -> I64:
    """Return the row of each needle in a sorted column without repetitions, -1 if absent."""
    if not len(haystack):
        return np.full(len(needles), -1, np.int64)
    place = np.minimum(searchsorted_sorted(haystack, needles), len(haystack) - 1)
    return np.where(haystack[place] == needles, place, -1)


@dataclass(frozen=True)
class Values:
    """Distinct values, a row each: lowest and highest offset at which it is known, OR of flags."""

    value: I64
    first: I64
    last: I64
    flags: I64


@dataclass(frozen=True)
class KnownPositions(Columnar):
    """Records that were known to be at an offset, and since when, sorted by time. A record is known
    by its acknowledgement (`send` is the row of its send) or by a read (`send` is -1). It is
    `strong` if it must keep its place: it was read, or acknowledged with acks=all."""

    t_us: I64
    offset: I64
    value: I64
    send: I64
    strong: Mask


def _by_value(records: Records) -> Values:
    """Return records that can be understood, one row a value."""
    known = records.take(records.value >= 0)
    if not len(known):
        return Values(known.value, known.value, known.value, known.value)
    order = any_order_of((known.value,))
    value, offset, flags = known.value[order], known.offset[order], known.flags[order]
    starts = first_of(value)
    if len(starts) == len(value):
        return Values(value, offset, offset, flags)
    return Values(
        value[starts],
        np.minimum.reduceat(offset, starts),
        np.maximum.reduceat(offset, starts),
        np.bitwise_or.reduceat(flags, starts),
    )


def by_node(nodes: I64, heads: LogHeads, what: I64 | Mask) -> I64:
    """Return for each node its value in the column `what` of `heads`; -1 if it has no log."""
    if not len(nodes):
        return nodes
    table = np.full(len(heads.names), -1, np.int64)
    table[heads.node] = what
    return table[nodes]


def _promised(sends: Sends, promise: Promise) -> Sends:
    """Return sends with the acks that they asked for: of the promise, if they name none."""
    if promise.acks == _ALL_ACKS or not len(sends):
        return sends
    return sends.replaced("acks", np.where(sends.acks == _ALL_ACKS, promise.acks, sends.acks))


class Evidence:
    """The contents of one partition as clients and replicas saw them, computed when first used."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.sends = _promised(group.of(Sends), group.meta.promise)
        """All sends; those that name no acks have those of the promise."""
        self.polls = group.of(Polls)
        """All reads, or, if polls were left out, those that the order of reads is judged on."""
        self.logs = group.of(LogRecords)

    @cached_property
    def polls_with_records(self) -> int:
        """The number of runs of records in all reads, those left out by downsampling too."""
        return int((self.polls.count > 0).sum() + self.group.of(SkippedPolls).count.sum())

    @cached_property
    def follows(self) -> Mask:
        """Return for each row of `polls` whether downsampling left out polls just before it, which
        ended at the offset where it begins."""
        skipped = self.group.of(SkippedPolls)
        if not len(skipped):
            return np.zeros(len(self.polls), dtype=bool)
        after = set(zip(skipped.process.tolist(), skipped.last.tolist(), strict=True))
        each = zip(self.polls.process.tolist(), self.polls.op.tolist(), strict=True)
        return np.fromiter((pair in after for pair in each), bool, len(self.polls))

    @cached_property
    def _sends_by_value(self) -> I64:
        """The rows of the sends that have records, sorted by value."""
        some = np.flatnonzero(self.sends.count > 0)
        return some[order_of((self.sends.value[some],))] if len(some) else some

    def writer(self, values: I64) -> I64:
        """Return the row in `sends` of the send that wrote each value, -1 if no send did."""
        # Several checks ask for all that was read.
        known = self.__dict__.get("read_records")
        if known is not None and values is known.value:
            return self.writer_of_read
        return self._writer(values)

    def _writer(self, values: I64) -> I64:
        order = self._sends_by_value
        starts = self.sends.value[order]
        if not len(order):
            return np.full(len(values), -1, np.int64)
        place = np.maximum(searchsorted_sorted(starts, values, "right") - 1, 0)
        row = order[place]
        inside = (values >= starts[place]) & (values < starts[place] + self.sends.count[row])
        return np.where(inside, row, -1)

    @cached_property
    def writer_of_read(self) -> I64:
        """The row in `sends` of the send that wrote each of `read_records`, -1 if no send did."""
        return self._writer(self.read_records.value)

    def outcome_of_writer(self, values: I64) -> I64:
        """Return the outcome of the send that wrote each value, -1 if no send did."""
        row = self.writer(values)
        found = np.full(len(values), -1, np.int64)
        found[row >= 0] = self.sends.outcome[row[row >= 0]]
        return found

    @cached_property
    def shared_values(self) -> I64:
        """The values that two sends of this partition both claim to have written; normally none."""
        order = self._sends_by_value
        starts = self.sends.value[order]
        ends = np.maximum.accumulate(starts + self.sends.count[order]) if len(order) else starts
        if not (starts[1:] < ends[:-1]).any():
            return np.zeros(0, np.int64)
        run, place = expand(self.sends.count)
        values = np.sort(self.sends.value[run] + place)
        return distinct(values[1:][values[1:] == values[:-1]])

    def is_shared(self, values: I64) -> Mask:
        """Return for each value whether two sends claim it, so that its send is not known."""
        found: Mask = np.isin(values, self.shared_values)
        return found

    @cached_property
    def read_records(self) -> Records:
        """The records that any read returned, each distinct (offset, value, epoch) once."""
        polls, earliest = self.polls.take(self.polls.count > 0), self.group.of(Contents)
        ok = polls.outcome == Outcome.OK
        read_as: I64 = np.where(ok, READ_OK, READ_OTHER).astype(np.int64)
        read_as[ok & polls.final] |= READ_FINAL
        read_as[~polls.uncommitted] |= READ_COMMITTED
        read_as[ok & ~polls.uncommitted] |= READ_PROVES
        node = repeated(-1, len(polls))
        dirty = np.where(polls.uncommitted, _DIRTY, 0)
        t_us: I64 = np.where(ok, polls.complete_us + dirty, NEVER)
        columns: tuple[I64, ...] = (polls.offset, polls.value, polls.epoch, read_as, node)
        columns = (*columns, polls.count, t_us)
        if len(earliest):
            dirty = np.where((earliest.read_as & READ_PROVES) == 0, _DIRTY, 0)
            t_us = np.where(earliest.outcome == Outcome.OK, earliest.complete_us + dirty, NEVER)
            same = (earliest.offset, earliest.value, earliest.epoch, earliest.read_as)
            more = (*same, repeated(-1, len(earliest)), earliest.count, t_us)
            columns = tuple(np.concatenate(pair) for pair in zip(columns, more, strict=True))
        return merge(*columns)

    @cached_property
    def seen(self) -> Records:
        """Records that were read, and at offset -1 those that groups got without an offset."""
        given, read = self.group.of(Unplaced), self.read_records
        if not len(given):
            return read
        run, place = expand(given.count)
        value, nowhere = given.value[run], repeated(-1, len(run))
        value = value + np.where(value >= 0, place, 0)
        more = merge(nowhere, value, nowhere, given.read_as[run], nowhere)
        columns = zip(vars(read).values(), vars(more).values(), strict=True)
        return Records(*(np.concatenate(pair) for pair in columns))

    @cached_property
    def proved_at(self) -> I64:
        """The time when a committed read first returned each of `read_records`, or NEVER."""
        found: I64 = np.where(self.read_records.t_us < _DIRTY, self.read_records.t_us, NEVER)
        return found

    @cached_property
    def read_at(self) -> I64:
        """The time when an ok read first returned each of `read_records`: a committed read if there
        is one, else a dirty one; NEVER if no ok read did."""
        t_us = self.read_records.t_us
        dirty = (t_us >= _DIRTY) & (t_us < NEVER)
        found: I64 = np.where(dirty, t_us - _DIRTY, t_us)
        return found

    @cached_property
    def committed(self) -> Mask:
        """Return for each send whether it certainly took effect: it ended ok; or its outcome is
        unknown (info) and a committed read, in this or another partition, returned a record of its
        operation."""
        found: Mask = self.committed_us != NEVER
        return found

    @cached_property
    def committed_us(self) -> I64:
        """The time from which each send certainly had taken effect, or NEVER: when it was
        acknowledged; or, if its outcome is unknown, when the first committed read of a record of
        its operation completed."""
        sends = self.sends
        acknowledged = sends.outcome == Outcome.OK
        found = np.where(acknowledged, np.maximum(sends.complete_us, 0), self.proved_here_us)
        elsewhere = (sends.outcome == Outcome.INFO) & (sends.proved_us >= 0)
        return np.where(elsewhere, np.minimum(found, sends.proved_us), found)

    @cached_property
    def proved_here_us(self) -> I64:
        """The time at which, for each send of unknown outcome, the first committed read of this
        partition that returned a record of its operation completed; NEVER for other sends, or if
        there is no such read."""
        sends, found = self.sends, np.full(len(self.sends), NEVER)
        if not len(rows := np.flatnonzero(sends.outcome == Outcome.INFO)):
            return found
        read, writer = self.read_records, self.writer_of_read
        at = np.full(len(sends), NEVER)
        # The time of a record that no committed read returned is NEVER.
        sure = (writer >= 0) & ~self.is_shared(read.value)
        np.minimum.at(at, writer[sure], self.proved_at[sure])
        # One visible record proves its whole operation.
        op = sends.op[rows]
        order = order_of((op,))
        starts = first_of(op[order])
        earliest = np.minimum.reduceat(at[rows][order], starts)
        found[rows[order]] = np.repeat(earliest, np.diff(np.append(starts, len(order))))
        return found

    @cached_property
    def placed(self) -> Records:
        """The records that acknowledgements or reads place at an offset: those of committed sends
        whose offset is known, and those of all reads."""
        sends = self.sends.take(self.committed & (self.sends.offset >= 0))
        run, place = expand(sends.count)
        weak = sends.acks != _ALL_ACKS
        flags = np.where(
            sends.outcome == Outcome.INFO, SENT_INFO, np.where(weak, ACKED_WEAKLY, ACKED)
        )
        read = self.read_records
        nothing = repeated(-1, len(run) + len(read))
        return merge(
            np.concatenate((sends.offset[run] + place, read.offset)),
            np.concatenate((sends.value[run] + place, read.value)),
            nothing,
            np.concatenate((flags[run], read.flags)),
            nothing,
            t_us=np.concatenate((np.full(len(run), NEVER), read.t_us)),
        )

    @cached_property
    def _lasting(self) -> Records:
        """The rows of `placed` that every reader must find: not what only dirty reads returned of
        operations that are not known to have taken effect."""
        dirty = (self.placed.flags & ~(READ_OK | READ_FINAL | READ_OTHER)) == 0
        if not dirty.any():
            return self.placed
        writer = self.writer(self.placed.value)
        certain = (writer >= 0) & np.append(self.committed, False)[writer]
        return self.placed.take(~dirty | certain)

    @cached_property
    def offsets(self) -> I64:
        """The distinct offsets of lasting records. An offset's index in it is its dense index."""
        return self._lasting.offset[first_of(self._lasting.offset)]

    @cached_property
    def _kept(self) -> Records:
        """The records that final reads returned: what they did not return is lost or deleted."""
        return self.read_records.take((self.read_records.flags & READ_FINAL) != 0)

    @property
    def has_final_records(self) -> bool:
        """Return whether final reads returned records, which say what the log kept."""
        return len(self._kept) > 0

    def is_kept(self, values: I64) -> Mask:
        """Return for each value whether the log may have kept it to the end of the run."""
        found: Mask = np.isin(values, self._kept.value) | (not self.has_final_records)
        return found

    @cached_property
    def kept_offsets(self) -> I64:
        """The distinct offsets of lasting records that the log may have kept to the end."""
        kept = self._kept.offset
        return self.offsets if not len(kept) else np.intersect1d(self.offsets, kept)

    @cached_property
    def sure_offsets(self) -> I64:
        """The distinct offsets where more than an acknowledgement of acks 0 or 1 shows a record."""
        sure = self._lasting.offset[self._lasting.flags != ACKED_WEAKLY]
        found: I64 = sure[first_of(sure)]
        return found

    def place_of(self, values: I64) -> tuple[I64, I64]:
        """Return the lowest offset at which each value is known (-1: none), and its flags."""
        at = find(self.values.value, values)
        return np.append(self.values.first, -1)[at], np.append(self.values.flags, 0)[at]

    def last_place_of(self, values: I64) -> I64:
        """Return the highest offset at which each value is known, or -1."""
        return np.append(self.values.last, -1)[find(self.values.value, values)]

    def values_sent(self, rows: I64) -> I64:
        """Return the row in `values` of each record of the sends at `rows`; -1 if it is unknown."""
        count = self.sends.count[rows]
        if (count == 1).all():
            return self._first_values[rows]
        run, place = expand(count)
        return find(self.values.value, self.sends.value[rows][run] + place)

    @cached_property
    def _first_values(self) -> I64:
        """Return the index in `values` of the first value of each send."""
        order = self._sends_by_value
        found = np.full(len(self.sends), -1)
        found[order] = find(self.values.value, self.sends.value[order])
        return found

    @cached_property
    def _first_records(self) -> tuple[I64, Mask]:
        """Return the lowest offset at which the first record of each send was read, or -1; and
        whether an ok read returned it. What it is for a shared value has no meaning."""
        lowest = np.full(len(self.sends), NEVER)
        ok = np.zeros(len(self.sends), bool)
        read, writer = self.read_records, self.writer_of_read
        rows = np.flatnonzero(writer >= 0)
        rows = rows[read.value[rows] == self.sends.value[writer[rows]]]
        np.minimum.at(lowest, writer[rows], read.offset[rows])
        ok[writer[rows[(read.flags[rows] & READ_OK) != 0]]] = True
        return np.where(lowest == NEVER, -1, lowest), ok

    @cached_property
    def bases(self) -> I64:
        """The offset of each send's first record: as acknowledged, else as it was read, else -1."""
        sends = self.sends
        nowhere = self.is_shared(sends.value) | self.copies_may_go
        first = np.where(nowhere, -1, self._first_records[0])
        return np.where(sends.offset >= 0, sends.offset, first)

    @cached_property
    def first_read(self) -> Mask:
        """Return for each send whether an ok read returned its first record."""
        found: Mask = self._first_records[1] & ~self.is_shared(self.sends.value)
        return found

    def dense(self, offsets: I64) -> I64:
        """Return the dense index of each offset (see `offsets`); at each a record is known."""
        known = self.offsets
        if len(known) and known[-1] - known[0] + 1 == len(known):
            return offsets - int(known[0])
        return np.searchsorted(known, offsets)

    @cached_property
    def known_positions(self) -> KnownPositions:
        """The offsets that were known to hold a record, each with the time since when: the last
        record of each ok send, at its acknowledged offset or else where it was read, and each
        record that a committed read returned."""
        sends, read = self.sends, self.read_records
        writer, t_us = self.writer_of_read, self.proved_at
        # A record that was read before it was sent does not show when it was appended.
        late = writer < 0
        late[~late] = sends.invoke_us[writer[~late]] <= self.read_at[~late]
        last, value = self._farthest(np.flatnonzero(late & (writer >= 0)))
        acked = np.flatnonzero((sends.outcome == Outcome.OK) & (last >= 0))
        late &= t_us < NEVER
        read, t_us = read.take(late), t_us[late]
        found = KnownPositions(
            np.concatenate((sends.complete_us[acked], t_us)),
            np.concatenate((last[acked], read.offset)),
            np.concatenate((value[acked], read.value)),
            np.concatenate((acked, np.full(len(read), -1))),
            np.concatenate((sends.acks[acked] == _ALL_ACKS, np.ones(len(read), dtype=bool))),
        )
        return found.take(order_of((found.t_us, found.offset, found.send, found.value)))

    @cached_property
    def marks(self) -> KnownPositions:
        """The HWs that ok answers stated, if higher than all before, as offsets below which every
        record was known; `value` is the row in `marked_by(send)`."""
        parts = []
        for source in (MARK, MARK - 1):
            reads = self.marked_by(source)
            rows = np.flatnonzero((reads.outcome == Outcome.OK) & (reads.hw >= 0))
            columns = (reads.complete_us[rows], reads.hw[rows], rows, reads.op[rows])
            parts.append((*columns, repeated(source, len(rows))))
        t_us, hw, rows, op, send = (np.concatenate(column) for column in zip(*parts, strict=True))
        found = KnownPositions(t_us, hw, rows, send, np.ones(len(rows), dtype=bool))
        return found.take(rising(hw, t_us, op))

    def marked_by(self, send: int) -> Polls | Marks:
        """Return the reads of which one states a HW, by the `send` of a known position."""
        return self.polls if send == MARK else self.group.of(Marks)

    @cached_property
    def copies_may_go(self) -> bool:
        """Return whether the first copy of a record may be deleted while a later one is there, so
        that reads do not show where a send was appended first."""
        promise = self.group.meta.promise
        deletes = promise.retention or promise.compaction
        return deletes and promise.delivery == "at-least-once"

    def _farthest(self, rows: I64) -> tuple[I64, I64]:
        """Return for each send the offset and the value of its last record: as acknowledged, else
        the highest of its records in `rows` of `read_records`, each at the lowest offset at which
        it was read (-1: none is known)."""
        sends, read = self.sends, self.read_records
        ends = sends.count - 1
        acked = (sends.offset >= 0) & (sends.count > 0)
        last = np.where(acked, sends.offset + ends, -1)
        value = np.where(acked, sends.value + ends, -1)
        rows = rows[~acked[self.writer_of_read[rows]] & ~self.is_shared(read.value[rows])]
        rows = rows[: 0 if self.copies_may_go else None]
        # The rows are in the order of offset: the first of a value has the lowest.
        _, first = np.unique(read.value[rows], return_index=True)
        # Of several records of a send the last assignment stands, that of the highest.
        rows = rows[np.sort(first)]
        writer = self.writer_of_read[rows]
        last[writer], value[writer] = read.offset[rows], read.value[rows]
        return last, value

    @cached_property
    def values(self) -> Values:
        """The distinct values of `placed`, without payloads that cannot be read."""
        return _by_value(self.placed)

    @cached_property
    def values_read(self) -> Values:
        """The distinct values that ok reads returned, with the offsets at which they were read."""
        return _by_value(self.read_records.take((self.read_records.flags & READ_OK) != 0))

    @cached_property
    def log_records(self) -> Records:
        """The records of all logs that were dumped, sorted by offset, value and node."""
        logs = self.logs
        zeros = np.zeros(len(logs), np.int64)
        return merge(logs.offset, logs.value, logs.epoch, zeros, logs.node, logs.count)

    @cached_property
    def committed_log_records(self) -> Records:
        """The rows of `log_records` that are below the HW of their replica."""
        heads = self.group.of(LogHeads)
        logged = self.log_records
        return logged.take(logged.offset < by_node(logged.node, heads, heads.hw))

    @cached_property
    def logged_values(self) -> I64:
        """The distinct values that any dumped log holds."""
        return distinct(self.log_records.value)

    @cached_property
    def deleted_below(self) -> int:
        """The highest offset at which any log began, by dumps, traces or answers, if the run
        promises retention; else 0. Records below may be gone; `checker.checks.retention` judges
        whether they may have been deleted."""
        if not self.group.meta.promise.retention:
            return 0
        heads, deletions = self.group.replica_heads, self.group.of(Deletions)
        stated = self.polls.log_start[self.polls.outcome == Outcome.OK]
        return int(max(c.max(initial=0) for c in (heads.start, deletions.start, stated)))

    @cached_property
    def final_reads(self) -> Polls:
        """The final reads that were answered, as rows of `polls`."""
        return self.polls.take((self.polls.outcome == Outcome.OK) & self.polls.final)

    @cached_property
    def finals_say_nothing(self) -> bool:
        """Return whether final reads were answered, but none of the answers has a record or states
        where the log ends: they may all have waited in vain."""
        finals = self.final_reads
        said = (finals.count > 0) | (finals.hw >= 0) | finals.at_end
        return len(finals) > 0 and not said.any()

    @cached_property
    def final_end(self) -> int:
        """The offset after the last record that a final read returned; 0 if none returned any."""
        return int(self.final_reads.end.max(initial=0))

    def read_of(self, offset: int, value: int) -> tuple[Polls | Contents, int] | None:
        """Return the earliest read that returned this value at this offset (-1: at none), an ok
        read if there is one, and of these one with read_committed: its facts and its row in them.
        None if no read did."""
        best: tuple[int, ...] = ()
        found: tuple[Polls | Contents, int] | None = None
        placed = (self.polls, self.group.of(Contents))
        for reads in placed if offset >= 0 else (self.group.of(Unplaced),):
            place = offset - reads.offset
            if offset < 0:
                place = np.where(reads.value >= 0, value - reads.value, 0)
            same = np.where(reads.value >= 0, reads.value + place, reads.value)
            rows = np.flatnonzero((place >= 0) & (place < reads.count) & (same == value))
            if len(rows):
                failed = 2 * (reads.outcome[rows] != Outcome.OK) + _is_dirty(reads)[rows]
                late = (reads.complete_us, reads.op, reads.seq, reads.idx)
                columns = (failed, *(column[rows] for column in late))
                first = np.lexsort(columns[::-1])[0]
                rank = tuple(int(column[first]) for column in columns)
                if found is None or rank < best:
                    best, found = rank, (reads, int(rows[first]))
        return found

    def holders(self, value: int) -> list[tuple[str, int]]:
        """Return the nodes whose dumped logs hold a value, each with its offset there."""
        rows = np.flatnonzero(self.log_records.value == value)
        found = [
            (self.logs.name(int(self.log_records.node[r])), int(self.log_records.offset[r]))
            for r in rows
        ]
        return sorted(found)


def _is_dirty(reads: Polls | Contents) -> Mask:
    """Select the reads that were made with read_uncommitted."""
    if isinstance(reads, Polls):
        return reads.uncommitted
    found: Mask = (reads.read_as & READ_COMMITTED) == 0
    return found


def evidence(group: Group) -> Evidence:
    """Return the evidence of a group, which is made once and then shared."""
    return group.memo(Evidence)
