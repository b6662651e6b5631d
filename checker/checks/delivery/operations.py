"""Operations of one group in one partition, as columns, and the cases that its checks find.

Times are of operations: `inv` and `end`, with NEVER as the end of one that has no known outcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from checker.evidence.columns import Mask
from checker.evidence.contents import NEVER, Columnar, expand, first_of
from checker.evidence.facts import OP_KINDS, GroupOps, Outcome, Shape
from checker.evidence.sorting import I64, distinct, order_of
from harness.formats.history import show_value
from harness.formats.run_info import GroupPromise

KIND: Final = {name: number for number, name in enumerate(OP_KINDS)}


class Case(NamedTuple):
    """Cases of one anomaly: how many, what happened in the first, in a sentence without its full
    stop, and the rows of `GroupOps` that witness it. `offset`, `value`: of the first record that is
    concerned."""

    anomaly: str
    times: int
    message: str
    rows: Sequence[int] = ()
    offset: int = -1
    value: int = -1


@dataclass(frozen=True)
class Handled(Columnar):
    """Records that were delivered or settled, a row each. `row`: of the operation in `GroupOps`;
    `key`: the identity of the record, its offset or, without one and where the log was `cut`,
    -2 - value if that is known; `place`: its place among all, in the order of operations."""

    row: I64
    place: I64
    key: I64
    value: I64
    offset: I64
    id: I64
    times: I64
    inv: I64
    end: I64
    low: I64

    def named(self, nth: int) -> str:
        """Return the value of a record as a person reads it."""
        return show_value(int(self.value[nth]))


@dataclass(frozen=True)
class StatedPositions(Columnar):
    """Positions that commits asked for, or that fetches were answered."""

    row: I64
    offset: I64
    inv: I64
    end: I64
    epoch: I64
    member: I64
    ok: Mask
    final: Mask


@dataclass(frozen=True)
class Turns(Columnar):
    """The times in which a member owned the partition: from the end of an assignment that names it
    to the begin of the member's next change. `start`: where its polls go on, -1 if that is not
    stated."""

    row: I64
    member: I64
    begin: I64
    stop: I64
    start: I64


class GroupView:
    """The operations of one group that concern one partition, and what was promised."""

    def __init__(self, ops: GroupOps, promise: GroupPromise) -> None:
        self.ops, self.promise = ops, promise
        self.end: I64 = np.where(
            (ops.outcome != Outcome.INFO) & (ops.complete_us >= 0), ops.complete_us, NEVER
        )

    def rows(self, kind: str, shape: Shape) -> I64:
        """Return the rows about operations of a kind, without those that certainly failed."""
        ops = self.ops
        found = (ops.what == KIND[kind]) & (ops.shape == shape) & (ops.outcome != Outcome.FAIL)
        return np.flatnonzero(found)

    def _handled(self, rows: I64) -> Handled:
        ops = self.ops
        run, step = expand(ops.count[rows])
        row = rows[run]
        offset, id = ops.offset[row], ops.id[row]
        value = ops.value[row] + np.where(ops.value[row] >= 0, step, 0)
        offset, id = np.where(offset >= 0, offset + step, -1), np.where(id >= 0, id + step, -1)
        by_offset = (offset >= 0) & ((value < 0) | ~np.isin(offset, self.cut))
        found = Handled(
            row=row,
            place=np.arange(len(row)),
            key=np.where(by_offset, offset, -2 - value),
            value=value,
            offset=offset,
            id=id,
            times=ops.times[row],
            inv=ops.invoke_us[row],
            end=self.end[row],
            low=ops.low_us[row],
        )
        known = (offset >= 0) | (value >= 0)
        return found if known.all() else found.take(known)

    @cached_property
    def cut(self) -> I64:
        """The offsets of which several values were delivered or settled: there the log was cut, and
        has other records since."""
        ops = self.ops
        known = (ops.offset >= 0) & (ops.value >= 0) & (ops.outcome != Outcome.FAIL)
        rows = np.flatnonzero((ops.shape == Shape.RECORDS) & known)
        run, step = expand(ops.count[rows])
        offset, value = ops.offset[rows][run] + step, ops.value[rows][run] + step
        order = order_of((offset,))
        offset, value = offset[order], value[order]
        return distinct(offset[1:][(offset[1:] == offset[:-1]) & (value[1:] != value[:-1])])

    @cached_property
    def delivered(self) -> Handled:
        """The records that polls were given."""
        return self._handled(self.rows("poll", Shape.RECORDS))

    @cached_property
    def settled(self) -> Handled:
        """The records that a member tried to settle: by an ack, or a nack that gives none back."""
        dropped = self.rows("nack", Shape.RECORDS)
        dropped = dropped[~self.ops.requeue[dropped]]
        return self._handled(np.concatenate((self.rows("ack", Shape.RECORDS), dropped)))

    @cached_property
    def requeued(self) -> Handled:
        """The records that a member tried to give back."""
        rows = self.rows("nack", Shape.RECORDS)
        return self._handled(rows[self.ops.requeue[rows]])

    @cached_property
    def keys(self) -> tuple[I64, I64]:
        """The distinct records that were delivered, and the index of each delivery among them."""
        keys, index = np.unique(self.delivered.key, return_inverse=True)
        return keys, index

    @cached_property
    def repeated(self) -> Mask:
        """Select the deliveries of records that were delivered more than once."""
        keys, index = self.keys
        found: Mask = np.bincount(index, minlength=len(keys))[index] > 1
        return found

    @cached_property
    def unanswered(self) -> int:
        """The number of polls of the group that may have been given records which are not known,
        also beside others that are."""
        polls = self.events("poll")
        return int((self.ops.outcome[polls] != Outcome.OK).sum())

    @cached_property
    def possible(self) -> I64:
        """The most deliveries that there can have been of each of `keys`: those known or that a
        count proves, and one for each poll without an answer."""
        keys, index = self.keys
        known = np.bincount(index, minlength=len(keys)).astype(np.int64)
        np.maximum.at(known, index, self.delivered.times)
        return known + self.unanswered

    def first_settled(self, keys: I64) -> I64:
        """Return when the first attempt to settle each of the sorted `keys` began, or NEVER."""
        first = np.full(len(keys), NEVER)
        at = np.searchsorted(keys, self.settled.key)
        known = at < len(keys)
        known[known] = keys[at[known]] == self.settled.key[known]
        np.minimum.at(first, at[known], self.settled.inv[known])
        return first

    def may_be_exhausted(self, possible: I64) -> Mask:
        """Return whether so many deliveries may have used up the limit."""
        limit = self.promise.max_deliver
        found: Mask = (possible >= limit) & (limit >= 0)
        return found

    def positions(self, kind: str) -> StatedPositions:
        """Return the positions of operations of a kind that did not fail."""
        rows, ops = self.rows(kind, Shape.POSITION), self.ops
        return StatedPositions(
            row=rows,
            offset=ops.offset[rows],
            inv=ops.invoke_us[rows],
            end=self.end[rows],
            epoch=ops.epoch[rows],
            member=ops.member[rows],
            ok=ops.outcome[rows] == Outcome.OK,
            final=ops.final[rows],
        )

    def events(self, *kinds: str) -> I64:
        """Return the rows about the operations of some kinds themselves, whatever their outcome."""
        wanted = [KIND[kind] for kind in kinds]
        ops = self.ops
        return np.flatnonzero(np.isin(ops.what, wanted) & (ops.shape == Shape.OPERATION))

    @cached_property
    def owners(self) -> I64:
        """The rows of assignments that ended ok and name the partition."""
        rows = self.rows("assign", Shape.PARTITION)
        found: I64 = rows[self.ops.outcome[rows] == Outcome.OK]
        return found

    @cached_property
    def turns(self) -> Turns:
        """The turns of all owners, by member and begin."""
        ops, rows = self.ops, self.owners
        changes = self.events("assign", "leave", "crash")
        changes = changes[np.lexsort((ops.invoke_us[changes], ops.member[changes]))]
        begins = first_of(ops.member[changes])
        parts = np.split(ops.invoke_us[changes], begins[1:]) if len(begins) else []
        of_member = dict(zip(ops.member[changes[begins]].tolist(), parts, strict=True))
        stop, start = np.full(len(rows), NEVER), np.full(len(rows), -1)
        stated = self.rows("assign", Shape.POSITION)
        by_op = dict(zip(ops.op[stated].tolist(), ops.offset[stated].tolist(), strict=True))
        for n, row in enumerate(rows.tolist()):
            own = of_member[int(ops.member[row])]
            later = own[np.searchsorted(own, ops.invoke_us[row], "right") :]
            stop[n] = later[0] if len(later) else NEVER
            start[n] = by_op.get(int(ops.op[row]), -1)
        found = Turns(rows, ops.member[rows], self.end[rows], stop, start)
        found = found.take(np.lexsort((found.begin, found.member)))
        return found.take(found.begin < found.stop)

    @cached_property
    def quiet(self) -> bool:
        """Return whether the drain shows that nothing of the partition comes any more: all final
        polls ended ok, and none had a record of it for long enough."""
        ops, polls = self.ops, self.events("poll")
        polls = polls[ops.final[polls]]
        if not len(polls) or (ops.outcome[polls] != Outcome.OK).any():
            return False
        some = np.isin(ops.op[polls], ops.op[self.rows("poll", Shape.RECORDS)])
        ends = self.end[polls]
        since = ends[some].max() if some.any() else ops.invoke_us[polls].min()
        span_us = (self.promise.ack_wait_ms + self.promise.redelivery_ms) * 1000
        last = np.flatnonzero(ops.invoke_us[polls] == ops.invoke_us[polls].max())[-1]
        return bool(ends[last] - since >= span_us)

    @cached_property
    def drain_us(self) -> int:
        """The time when the drain began, NEVER if there was none."""
        polls = self.events("poll")
        polls = polls[self.ops.final[polls]]
        return int(self.ops.invoke_us[polls].min()) if len(polls) else int(NEVER)

    @cached_property
    def concerned(self) -> bool:
        """Return whether the group consumes the partition: a member asked for it, owned it or got
        records of it; or no member said for what it asks."""
        ops = self.ops
        named = ops.shape != Shape.OPERATION
        joins = self.events("join")
        return bool(named.any()) or not bool((ops.count[joins] > 0).any())


def highest_before(by: I64, at: I64, what: I64, asked_by: I64, asked_at: I64) -> I64:
    """Return for each question the highest of `what` among the events of the same key before the
    time that it names; -1 if there is none. Nothing of `what` is below 0."""
    order = np.lexsort((at, by))
    key, time = by[order], at[order]
    words, rank = np.unique(what[order], return_inverse=True)
    nth = np.cumsum(np.concatenate(([0], key[1:] != key[:-1]))[: len(key)])
    best: I64 = np.maximum.accumulate(rank + nth * len(words)) - nth * len(words)
    is_event = np.concatenate((np.ones(len(key), bool), np.zeros(len(asked_at), bool)))
    both = np.lexsort((is_event, np.concatenate((time, asked_at)), np.concatenate((key, asked_by))))
    questions = ~is_event[both]
    before = np.maximum.accumulate(np.where(questions, -1, both))[questions]
    asked = both[questions] - len(key)
    found = np.full(len(asked_at), -1, np.int64)
    same = before >= 0
    same[same] = key[before[same]] == asked_by[asked[same]]
    found[asked[same]] = words[best[before[same]]].astype(np.int64)
    return found
