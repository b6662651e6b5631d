"""The head of a log is deleted only where it is committed, and never more than retention allows."""

from __future__ import annotations

import numpy as np

from checker.checks.findings import Finding, anomaly, node_witness
from checker.checks.registry import per_partition
from checker.evidence.facts import I64, Kind
from checker.evidence.group import Group, Mask
from checker.evidence.needs import Need, missing
from checker.formats.anomalies import LOG, WITNESS_CAP

_NEEDS = (Need.LOGS, Need.DELETIONS)


@per_partition("early-deletion", needs=_NEEDS)
def judge(group: Group) -> Finding:
    """Judge one partition: each deletion that is traced, and where each log begins at the end."""
    promise = group.meta.promise
    stated = "hw" in group.meta.capabilities and not missing(group, _NEEDS)
    if not promise.retention_records or not stated:
        return Finding(property=LOG)
    deletions, heads, events = group.of(Kind.DELETED), group.replica_heads, group.of(Kind.HW)
    highest = np.append(0, np.maximum.accumulate(events.hw)) if len(events) else np.zeros(1, int)
    then = highest[np.searchsorted(events.t1, deletions.t1, side="right")]
    kept = promise.retention_records
    early = np.flatnonzero(_is_early(deletions.offset, then, kept))
    began = np.flatnonzero(_is_early(heads.offset, np.repeat(highest[-1:], len(heads)), kept))
    examined = len(deletions) + int((heads.offset > 0).sum())
    if not len(early) and not len(began):
        return Finding(property=LOG, examined=examined)
    rows = [(deletions, int(row), Kind.DELETED, int(then[row])) for row in early]
    rows += [(heads, int(row), Kind.LOG_HEAD, int(highest[-1])) for row in began]
    witnesses = [
        node_witness(facts, row, kind, offset=int(facts.offset[row]))
        for facts, row, kind, _ in rows[:WITNESS_CAP]
    ]
    first, committed = witnesses[0], rows[0][3]
    when = f", {group.seconds(first.t_us)} into the storm" if first.t_us >= 0 else ""
    message = (
        f"{first.node} deleted too much of the log of {group.partition}{when}: it began at "
        f"{first.offset}, the highest high watermark was {committed}, and the newest "
        f"{kept:,} committed records are to be kept."
    )
    found = anomaly(
        group,
        "early-deletion",
        message,
        count=len(rows),
        offset=min(w.offset for w in witnesses),
        witnesses=witnesses,
    )
    return Finding(property=LOG, examined=examined, anomalies=(found,))


def _is_early(start: I64, committed: I64, kept: int) -> Mask:
    """Which logs that begin there lack what had to be kept."""
    found: Mask = (start > 0) & (start + kept > committed)
    return found
