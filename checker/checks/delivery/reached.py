"""Whether every record reached a group: `undelivered` and `not-redelivered`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from checker.checks.delivery.operations import Case, GroupView
from checker.evidence.contents import NEVER, READ_FINAL, Evidence, expand, find
from checker.evidence.facts import ENOUGH_SETTLED, Outcome
from checker.evidence.sorting import I64
from harness.formats.history import show_value


def undelivered(view: GroupView, known: Evidence) -> Iterator[Case]:
    """Find `undelivered`: a record was not delivered, though the drain was quiet, whose send ended
    ok before the drain began, with durable acks, or which a final read returned before."""
    limit = view.promise.max_deliver
    if 0 <= limit <= view.unanswered:
        return
    sends, delivered = known.sends, view.delivered
    done = np.where(sends.complete_us >= 0, sends.complete_us, NEVER)
    sure = (sends.outcome == Outcome.OK) & (done < view.drain_us)
    if known.group.meta.promise.acks == -1:  # else nothing is promised, and the policy allows it
        sure &= sends.acks == -1
    rows = np.flatnonzero(sends.outcome != Outcome.FAIL)
    run, place = expand(sends.count[rows])
    value = sends.value[rows][run] + place
    offset = np.where(sends.offset[rows][run] >= 0, sends.offset[rows][run] + place, -1)
    nameless = (delivered.value < 0) | (not known.has_final_records)
    perhaps = delivered.offset[(delivered.offset >= 0) & nameless]
    missed = ~np.isin(value, delivered.value) & ~np.isin(offset, perhaps)
    missed &= known.is_kept(value)
    read = known.read_records
    early = ((read.flags & READ_FINAL) != 0) & (known.proved_at < view.drain_us)
    missed &= sure[rows][run] | np.isin(value, read.value[early])
    missing = np.flatnonzero(missed)
    if not len(missing):
        return
    first = int(missing[0])
    row = rows[run[first]]
    how = "acknowledged in" if sure[row] else "which a final read returned, of"
    yield Case(
        "undelivered",
        len(missing),
        f"no member ever got value {show_value(int(value[first]))}, "
        f"{how} operation {sends.op[row]}",
        offset=int(offset[first]),
        value=int(value[first]),
    )


def not_redelivered(view: GroupView, known: Evidence) -> Iterator[Case]:
    """Find `not-redelivered`: no member tried to settle a delivered record, its limit cannot be
    used up, and in a drain that was quiet it did not come again. The drain settles all it gets, or
    it is not quiet."""
    keys, index = view.keys
    if not len(keys):
        return
    open_ = (view.first_settled(keys) == NEVER) & ~view.may_be_exhausted(view.possible)
    delivered = view.delivered
    writer = known.outcome_of_writer(delivered.value)
    owed = (writer >= 0) & (writer != Outcome.FAIL) & known.is_kept(delivered.value)
    # An ack of another record at its offset may have come after this one was there.
    perhaps = view.settled.offset if known.has_final_records else view.cut
    owed &= ~(np.isin(delivered.offset, view.cut) & np.isin(delivered.offset, perhaps))
    open_ &= np.bincount(index, owed, len(keys)) > 0
    rows = np.flatnonzero(open_)
    if not len(rows):
        return
    row = _first_row(index, int(rows[0]))
    yield Case(
        "not-redelivered",
        len(rows),
        f"value {delivered.named(row)} was delivered by operation "
        f"{view.ops.op[delivered.row[row]]}, nobody settled it, and it never came again",
        [int(delivered.row[_first_row(index, int(k))]) for k in rows[:8]],
        int(delivered.offset[row]),
        int(delivered.value[row]),
    )


def settles_unknown(view: GroupView) -> int:
    """Return an operation that settles, or gives back, a record that no poll can have been given;
    -1 if there is none."""
    for handled in (view.settled, view.requeued):
        strange = np.flatnonzero(~np.isin(handled.key, view.keys[0]))
        if len(strange) and not view.unanswered:
            return int(view.ops.op[handled.row[strange[0]]])
    return -1


def few_deliveries(view: GroupView) -> Iterator[Case]:
    """Find `few-deliveries`: fewer than 10 records were settled, each once by a member, or commits
    made; or no record was delivered twice, to a group with acks whose deliveries are counted; or
    one member alone owned partitions, in a group with positions."""
    ops = view.ops
    ok = ops.outcome == Outcome.OK
    settling = view.events("ack", "nack", "commit")
    tried = settling[ops.outcome[settling] != Outcome.FAIL]
    settled = int(ops.count[tried].sum())
    times = ops.times[view.events("poll")]
    assigned = view.events("assign")
    owners = len(np.unique(ops.member[assigned[ok[assigned]]]))
    if settled < ENOUGH_SETTLED:
        why = f"{settled} deliveries were settled, and fewer than {ENOUGH_SETTLED} prove nothing"
    elif view.promise.kind == "acks" and times.max(initial=0) == 1:
        why = "no record was delivered twice"
    elif view.promise.kind == "positions" and owners == 1:
        why = "no partition ever had another owner"
    else:
        return
    yield Case("few-deliveries", 1, why)


def _first_row(index: I64, key: int) -> int:
    return int(np.argmax(index == key))


def floor_ahead(view: GroupView, known: Evidence) -> Iterator[Case]:
    """Find `position-ahead` of a group with acks: a fetch states a floor, and below it is a record
    that no member tried to settle before, and whose limit cannot be used up. Nothing is said where
    deliveries or acks state no offsets."""
    reads = view.positions("position")
    reads = reads.take(reads.ok & (reads.offset > 0))
    if not len(reads) or (view.delivered.offset < 0).any() or (view.settled.offset < 0).any():
        return
    offsets = np.setdiff1d(known.kept_offsets, view.cut)
    began = view.first_settled(offsets)
    keys, _ = view.keys
    at = find(keys, offsets)
    possible = np.append(view.possible, view.unanswered)[at]
    began = np.where(view.may_be_exhausted(possible), -1, began)
    latest = np.append(-1, np.maximum.accumulate(began))
    ahead = np.flatnonzero(latest[np.searchsorted(offsets, reads.offset)] >= reads.end)
    if not len(ahead):
        return
    first = int(ahead[0])
    below = offsets[(offsets < reads.offset[first]) & (began >= reads.end[first])]
    yield Case(
        "position-ahead",
        len(ahead),
        f"operation {view.ops.op[reads.row[first]]} was told that everything below "
        f"{reads.offset[first]} is settled, and nobody settled {below[0]}",
        reads.row[ahead].tolist(),
        int(below[0]),
    )
