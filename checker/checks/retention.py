"""Retention: the head of a log is deleted only if it is committed, and only as far as the promised
number of records stays."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from checker.checks.cases import Cases, Examined
from checker.checks.findings import node_witness
from checker.checks.registry import Check
from checker.evidence.columns import Mask
from checker.evidence.facts import Deletions, HighWatermarks
from checker.evidence.group import Group
from checker.evidence.needs import Need, missing
from checker.evidence.sorting import I64
from checker.formats.anomalies import LOG, WITNESS_CAP

RETENTION = Check(LOG, (Need.LOGS, Need.DELETIONS))


@RETENTION.finds("early-deletion")
def early_deletion(group: Group) -> Iterator[Cases | Examined]:
    """Find `early-deletion`: after a deletion in a trace, or at the end of the run, a log begins so
    late that fewer than `retention_records` committed records are left behind its start."""
    promise = group.meta.promise
    stated = "hw" in group.meta.capabilities and not missing(group, RETENTION.needs)
    if not promise.retention_records or not stated:
        return
    deletions, heads, events = group.of(Deletions), group.replica_heads, group.of(HighWatermarks)
    highest = np.append(0, np.maximum.accumulate(events.hw))
    then = highest[np.searchsorted(events.t_us, deletions.t_us, side="right")]
    kept = promise.retention_records
    early = np.flatnonzero(_is_early(deletions.start, then, kept))
    began = np.flatnonzero(_is_early(heads.start, np.repeat(highest[-1:], len(heads)), kept))
    yield Examined(len(deletions) + int((heads.start > 0).sum()))
    witnesses = [node_witness(deletions, int(row)) for row in early]
    witnesses += [node_witness(heads, int(row)) for row in began]
    yield Cases(
        "{a.node} deleted too much of the log of {partition}{when}: it began at {a.offset}, the "
        "highest high watermark was {committed}, and the newest {kept:,} committed records are to "
        "be kept.",
        witnesses,
        lambda witness: [witness],
        lambda first: {
            "when": f", {group.seconds(first.t_us)} into the storm" if first.t_us >= 0 else "",
            "committed": then[early[0]] if len(early) else highest[-1],
            "kept": kept,
        },
        offset=min((w.offset for w in witnesses[:WITNESS_CAP]), default=None),
    )


def _is_early(start: I64, committed: I64, kept: int) -> Mask:
    """Return which of these log starts lack records that retention had to keep."""
    found: Mask = (start > 0) & (start + kept > committed)
    return found
