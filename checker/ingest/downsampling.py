"""Downsampling of operations to those that the checks of a whole run rest on.

Whether a run was exercised depends on how many operations there were, when the first and the last
send was acknowledged, and the longest time in which nothing was invoked. So of a part of a history
a few operations are kept: the first and last one invoked in each of some hundred periods of the
storm (a silence that counts is far longer), and the earliest and latest one that shows progress.
`count` says how many operations a kept one stands for.

An operation that sent something shows progress if it ends ok. With acks=0 no send ends ok; then a
poll before the final reads shows progress if it returned records.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from checker.evidence.columns import Rows, rows
from checker.evidence.facts import Outcome, SampledOps
from checker.evidence.run_meta import RunMeta
from checker.evidence.sorting import I64
from checker.ingest.joined import outcomes
from checker.ingest.tables import Columns
from harness.formats.run_info import Phases

STRETCHES: Final = 256


def downsample_operations(run: int, meta: RunMeta, ops: Columns) -> list[Rows]:
    """Return facts of a few of these operations, which stand for all. All that the schedule itself
    names (`step` is not -1) are kept."""
    names = ("invoke_us", "complete_us", "sent", "polled", "step")
    invoke_us, complete_us, sent, polled, step = (ops[name] for name in names)
    outcome = outcomes(ops["outcome"])
    if not len(invoke_us):
        return []
    progress = sent > 0
    if not meta.promise.acks:
        progress = (polled > 0) & ((invoke_us < meta.phases.final_us) | (meta.phases.final_us == 0))
    acked = progress & (outcome == Outcome.OK)
    wanted = (_of_stretches(meta.phases, invoke_us), _ends(complete_us, acked))
    kept = np.unique(np.concatenate((*wanted, np.flatnonzero(step >= 0))))
    count = np.ones(len(kept), np.int64)
    # The others are counted with a kept one that is like them in all that checks use.
    for like in (True, False):
        same = np.flatnonzero(acked[kept] == like)
        total = int((acked == like).sum())
        if total and not len(same):
            extra = np.flatnonzero(acked == like)[:1]
            kept, count = np.append(kept, extra), np.append(count, total)
        elif total:
            count[same[0]] += total - len(same)
    return [
        rows(
            SampledOps,
            run,
            "",
            op=kept,
            invoke_us=invoke_us[kept],
            complete_us=complete_us[kept],
            progress=progress[kept],
            outcome=outcome[kept],
            count=count,
            step=step[kept],
        )
    ]


def _of_stretches(phases: Phases, invoke_us: I64) -> I64:
    """Return the first and last operation invoked in each period of the storm, before and after."""
    begin, end = phases.storm_us, max(phases.heal_us, phases.storm_us)
    order = np.argsort(invoke_us, kind="stable")
    sorted_us = invoke_us[order]
    stretch = np.clip((sorted_us - begin) // ((end - begin) // STRETCHES + 1), -1, STRETCHES)
    stretch[sorted_us > end] = STRETCHES + 1
    new = np.flatnonzero(np.diff(stretch)) + 1
    return order[np.concatenate(([0], new - 1, new, [len(order) - 1]))]


def _ends(complete_us: I64, acked: I64) -> I64:
    """Return the operations acknowledged first and last, if any was."""
    rows = np.flatnonzero(acked)
    if not len(rows):
        return rows
    return np.array([rows[np.argmin(complete_us[rows])], rows[np.argmax(complete_us[rows])]])
