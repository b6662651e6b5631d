"""Appends in order: of one process, inside one operation, and in real time across producers."""

from __future__ import annotations

import numpy as np

from checker.catalogue import OFFSETS, WITNESS_CAP
from checker.evidence import READ_OK, Evidence, evidence, expand, find
from checker.facts import I64, Outcome
from checker.findings import Finding, anomaly, plural, send_witness, who
from checker.group import Facts, Group, Mask
from checker.verdict import Anomaly
from harness.history import show_value

_ALL_ACKS = -1
_WEAK = "acks 0 or 1 do not promise that a record keeps its place"


def judge(group: Group) -> Finding:
    """Judge one partition."""
    known = evidence(group)
    found = [*_of_process(group, known), *_inside(group, known), *_realtime(group, known)]
    return Finding(property=OFFSETS, examined=len(known.sends), anomalies=tuple(found))


def _bases(known: Evidence, sends: Facts) -> I64:
    """Base offset of each send: as acknowledged, else learned from a read of its first record."""
    values = known.values
    at = find(values.value, sends.value)
    learned = np.where(at >= 0, values.first[at], -1) if len(values.value) else at
    return np.where(sends.offset >= 0, sends.offset, learned)


def _of_process(group: Group, known: Evidence) -> list[Anomaly]:
    """nonmonotonic-send: an operation's first send lands at or before the previous one's last."""
    sends = known.sends.take((known.sends.outcome != Outcome.FAIL) & (known.sends.count > 0))
    base = _bases(known, sends)
    sends, base = sends.take(base >= 0), base[base >= 0]
    order = np.lexsort((sends.seq, sends.op, sends.process))
    sends, base = sends.take(order), base[order]
    last = base + sends.count - 1
    after = np.arange(1, len(sends))
    wrong = (sends.process[1:] == sends.process[:-1]) & (sends.op[1:] != sends.op[:-1])
    wrong &= base[1:] <= last[:-1]
    weak = (sends.idx[1:] != _ALL_ACKS) | (sends.idx[:-1] != _ALL_ACKS)
    found = []
    for mask, allowed in ((wrong & ~weak, ""), (wrong & weak, _WEAK)):
        if mask.any():
            rows = after[mask]
            found.append(
                _tell(group, sends, base, last, "nonmonotonic-send", rows - 1, rows, allowed)
            )
    return found


def _inside(group: Group, known: Evidence) -> list[Anomaly]:
    """int-nonmonotonic-send: two records of one operation land out of the order they were sent."""
    sends = known.sends.take(known.sends.count > 0)
    run, place = expand(sends.count)
    values = known.values
    value = sends.value[run] + place
    at = find(values.value, value)
    offset = np.where(at >= 0, values.first[at], -1) if len(values.value) else at
    # A send that failed has no place, unless somebody read it after all.
    read = (at >= 0) & ((values.flags[at] & READ_OK) != 0) if len(values.value) else at >= 0
    known_at = (offset >= 0) & ((sends.outcome[run] != Outcome.FAIL) | read)
    run, value, offset = run[known_at], value[known_at], offset[known_at]
    wrong = np.flatnonzero((sends.op[run[1:]] == sends.op[run[:-1]]) & (offset[1:] <= offset[:-1]))
    if not len(wrong):
        return []
    witnesses = []
    for i in wrong[: WITNESS_CAP // 2]:
        witnesses += [
            send_witness(sends, int(run[j]), offset=int(offset[j]), value=int(value[j]))
            for j in (i + 1, i)
        ]
    late, early = witnesses[:2]
    return [
        anomaly(
            group,
            "int-nonmonotonic-send",
            f"{plural(len(wrong), 'record')} of {group.partition} out of order inside their own "
            f"operation: {who(late)} sent value {show_value(early.value)} before "
            f"{show_value(late.value)}, which are at offsets {early.offset} and {late.offset}.",
            count=len(wrong),
            offset=late.offset,
            witnesses=witnesses,
        )
    ]


def _realtime(group: Group, known: Evidence) -> list[Anomaly]:
    """A was acknowledged before B was invoked, yet A stands behind B."""
    sends = known.sends.take(known.committed & (known.sends.count > 0))
    base = _bases(known, sends)
    sends, base = sends.take(base >= 0), base[base >= 0]
    last = base + sends.count - 1
    acknowledged = (sends.outcome == Outcome.OK) & (sends.t1 >= 0) & (sends.offset >= 0)
    certain = (sends.idx == _ALL_ACKS) | _was_read(known, sends)
    found = []
    strong = _inversions(sends, base, last, acknowledged & (sends.idx == _ALL_ACKS), certain)
    every = _inversions(sends, base, last, acknowledged, np.ones(len(sends), dtype=bool))
    weak = {b: a for b, a in every.items() if b not in strong}
    for pairs, allowed in ((strong, ""), (weak, _WEAK)):
        if pairs:
            after = np.array(list(pairs))
            before = np.array(list(pairs.values()))
            found.append(_tell(group, sends, base, last, "realtime-order", before, after, allowed))
    return found


def _was_read(known: Evidence, sends: Facts) -> Mask:
    """Sends whose first record an ok read returned."""
    values = known.values
    if not len(values.value):
        return np.zeros(len(sends), dtype=bool)
    at = find(values.value, sends.value)
    found: Mask = (at >= 0) & ((values.flags[at] & READ_OK) != 0)
    return found


def _inversions(sends: Facts, base: I64, last: I64, earlier: Mask, later: Mask) -> dict[int, int]:
    """For each `later` send that stands before an `earlier` one acknowledged before it was
    invoked: the one that stands farthest behind."""
    a = np.flatnonzero(earlier)
    b = np.flatnonzero(later & (sends.t0 >= 0))
    if not len(a) or not len(b):
        return {}
    a = a[np.lexsort((sends.op[a], sends.t1[a]))]
    farthest = np.maximum.accumulate(last[a])
    # Where the running maximum was last raised: the send it belongs to.
    raised = np.concatenate(([True], farthest[1:] > farthest[:-1]))
    owner = a[np.maximum.accumulate(np.where(raised, np.arange(len(a)), 0))]
    before = np.searchsorted(sends.t1[a], sends.t0[b], side="left")
    wrong = (before > 0) & (farthest[np.maximum(before - 1, 0)] > base[b])
    return dict(zip(b[wrong].tolist(), owner[before[wrong] - 1].tolist(), strict=True))


def _tell(
    group: Group, sends: Facts, base: I64, last: I64, name: str, before: I64, after: I64,
    allowed: str,
) -> Anomaly:  # fmt: skip
    """Pairs of sends in the wrong order as one anomaly."""
    order = np.lexsort((sends.op[after], base[after]))
    before, after = before[order], after[order]
    witnesses = []
    for a, b in zip(before[: WITNESS_CAP // 2], after[: WITNESS_CAP // 2], strict=True):
        witnesses.append(send_witness(sends, int(b), offset=int(base[b])))
        witnesses.append(
            send_witness(
                sends, int(a), offset=int(last[a]),
                value=int(sends.value[a] + sends.count[a] - 1),
            )
        )  # fmt: skip
    late, early = witnesses[:2]
    relation = (
        "the same process had sent before"
        if name == "nonmonotonic-send"
        else f"was acknowledged {group.seconds(early.t_us)} into the storm, before"
        " the other was invoked"
    )
    message = (
        f"{plural(len(after), 'send')} to {group.partition} out of order: {who(late)} landed at "
        f"offset {late.offset}, in front of offset {early.offset} of {who(early)}, which "
        f"{relation}."
    )
    return anomaly(
        group, name, message, count=len(after), offset=late.offset, witnesses=witnesses,
        allowed=allowed,
    )  # fmt: skip
