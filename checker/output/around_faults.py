"""The table of the outcomes of sends before, during and after each fault, and a summary of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from checker.evidence.run_meta import RunMeta
from checker.ingest import tables
from checker.ingest.fault_windows import WINDOWS, InjectedFault
from checker.output.measures import Measured, rounded

# Shorter gaps are not known exactly: see `checker.ingest.counts`.
_KNOWN_FROM_US = 100_000


def around_faults(meta: RunMeta, known: Measured, injected: Sequence[InjectedFault]) -> pa.Table:
    """Return the table: one row for each fault and partition, and one for each fault with the
    partition "", for all partitions together."""
    counted = {(c.by, c.nth, c.name): (c.ok, c.fail, c.info) for c in known.counted}
    rows = []
    for fault in injected:
        for name in sorted({"", *meta.partitions, *(n for by, _, n in counted if by in WINDOWS)}):
            first_us, gap_us = (at.get((fault.nth, name)) for at in (known.first_us, known.gap_us))
            rows.append(
                (
                    *(meta.run, fault.nth, fault.fault, fault.what, fault.on, fault.begin_us),
                    *(fault.end_us if fault.ended else None, name),
                    *(n for w in WINDOWS for n in counted.get((w, fault.nth, name), (0, 0, 0))),
                    None if first_us is None else rounded((first_us - fault.end_us) / 1000),
                    rounded(gap_us / 1000) if gap_us and gap_us >= _KNOWN_FROM_US else None,
                )
            )
    return tables.from_rows("around_faults", rows)


def in_short(table: pa.Table) -> list[dict[str, Any]]:
    """Summarise the table for `results.json`: for each fault the acknowledged sends before, during
    and after it, and the worst values of any partition."""
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
