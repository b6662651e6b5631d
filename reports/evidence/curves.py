"""Curves that the checker counted: unread acknowledged records, and replication lag.

They come from the tables `unseen` and `lag` of a run folder (docs/file-formats.md): the value of a
row holds until the time of the next row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reports.evidence.tables import RunTables

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Curve:
    """A step function: times (us) and the values from then on; `name` is a partition or a node."""

    name: str
    t_us: Ints
    values: Ints

    def inside(self, start_us: int, end_us: int) -> Ints:
        """Return the rows within a window of time, after the one in force at its start."""
        begin, end = np.searchsorted(self.t_us, [start_us, end_us + 1])
        return np.arange(max(0, begin - 1), end)


Unseen = tuple[Curve, ...] | None
"""By partition ("" all together) the acknowledged records that were not read; None: no table."""
Lag = dict[str, tuple[Curve, ...]] | None
"""By partition the lag of each follower."""


def read(tables: RunTables) -> tuple[Unseen, Lag]:
    """Return the curves of both tables; None for a table that is missing or cannot be read."""
    unseen = tables.measure("unseen", ("partition", "at_us", "unseen"))
    lag = tables.measure("lag", ("partition", "node", "at_us", "lag"))
    by_partition: dict[str, tuple[Curve, ...]] = {}
    if lag is not None:
        for name in pc.unique(lag["partition"]).to_pylist():
            own = lag.filter(pc.equal(lag["partition"], name))
            by_partition[name] = _by_name(own, "node", "lag")
    by_name = None if unseen is None else _by_name(unseen, "partition", "unseen")
    return by_name, None if lag is None else by_partition


def _by_name(table: pa.Table, by: str, value: str) -> tuple[Curve, ...]:
    made = []
    for name in sorted(pc.unique(table[by]).to_pylist()):
        own = table.filter(pc.equal(table[by], name)).sort_by("at_us")
        t_us = own["at_us"].to_numpy().astype(np.int64)
        made.append(Curve(name, t_us, own[value].to_numpy().astype(np.int64)))
    return tuple(made)
