"""Curves that the checker counted, read from the tables `unseen` and `lag` of a run folder.

docs/file-formats.md describes them: a row is the end of a step and holds until the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reports.run_page.files import Notes

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Curve:
    """A staircase: times (us) and values; `name` is a partition or a node."""

    name: str
    t_us: Ints
    values: Ints

    def highest(self, start_us: int, end_us: int) -> int:
        """The greatest value in force in a window."""
        inside = (self.t_us >= start_us) & (self.t_us <= end_us)
        before = np.flatnonzero(self.t_us < start_us)
        known = [*self.values[inside].tolist(), *self.values[before[-1:]].tolist()]
        return max(known, default=0)


@dataclass(frozen=True)
class Curves:
    """`unseen` by partition ("" all together), `lag` by partition and follower; None: no table."""

    unseen: tuple[Curve, ...] | None = None
    lag: dict[str, tuple[Curve, ...]] | None = None


def read(run_dir: Path, notes: Notes) -> Curves:
    """Both tables, as far as they are there."""
    unseen = _table(run_dir, "unseen", ("partition", "at_us", "unseen"), notes)
    lag = _table(run_dir, "lag", ("partition", "node", "at_us", "lag"), notes)
    by_partition: dict[str, tuple[Curve, ...]] = {}
    if lag is not None:
        for name in pc.unique(lag["partition"]).to_pylist():
            own = lag.filter(pc.equal(lag["partition"], name))
            by_partition[name] = _curves(own, "node", "lag")
    return Curves(
        None if unseen is None else _curves(unseen, "partition", "unseen"),
        None if lag is None else by_partition,
    )


def _table(run_dir: Path, name: str, columns: tuple[str, ...], notes: Notes) -> pa.Table | None:
    folder = run_dir / "tables"
    file = next((f for f in (folder / f"{name}.parquet", folder / name) if f.exists()), None)
    if file is None:
        return None
    try:
        return pq.read_table(file, columns=list(columns))
    except (OSError, pa.ArrowException) as error:
        notes.add(f"tables/{file.name} cannot be read: {str(error).splitlines()[0]}.")
        return None


def _curves(table: pa.Table, by: str, value: str) -> tuple[Curve, ...]:
    made = []
    for name in sorted(pc.unique(table[by]).to_pylist()):
        own = table.filter(pc.equal(table[by], name)).sort_by("at_us")
        t_us = own["at_us"].to_numpy().astype(np.int64)
        made.append(Curve(name, t_us, own[value].to_numpy().astype(np.int64)))
    return tuple(made)
