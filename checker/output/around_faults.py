"""The table of what sends met with before, during and after each fault, and its short form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from checker.evidence.run_meta import RunMeta
from checker.ingest import tables
from checker.ingest.fault_windows import WINDOWS, InjectedFault
from checker.output.measures import Around, Counted, Measured, rounded

# Shorter gaps are not known exactly: see `checker.ingest.counts`.
_KNOWN_FROM_US = 100_000
_NOTHING = (0, 0, 0)


def around_faults(meta: RunMeta, known: Measured, injected: Sequence[InjectedFault]) -> pa.Table:
    """One row a fault and partition, and one ("") for all of them together."""
    counted = {(c.by, c.second, c.name): c for c in known.counted if c.by in WINDOWS}
    around = {(a.nth, a.name): a for a in known.around}
    names = sorted({"", *meta.partitions, *(name for _, _, name in counted)})
    rows = []
    for fault in injected:
        about = (fault.nth, fault.fault, fault.what, fault.on, fault.begin_us)
        end_us = fault.end_us if fault.ended else None
        rows += [
            (
                meta.run,
                *about,
                end_us,
                name,
                *(n for w in WINDOWS for n in _counts(counted.get((w, fault.nth, name)))),
                *_times(fault, around.get((fault.nth, name))),
            )
            for name in names
        ]
    return tables.from_rows("around_faults", rows)


def _counts(found: Counted | None) -> tuple[Any, ...]:
    if found is None:
        return _NOTHING
    return found.ok, found.fail, found.info


def _times(fault: InjectedFault, found: Around | None) -> tuple[float | None, float | None]:
    """The first acknowledgement after the fault's end, and the longest gap; None for none."""
    if found is None:
        return None, None
    first = rounded((found.first_us - fault.end_us) / 1000) if found.first_us >= 0 else None
    return first, rounded(found.gap_us / 1000) if found.gap_us >= _KNOWN_FROM_US else None


def in_short(table: pa.Table) -> list[dict[str, Any]]:
    """Sum up for `results.json`: acknowledged sends of each fault, and the worst partition."""
    made = []
    rows = table.to_pylist()
    for row in rows:
        if row["partition"]:
            continue
        parts = [r for r in rows if r["nth"] == row["nth"] and r["partition"]]
        made.append(
            {
                "fault": row["fault"],
                "what": row["what"],
                "on": row["on"],
                "acked": [row[f"{w}_ok"] for w in WINDOWS],
                "first_ack_ms": _worst(parts, "first_ack_ms"),
                "longest_gap_ms": _worst(parts, "longest_gap_ms"),
            }
        )
    return made


def _worst(rows: Sequence[dict[str, Any]], name: str) -> float | None:
    return max((row[name] for row in rows if row[name] is not None), default=None)
