"""Polls in order: skips and steps back, between the polls of one process and inside one poll.

Distances are counted in dense indices, the places among those offsets at which any record is known:
a gap without a known record is no skip. The classes are those of Jepsen's Kafka checker, with two
changes: a poll without records is not what the next poll is compared with (it would hide a skip),
and a record counts at the offset at which it was read.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from checker.checks.cases import Cases, Examined, Unknown
from checker.checks.findings import read_witness
from checker.checks.registry import Check
from checker.evidence.columns import Mask
from checker.evidence.contents import Evidence, evidence, first_of
from checker.evidence.facts import Polls
from checker.evidence.group import Group
from checker.evidence.needs import Need
from checker.evidence.positions import begins_at, proves_nothing, stood, undeleted_from
from checker.evidence.sorting import I64
from checker.formats.anomalies import OFFSETS
from checker.formats.verdict import Witness

_WEAK = "it passed over records that were only acknowledged, with acks 0 or 1, and may be lost"
_SUBSCRIBED = "a subscribed consumer may be moved by a rebalance"


POLLS = Check(OFFSETS, (Need.HISTORY,))


def _starts(known: Evidence) -> tuple[Polls, Mask, I64]:
    """Return the runs of records, which rows of all polls they are, and where each had to begin."""
    some = known.polls.count > 0
    return known.polls.take(some), some, begins_at(known.polls)[some]


class _Moves:
    """The runs `after`, which follow the runs `before` (or themselves, if they follow none) and had
    to begin at `stands`. `back`: a run begins below. `ahead`: it passed over known records that had
    not been deleted. `weak`: it passed over none but those known from acknowledgements with acks 0
    or 1, which may be lost and leave a gap for ever. `doubtful`: it passed over records that may
    have been deleted. `moved`: a rebalance may have moved the reader before."""

    def __init__(
        self, known: Evidence, reads: Polls, rows: tuple[I64, I64], stands: I64, moved: Mask
    ) -> None:
        self.reads, self.stands, self.moved = reads, stands, moved
        # If a read states that it began elsewhere, the one before explains nothing.
        self.before, self.after = np.where(reads.end[rows[0]] == stands, *rows), rows[1]
        begin, floor = reads.offset[self.after], undeleted_from(known, reads)[self.after]
        low = np.maximum(stands, np.minimum(floor, begin))
        self.back: Mask = begin < stands
        self.ahead: Mask = _any_between(known.offsets, low, begin)
        self.weak: Mask = ~_any_between(known.sure_offsets, low, begin)
        gone = np.minimum(np.maximum(stands, known.deleted_below), begin)
        self.doubtful: Mask = _any_between(known.sure_offsets, gone, low) & ~moved


def _any_between(offsets: I64, low: I64, high: I64) -> Mask:
    found: Mask = np.searchsorted(offsets, low) < np.searchsorted(offsets, high)
    return found


@POLLS.finds("int-nonmonotonic-poll", "int-poll-skip")
def inside_polls(group: Group) -> Iterator[Cases | Examined | Unknown]:
    """Compare successive runs of records of one poll; a rebalance may move it meanwhile. A read
    that states its start is compared with that. Find `int-nonmonotonic-poll`: a record is not above
    the one before. Find `int-poll-skip`: another known record stands between."""
    known = evidence(group)
    reads, _, begin = _starts(known)
    if not len(reads):
        return
    yield Examined(known.polls_with_records)
    after = np.flatnonzero((reads.op[1:] == reads.op[:-1]) & ~reads.rebalanced[1:]) + 1
    stands = np.where(begin[after] >= 0, begin[after], reads.end[after - 1])
    moves = _Moves(known, reads, (after - 1, after), stands, np.zeros(len(after), bool))
    yield from _reported(group, moves, "int-", "inside one poll")


@POLLS.finds("nonmonotonic-poll", "poll-skip")
def between_polls(group: Group) -> Iterator[Cases | Examined | Unknown]:
    """Compare a poll with where it states to begin, or else with where its process stood after its
    last ok polls. Find `nonmonotonic-poll`: its first record is below that. Find `poll-skip`:
    another known record stands between."""
    known = evidence(group)
    reads, some, begin = _starts(known)
    if not len(reads):
        return
    after = first_of(reads.op)
    last, at, moved = group.memo(stood)
    # If polls before it were left out, it continued the last of them.
    went_on = np.where(known.follows, -1, at)[some][after]
    stands = np.where(begin[after] >= 0, begin[after], went_on)
    rows = stands >= 0
    between = (np.cumsum(some) - 1)[last[some][after]][rows], after[rows]
    may_move = moved[some][after] & (begin[after] < 0)
    moves = _Moves(known, reads, between, stands[rows], may_move[rows])
    yield from _reported(group, moves, "", "between polls")


def _reported(group: Group, moves: _Moves, prefix: str, where: str) -> Iterator[Cases | Unknown]:
    """Yield the cases of these moves, those that are allowed apart."""
    back, skip = f"{prefix}nonmonotonic-poll", f"{prefix}poll-skip"
    if moves.doubtful.any():
        yield Unknown(proves_nothing(group, skip))
    for name, which, allowed in (
        (back, moves.back & ~moves.moved, ""),
        (back, moves.back & moves.moved, _SUBSCRIBED),
        (skip, moves.ahead & ~moves.moved & ~moves.weak, ""),
        (skip, moves.ahead & ~moves.moved & moves.weak, _WEAK),
        (skip, moves.ahead & moves.moved, _SUBSCRIBED),
    ):
        yield _cases(moves, name, where, np.flatnonzero(which), allowed)


def _cases(moves: _Moves, name: str, where: str, rows: I64, allowed: str) -> Cases:
    reads, before, after = moves.reads, moves.before, moves.after

    def shown(row: int) -> Iterator[Witness]:
        yield read_witness(reads, int(after[row]))
        if (first := int(before[row])) != after[row]:
            last, span = int(reads.end[first]) - 1, int(reads.value[first])
            value = span + int(reads.count[first]) - 1 if span >= 0 else span
            yield read_witness(reads, first, offset=last, value=value)

    def words(row: int) -> dict[str, str]:
        if before[row] == after[row]:
            then = f"though it began at {moves.stands[row]}"
            return {"where": "at the start of a read", "then": then}
        return {"where": where, "then": f"after offset {reads.end[before[row]] - 1}"}

    did = "skipped records" if name.endswith("skip") else "went back or repeated"
    return Cases(
        f"{{n:time}} a consumer of {{partition}} {did} {{where}}: "
        "{a:op} got offset {a.offset} {then}, {a:when}.",
        rows[np.lexsort((reads.op[after[rows]], reads.offset[after[rows]]))],
        shown,
        words,
        name=name,
        allowed=allowed,
    )
