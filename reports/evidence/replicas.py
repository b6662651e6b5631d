"""The replicas' logs after the run, from their tables: their ends, and windows of their records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from reports.evidence.files import Notes
from reports.evidence.tables import RunTables


@dataclass
class Head:
    """The ends of one replica's log: start, LEO, high watermark, epoch cache. -1: unknown."""

    node: str
    partition: str
    start: int = 0
    leo: int = -1
    hw: int = -1
    epochs: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Held:
    """One offset of a replica's log: the value (None: unreadable) and its leader epoch."""

    value: int | None
    epoch: int
    hash: str = ""


Cells = dict[tuple[str, str], dict[int, Held]]
"""By partition and node: the offsets of a log."""


@dataclass
class Replicas:
    """The ends of replicas' logs by (partition, node), and the batches of the logs as a table."""

    heads: dict[tuple[str, str], Head] = field(default_factory=dict)
    batches: pa.Table = None

    def of(self, partition: str) -> list[Head]:
        """Return the replicas of one partition, by node name."""
        return [head for (name, _), head in sorted(self.heads.items()) if name == partition]

    def held(self, windows: Iterable[tuple[str, int, int]]) -> Cells:
        """Return the records that each replica holds in each (partition, low, high) window."""
        found: Cells = {}
        for partition, low, high in windows:
            for row in self._overlapping(partition, low, high).to_pylist():
                cells = found.setdefault((partition, row["node"]), {})
                begin = row["batch_offset"]
                for at in range(max(low, begin), min(high, begin + row["batch_count"])):
                    inside = row["offset"] <= at < row["offset"] + row["count"]
                    value = row["value"] + at - row["offset"] if inside else -1
                    if row["value"] >= 0 and inside:
                        cells[at] = Held(value, row["epoch"], row["hash"])
                    else:
                        cells.setdefault(at, Held(None, row["epoch"], row["hash"]))
        return found

    def _overlapping(self, partition: str, low: int, high: int) -> pa.Table:
        log = self.batches
        end = pc.add(log["batch_offset"], log["batch_count"])
        inside = pc.and_(pc.less(log["batch_offset"], high), pc.greater(end, low))
        return log.filter(pc.and_(pc.equal(log["partition"], partition), inside))

    def lines(self, places: Iterable[tuple[str, str, int]]) -> Mapping[tuple[str, str, int], int]:
        """Return the line of each (node, partition, offset)'s batch in its log file, if any."""
        found = {}
        for node, partition, offset in places:
            rows = self._overlapping(partition, offset, offset + 1)
            lines = rows.filter(pc.equal(rows["node"], node))["line"].to_pylist()
            if lines:
                found[node, partition, offset] = max(lines)
        return found


def read(tables: RunTables, notes: Notes) -> Replicas:
    """Read the logs of the nodes; a note says if there are none."""
    if not tables.files["log"]:
        notes.add("No replica logs were collected: the offset grid shows only what clients saw.")
    made = Replicas(batches=tables.table("log"))
    for row in tables.table("replicas").to_pylist():
        epochs = tuple((epoch, start) for epoch, start in row["epochs"])
        made.heads[row["partition"], row["node"]] = Head(
            *(row["node"], row["partition"], row["start"], row["leo"], row["hw"]), epochs
        )
    ends = made.batches.append_column(
        "end", pc.add(made.batches["batch_offset"], made.batches["batch_count"])
    )
    of = ends.group_by(["partition", "node"]).aggregate([("batch_offset", "min"), ("end", "max")])
    for row in of.to_pylist():
        key = row["partition"], row["node"]
        head = made.heads.setdefault(key, Head(key[1], key[0], row["batch_offset_min"]))
        head.leo = max(head.leo, row["end_max"])
    return made
