"""Rows of the table `groups`: what members of consumer groups did, for each partition concerned.

An operation gives a row for each run of records, position or partition that it names, and some give
a row about themselves (`Shape.OPERATION`): each of a member's comings and goings and each poll in
the partition `group:NAME` of the group as a whole; and what every partition of the run must know of
the group, once for each of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from checker.evidence.columns import Rows, Words, rows
from checker.evidence.contents import READ_COMMITTED, READ_OK, READ_OTHER, READ_PROVES
from checker.evidence.facts import (
    ENOUGH_SETTLED,
    OP_KINDS,
    Contents,
    GroupOps,
    Outcome,
    Shape,
    Unplaced,
)
from checker.evidence.sorting import I64
from checker.ingest.join import outcomes
from checker.ingest.tables import Columns
from harness.formats.history import GROUP_PREFIX, Delivered, GroupPosition, Op
from node.formats.trace import METADATA_PARTITION

MEMBERSHIP: Final = ("join", "leave", "crash", "assign")
SETTLING: Final = ("ack", "nack", "commit")
_NOTHING: Final = (-1, 0, -1, -1, 0, -1)
_DENSE: Final = 4096
_MOST_RECORDS: Final = 1 << 17
_STEPS: Final = 64


class GroupRows:
    """The rows of operations of groups, collected one by one. `delivered`: what ok polls were
    given, as partition, first value, count and time."""

    def __init__(self, rebalance_ms: int) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.delivered: list[tuple[str, int, int, int]] = []
        self._step_us = rebalance_ms * 1000 // _STEPS
        self._groups: set[str] = set()
        self._partitions: set[str] = set()
        self._shared: list[tuple[Any, ...]] = []
        # by group what was settled, as far as it is needed: member, partition, record, and the
        # operation of a commit
        self._settled: defaultdict[str, set[tuple[str, str, int, int]]] = defaultdict(set)
        # by group the polls that ended ok and began after its last change of members
        self._steady: dict[str, list[tuple[Any, ...]]] = {}

    def add(self, op: Op, done: Op | None, common: Sequence[Any], since_us: int) -> None:
        """Add the rows of an operation of a group and its completion. `common`: process, client,
        outcome, invocation and completion; `since_us`: when it may have taken effect first."""
        asked, said = op, done or op
        epoch = said.epoch if said.epoch >= 0 else asked.epoch
        requeue, final = asked.requeue and said.requeue, asked.final or said.final
        outcome = common[2]
        partitions = said.partitions or asked.partitions
        seq = 0

        def row(partition: str, shape: Shape, what: Sequence[int]) -> tuple[Any, ...]:
            where = (op.op, seq, partition, *common[:2], op.f, outcome, op.group, op.member)
            return (*where, epoch, *common[3:], since_us, final, requeue, int(shape), *what)

        named = said.deliveries or (asked.deliveries if op.f != "poll" else ())
        runs = [run for given in named for run in given.records]
        times = max((run.times for run in runs), default=0)
        settled = 0
        if op.f in SETTLING and outcome != "fail":
            settled = self._settled_first(op, named, said.positions or asked.positions)
        count = len(partitions) if op.f in MEMBERSHIP else settled
        own = row(GROUP_PREFIX + op.group, Shape.OPERATION, (-1, count, -1, -1, times, -1))
        new = op.group not in self._groups
        self._groups.add(op.group)
        if new or op.f in MEMBERSHIP or op.f == "poll" or settled:
            self.rows.append(own)
        if new or op.f in MEMBERSHIP or (op.f == "poll" and (final or outcome != "ok")):
            self._shared.append(own)
        if op.f in MEMBERSHIP:
            self._steady[op.group] = []
        elif op.f == "poll" and outcome == "ok" and not final:
            self._keep(self._steady.setdefault(op.group, []), own)
        for given in named:
            for run in given.records:
                seq += 1
                what = (run.value, run.count, run.offset, run.id, run.times, -1)
                self.rows.append(row(given.partition, Shape.RECORDS, what))
                if op.f == "poll" and outcome == "ok":
                    self.delivered.append((given.partition, run.value, run.count, common[4]))
        for position in said.positions or asked.positions:
            seq += 1
            what = (-1, 1, position.offset, -1, 0, position.pending)
            self.rows.append(row(position.partition, Shape.POSITION, what))
        for partition in dict.fromkeys(partitions):
            seq += 1
            self.rows.append(row(partition, Shape.PARTITION, _NOTHING))

    def _settled_first(
        self, op: Op, named: Sequence[Delivered], positions: Sequence[GroupPosition]
    ) -> int:
        """Return how many records its member settles that it did not settle before, and positions
        it commits; 0 once enough are known. An ack without an answer is sent again."""
        known = self._settled[op.group]
        before = len(known)
        if before >= ENOUGH_SETTLED:
            return 0
        for given in named:
            for run in given.records:
                for n in range(min(run.count, ENOUGH_SETTLED)):
                    record = run.offset + n if run.offset >= 0 else -2 - run.value - n
                    known.add((op.member, given.partition, record, -1))
        known |= {(op.member, at.partition, at.offset, op.op) for at in positions}
        return len(known) - before

    def _keep(self, polls: list[tuple[Any, ...]], own: tuple[Any, ...]) -> None:
        """Keep a poll after the last change of members; of very many only as many as show that the
        members poll all the time."""
        if len(polls) > _DENSE and own[10] < polls[-2][10] + self._step_us:
            polls[-1] = own
        else:
            polls.append(own)

    def close(self, partitions: Iterable[str]) -> None:
        """Give every partition of the run what it must know of each group."""
        if not self._groups:
            return
        known = {*partitions, *(row[2] for row in self.rows)} - {"", METADATA_PARTITION}
        shared = {row[0]: row for row in self._shared}
        shared |= {row[0]: row for polls in self._steady.values() for row in polls}
        for partition in sorted(p for p in known if not p.startswith(GROUP_PREFIX)):
            self.rows += ((*row[:2], partition, *row[3:]) for row in shared.values())

    @property
    def partitions(self) -> set[str]:
        """The partitions of the rows."""
        return {row[2] for row in self.rows}


def group_facts(run: int, table: Columns) -> Iterator[Rows]:
    """Yield the facts of some rows of the table `groups`: the operations, and what their deliveries
    show of the contents of partitions."""
    codes, words = table["f"]
    kind: I64 = np.array([OP_KINDS.index(word) for word in words], np.int64)[codes]
    outcome, count = outcomes(table["outcome"]), table["count"]
    if ((count < 0) | (count > _MOST_RECORDS)).any():
        raise ValueError(f"a run of records is longer than {_MOST_RECORDS}")
    own = {name: table[name] for name in GroupOps.columns.keys() & table.keys()}
    yield rows(GroupOps, run, table["partition"], **{**own, "outcome": outcome, "what": kind})
    shown = (kind == OP_KINDS.index("poll")) & (table["shape"] == Shape.RECORDS)
    shown &= outcome != Outcome.FAIL
    same = ("op", "seq", "process", "complete_us", "offset", "value", "count")
    client, partition, placed = table["client"], table["partition"], table["offset"] >= 0
    for kind_of, which in ((Contents, shown & placed), (Unplaced, shown & ~placed)):
        if not len(index := np.flatnonzero(which)):
            continue
        columns: dict[str, Any] = {name: table[name][index] for name in same}
        ok = outcome[index] == Outcome.OK
        yield rows(
            kind_of,
            run,
            Words(partition.codes[index], partition.words),
            client=Words(client.codes[index], client.words),
            outcome=outcome[index],
            read_as=np.where(ok, READ_OK | READ_PROVES, READ_OTHER) | READ_COMMITTED,
            **columns,
        )
