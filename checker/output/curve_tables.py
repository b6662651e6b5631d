"""The tables `unseen` and `lag` of a run, from the curves of all its partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from checker.evidence.run_meta import RunMeta
from checker.ingest import tables
from checker.output.curves import Curves, steps_of

_ALL = ""


def curve_tables(meta: RunMeta, curves: Mapping[str, Curves]) -> dict[str, pa.Table]:
    """Return the tables, sorted by partition and time; the partition "" stands for all together."""
    at = steps_of(meta).end
    made: dict[str, list[tuple[Any, ...]]] = {"unseen": [], "lag": []}
    for partition, own in sorted({**curves, _ALL: _of_all(curves.values())}.items()):
        made["unseen"] += [
            (meta.run, partition, *at(step), acked, left)
            for step, acked, left in _running(own.unseen)
        ]
        made["lag"] += [
            (meta.run, partition, node, leader, *at(step), last, highest)
            for node, leader, step, last, highest in own.lag
        ]
    return {name: tables.from_rows(name, rows) for name, rows in made.items()}


def _of_all(curves: Iterable[Curves]) -> Curves:
    """Return the curves of all partitions as one; a lag is of one follower only."""
    unseen: dict[int, tuple[int, int]] = {}
    for own in curves:
        for step, acked, seen in own.unseen:
            a, b = unseen.get(step, (0, 0))
            unseen[step] = a + acked, b + seen
    return Curves(unseen=tuple((step, *counts) for step, counts in sorted(unseen.items())))


def _running(steps: Iterable[tuple[int, int, int]]) -> Iterable[tuple[int, int, int]]:
    """Yield what was acknowledged so far, and how much of it was not seen yet."""
    acked = left = 0
    for step, more, seen in steps:
        acked, left = acked + more, left + more - seen
        yield step, acked, left


def curves_in_short(made: Mapping[str, pa.Table]) -> dict[str, Any]:
    """Summarise the tables for `results.json`: the worst values, and what is unseen at the end."""
    unseen = [row for row in made["unseen"].to_pylist() if row["partition"] == _ALL]
    lag = made["lag"].to_pylist()
    worst = max(lag, key=lambda row: (row["highest"], -row["at_us"]), default=None)
    return {
        "unseen": {
            "most": max((row["unseen"] for row in unseen), default=0),
            "at_end": unseen[-1]["unseen"] if unseen else 0,
        },
        "lag": {
            "most": worst["highest"] if worst else 0,
            "node": worst["node"] if worst else "",
            "partition": worst["partition"] if worst else "",
        },
    }
