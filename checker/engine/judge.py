"""Runs every check on one group and gives back findings; a check that fails hides nothing.

The same function judges a group in process and inside a Spark task.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from checker.checks import (
    agreement,
    exercise,
    liveness,
    logs,
    lost,
    metadata,
    offsets,
    polls,
    reads,
    sends,
    transactions,
    values,
)
from checker.checks.findings import Check, Finding
from checker.evidence.facts import FaultAction, Kind
from checker.evidence.group import Facts, Group
from checker.formats.anomalies import (
    AGREEMENT,
    EXERCISE,
    FROM_ABSENCE,
    LIVENESS,
    LOG,
    LOST_WRITES,
    OFFSETS,
    READS,
)
from checker.output.curves import Curves, curves
from node.formats.trace import METADATA_PARTITION

PARTITION_CHECKS: Final = (
    Check(LOST_WRITES, lost.judge),
    Check(AGREEMENT, agreement.judge),
    Check(OFFSETS, offsets.judge),
    Check(OFFSETS, values.judge),
    Check(OFFSETS, polls.judge),
    Check(OFFSETS, sends.judge),
    Check(OFFSETS, transactions.judge),
    Check(READS, reads.judge),
    Check(LOG, logs.judge),
    Check(LOG, metadata.judge),
    Check(LIVENESS, liveness.judge),
)
RUN_CHECKS: Final = (
    Check(LOG, metadata.judge),
    Check(LIVENESS, liveness.judge_run),
    Check(EXERCISE, exercise.judge_run),
)

# What a group comes to, as rows: `what` is "finding", "problem", "note", "faults" (how many faults
# of the schedule took effect) or "curves".
ROWS: Final = pa.schema(
    [
        ("run", pa.int32()),
        ("partition", pa.string()),
        ("what", pa.string()),
        ("nth", pa.int32()),
        ("body", pa.string()),
    ]
)
NOT_SPLITTABLE: Final = "not-splittable"
SPARK_ROWS: Final = "run int, partition string, what string, nth int, body string"


def findings(group: Group) -> Iterator[Finding]:
    """What every check found, in a fixed order."""
    for check in PARTITION_CHECKS if group.partition else RUN_CHECKS:
        try:
            found = check.judge(group)
        except Exception as error:  # A broken check is one unknown property, not a lost verdict.
            where = f" on {group.partition}" if group.partition else ""
            found = Finding(
                property=check.property,
                error=f"The check of {check.property}{where} failed: "
                f"{type(error).__name__}: {error}",
            )
        yield found if group.history_whole else _without_absence(found)


def _without_absence(found: Finding) -> Finding:
    """In a history with holes what is not there proves nothing."""
    kept = tuple(a for a in found.anomalies if a.name not in FROM_ABSENCE)
    dropped = sorted({a.name for a in found.anomalies} - {a.name for a in kept})
    if found.unknown_values:
        dropped.append("phantom")
    if not dropped:
        return found
    return msgspec.structs.replace(
        found,
        anomalies=kept,
        unknown_values=(),
        unknown_value_count=0,
        unknown=found.unknown
        or f"what looks like {' and '.join(dropped)} may be a hole in the history",
    )


def judge_group(run: int, group: Group) -> pa.Table:
    """Judge one group of facts: one row a finding, problem or note."""
    told = [("finding", msgspec.json.encode(f).decode()) for f in findings(group)]
    told += sentences(group)
    if (drawn := drawn_curves(group)) is not None:
        told.append(("curves", msgspec.json.encode(drawn).decode()))
    columns = list(zip(*told, strict=True)) or [(), ()]
    return pa.table(
        [
            pa.repeat(pa.scalar(run, pa.int32()), len(told)),
            pa.repeat(pa.scalar(group.partition), len(told)),
            pa.array(columns[0], pa.string()),
            pa.array(range(len(told)), pa.int32()),
            pa.array(columns[1], pa.string()),
        ],
        schema=ROWS,
    )


def not_splittable(run: int, partition: str) -> pa.Table:
    """The row of a group that was downsampled and cannot be judged so."""
    return pa.table([[run], [partition], [NOT_SPLITTABLE], [0], [""]], schema=ROWS)


def drawn_curves(group: Group) -> Curves | None:
    """The curves of a partition; no measure is worth a verdict, so one that fails is left out."""
    if not group.partition or group.partition == METADATA_PARTITION:
        return None
    with contextlib.suppress(Exception):
        return curves(group)
    return None


def sentences(group: Group) -> list[tuple[str, str]]:
    """What was told of a group beside findings: "problem", "note", "faults", each with its text."""
    told = [
        (what, str(text))
        for kind, what in ((Kind.PROBLEM, "problem"), (Kind.NOTE, "note"))
        for text in group.of(kind).text
    ]
    if not group.partition:
        told.append(("faults", str(_struck(group.of(Kind.FAULT)))))
    return told


def _struck(faults: Facts) -> int:
    """How many faults took effect, the final heal not counted: injected, and not by their own count
    of effects without any."""
    injected = faults.op[(faults.outcome == FaultAction.INJECT) & (faults.op >= 0)]
    counted = faults.outcome == FaultAction.EFFECT
    vain = np.setdiff1d(faults.op[counted], faults.op[counted & (faults.count > 0)])
    return len(np.setdiff1d(injected, vain))
