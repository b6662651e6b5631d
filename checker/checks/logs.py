"""Invariants of one replica's log: no holes, rising leader epochs, unchanged bytes, an epoch cache
that matches the batches."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from checker.checks.findings import Finding, anomaly, node_witness, plural
from checker.checks.registry import per_partition
from checker.evidence.contents import evidence, first_of
from checker.evidence.facts import Batches, EpochEntries, LogHeads, Truncations
from checker.evidence.group import Group
from checker.evidence.needs import Need
from checker.evidence.sorting import I64
from checker.formats.anomalies import LOG, WITNESS_CAP
from checker.formats.verdict import Anomaly


@per_partition(
    "corrupt-batch",
    "log-hole",
    "epoch-regression",
    "hw-beyond-log",
    "epoch-cache-mismatch",
    needs=(Need.LOGS,),
)
def judge(group: Group) -> Finding:
    """Judge each replica's log of one partition by itself."""
    heads, logs, cache = group.of(LogHeads), group.of(Batches), group.of(EpochEntries)
    found: dict[str, list[Anomaly]] = {}
    for row in range(len(heads)):
        # A record missing from a broken dump must not look like a hole in the log.
        if not heads.complete[row]:
            continue
        node = heads.node[row]
        own = logs.take(logs.node == node)
        for each in _of_replica(group, heads, row, own, cache.take(cache.node == node)):
            found.setdefault(each.name, []).append(each)
    cuts = group.of(Truncations)
    if (beyond := _cut_below_high_watermark(group, cuts)) is not None:
        found.setdefault(beyond.name, []).append(beyond)
    return Finding(
        property=LOG,
        examined=len(heads) + len(logs),
        anomalies=tuple(_joined(same) for same in found.values()),
    )


def _joined(same: list[Anomaly]) -> Anomaly:
    """Join the findings of one anomaly on several replicas."""
    if len(same) == 1:
        return same[0]
    return msgspec.structs.replace(
        same[0],
        count=sum(a.count for a in same),
        offset=min(a.offset for a in same),
        witnesses=tuple(w for a in same for w in a.witnesses[:8])[:WITNESS_CAP],
    )


def _of_replica(
    group: Group, heads: LogHeads, row: int, log: Batches, cache: EpochEntries
) -> Iterator[Anomaly]:
    """Find what is wrong with one replica's log. `log-hole`: its batches are not contiguous, do not
    end at the log end that the dump states, or begin above an offset that had a record.
    `epoch-regression`: a batch has a lower leader epoch than the one before it. `corrupt-batch`:
    the prefix hash that is kept beside a batch is not that of its stored bytes.
    `epoch-cache-mismatch`: the epoch cache is not the one recomputed from the batches."""
    node, of = heads.name(int(heads.node[row])), group.partition
    expected = np.concatenate((heads.start[row : row + 1], log.end[:-1]))[: len(log)]
    holes = np.flatnonzero(log.offset != expected)
    if len(holes):
        at = int(holes[0])
        yield _report(
            group,
            "log-hole",
            log,
            holes,
            f"The log of {of} on {node} is not contiguous: a batch begins at {log.offset[at]} "
            f"where {expected[at]} was due.",
        )
    start = int(heads.start[row])
    known = evidence(group).offsets
    early = int(np.searchsorted(known, start))
    if early and node in group.replicas and not group.meta.promise.retention:
        yield anomaly(
            group,
            "log-hole",
            f"The log of {of} on {node} begins at {start}, and {plural(early, 'offset')} below it "
            f"had a record, the first {known[0]}.",
            [node_witness(heads, row)],
            count=early,
            offset=int(known[0]),
        )
    end = int(log.end[-1]) if len(log) else int(heads.start[row])
    if heads.leo[row] >= 0 and end != heads.leo[row]:
        yield _report(
            group,
            "log-hole",
            heads,
            np.array([row]),
            f"The log of {of} on {node} is said to end at {heads.leo[row]}, and its batches end "
            f"at {end}.",
        )
    if heads.hw[row] > heads.leo[row] >= 0:
        yield _report(
            group,
            "hw-beyond-log",
            heads,
            np.array([row]),
            f"The high watermark of {of} on {node} is {heads.hw[row]}, and its log ends at "
            f"{heads.leo[row]}.",
        )
    back = np.flatnonzero((log.epoch[1:] < log.epoch[:-1]) & (log.epoch[1:] >= 0)) + 1
    if len(back):
        at = int(back[0])
        yield _report(
            group,
            "epoch-regression",
            log,
            back,
            f"Leader epochs go back along the log of {of} on {node}: from {log.epoch[at - 1]} to "
            f"{log.epoch[at]} at offset {log.offset[at]}.",
        )
    corrupt = np.flatnonzero((log.stored_hash != 0) & (log.stored_hash != log.hash))
    if len(corrupt):
        yield _report(
            group,
            "corrupt-batch",
            log,
            corrupt,
            f"{plural(len(corrupt), 'stored hash value')} of {of} on {node} not that of the stored "
            f"bytes, first of the batch at offset {log.offset[corrupt[0]]}: bytes changed "
            "after they were written.",
        )
    if (wrong := _cache_mismatch(log, cache, start)) is not None:
        yield _report(
            group,
            "epoch-cache-mismatch",
            heads,
            np.array([row]),
            f"The epoch cache of {of} on {node} {wrong}.",
        )


def _cut_below_high_watermark(group: Group, cuts: Truncations) -> Anomaly | None:
    """Find `hw-beyond-log`: the HW of a replica is above its log end, here after a truncation, if
    only until the leader's next answer. If the replica leads or stops before that, it holds for
    committed what it does not have."""
    rows = np.flatnonzero((cuts.leo >= 0) & (cuts.hw > cuts.leo))
    if not len(rows):
        return None
    row = int(rows[0])
    witnesses = [
        node_witness(cuts, int(each), offset=int(cuts.leo[each])) for each in rows[:WITNESS_CAP]
    ]
    when = group.seconds(witnesses[0].t_us)
    return anomaly(
        group,
        "hw-beyond-log",
        f"{witnesses[0].node} truncated its log of {group.partition} to {cuts.leo[row]}, {when} "
        f"into the storm, and left its high watermark at {cuts.hw[row]}.",
        witnesses,
        count=len(rows),
        offset=int(cuts.leo[row]),
    )


def _report(group: Group, name: str, facts: LogHeads | Batches, rows: I64, message: str) -> Anomaly:
    return anomaly(group, name, message, [node_witness(facts, int(row)) for row in rows])


def _cache_mismatch(log: Batches, cache: EpochEntries, log_start: int) -> str | None:
    """Return how the epoch cache differs from one recomputed from the batches, or None. A leader
    enters its epoch before it has a record in it (KAFKA-7415), so entries at the end of the log
    need no batch. A batch without an epoch is damaged, or of a message format that has none: that
    clears the cache."""
    if not (log.epoch >= 0).any() or not len(cache):
        return None
    wrong = _differs(log.take(log.epoch >= 0), int(log.end[-1]), cache, log_start)
    bare = np.flatnonzero(log.epoch < 0)
    if wrong and len(bare):
        later = log.take(np.arange(bare[-1] + 1, len(log)))
        wrong = wrong if _differs(later, int(log.end[-1]), cache, log_start) else None
    return wrong


def _differs(stamped: Batches, leo: int, cache: EpochEntries, log_start: int) -> str | None:
    """Return how the epoch cache differs from one recomputed from these batches, or None. For a
    deleted head the cache may keep the epoch of its last record, at that offset; the first batch
    may be of the same epoch."""
    starts = first_of(stamped.epoch)
    due = list(zip(stamped.epoch[starts].tolist(), stamped.offset[starts].tolist(), strict=True))
    kept = [
        (epoch, start)
        for epoch, start in zip(cache.epoch.tolist(), cache.start.tolist(), strict=True)
        if start < leo
    ]
    if kept and kept[0][1] == log_start - 1:
        if due and due[0][0] == kept[0][0]:
            del due[0]
        del kept[0]
    if kept == due:
        return None
    differ = next((i for i, (a, b) in enumerate(zip(kept, due, strict=False)) if a != b), None)
    at = min(len(kept), len(due)) if differ is None else differ
    has = f"epoch {kept[at][0]} from {kept[at][1]}" if at < len(kept) else "no more entries"
    should = f"epoch {due[at][0]} from {due[at][1]}" if at < len(due) else "no more entries"
    return f"has {has} where its batches have {should}"
