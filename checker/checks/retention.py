"""Retention: the head of a log is deleted only if it is committed, and only as far as the promised
number of records stays."""

from __future__ import annotations

import numpy as np

from checker.checks.findings import Finding, anomaly, node_witness
from checker.checks.registry import per_partition
from checker.evidence.columns import Mask
from checker.evidence.facts import Deletions, HighWatermarks
from checker.evidence.group import Group
from checker.evidence.needs import Need, missing
from checker.evidence.sorting import I64
from checker.formats.anomalies import LOG, WITNESS_CAP

_NEEDS = (Need.LOGS, Need.DELETIONS)


@per_partition("early-deletion", needs=_NEEDS)
def early_deletion(group: Group) -> Finding:
    """Find `early-deletion`: after a deletion in a trace, or at the end of the run, a log begins so
    late that fewer than `retention_records` committed records are left behind its start."""
    promise = group.meta.promise
    stated = "hw" in group.meta.capabilities and not missing(group, _NEEDS)
    if not promise.retention_records or not stated:
        return Finding(property=LOG)
    deletions, heads, events = group.of(Deletions), group.replica_heads, group.of(HighWatermarks)
    highest = np.append(0, np.maximum.accumulate(events.hw)) if len(events) else np.zeros(1, int)
    then = highest[np.searchsorted(events.t_us, deletions.t_us, side="right")]
    kept = promise.retention_records
    early = np.flatnonzero(_is_early(deletions.start, then, kept))
    began = np.flatnonzero(_is_early(heads.start, np.repeat(highest[-1:], len(heads)), kept))
    examined = len(deletions) + int((heads.start > 0).sum())
    if not len(early) and not len(began):
        return Finding(property=LOG, examined=examined)
    witnesses = [node_witness(deletions, int(row)) for row in early]
    witnesses += [node_witness(heads, int(row)) for row in began]
    first, committed = witnesses[0], int(then[early[0]] if len(early) else highest[-1])
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
        witnesses,
        offset=min(w.offset for w in witnesses[:WITNESS_CAP]),
    )
    return Finding(property=LOG, examined=examined, anomalies=(found,))


def _is_early(start: I64, committed: I64, kept: int) -> Mask:
    """Return which of these log starts lack records that retention had to keep."""
    found: Mask = (start > 0) & (start + kept > committed)
    return found
