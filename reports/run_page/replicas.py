"""The replicas' logs after the run, read twice: their heads, then only the windows to be shown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from harness.formats.history import LogRun
from node.formats.bounds import Count, Number, Offset
from reports.run_page.files import Notes, json_lines, shown


class _HeadLine(msgspec.Struct, frozen=True):
    """The cheap part of a line of `logs/<node>.jsonl`: no records, no hashes."""

    node: str
    partition: str
    offset: Offset
    count: Count
    hw: Offset = -1
    leo: Offset = -1
    epochs: tuple[tuple[Number, Offset], ...] = ()


@dataclass
class Head:
    """One replica of one partition: log start, LEO, HW, epoch cache; offsets, -1 unknown."""

    node: str
    partition: str
    start: int = 0
    leo: int = -1
    hw: int = -1
    epochs: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Held:
    """What a replica holds at one offset: the value (None unreadable) and its leader epoch."""

    value: int | None
    epoch: int
    hash: str = ""


@dataclass
class Replicas:
    """Heads by (partition, node)."""

    heads: dict[tuple[str, str], Head] = field(default_factory=dict)

    def of(self, partition: str) -> list[Head]:
        """The replicas of one partition, by node name."""
        return [head for (name, _), head in sorted(self.heads.items()) if name == partition]


def read_heads(run_dir: Path | None, notes: Notes) -> Replicas:
    """First pass: how far every replica's log goes. None: the system vouches for no logs."""
    made = Replicas()
    files = [] if run_dir is None else sorted((run_dir / "logs").glob("*.jsonl"))
    if not files:
        notes.add("No replica logs were collected: the offset grid shows only what clients saw.")
    for file in files:
        complete = False
        for line in json_lines(file, _HeadLine, notes):
            if not line.partition:
                complete = True
                continue
            key = (line.partition, line.node)
            head = made.heads.setdefault(key, Head(line.node, line.partition, line.offset))
            if line.count == 0:
                head.start, head.hw, head.epochs = line.offset, line.hw, line.epochs
                head.leo = max(head.leo, line.leo)
            else:
                head.leo = max(head.leo, line.offset + line.count)
        if not complete:
            notes.add(f"{shown(file)} is not complete: the dump of that replica was cut.")
    return made


def read_windows(
    run_dir: Path, windows: Iterable[tuple[str, int, int]], notes: Notes
) -> dict[tuple[str, str], dict[int, Held]]:
    """Second pass: what each replica holds in each (partition, low, high) window.

    Returns {(partition, node): {offset: Held}}.
    """
    wanted: dict[str, list[tuple[int, int]]] = {}
    for partition, low, high in windows:
        wanted.setdefault(partition, []).append((low, high))
    held: dict[tuple[str, str], dict[int, Held]] = {}
    if not wanted:
        return held
    for file in sorted((run_dir / "logs").glob("*.jsonl")):
        for batch in json_lines(file, LogRun, notes):
            for low, high in wanted.get(batch.partition, ()):
                if batch.count and batch.offset < high and batch.offset + batch.count > low:
                    cells = held.setdefault((batch.partition, batch.node), {})
                    cells.update(_cells(batch, low, high))
    return held


def _cells(batch: LogRun, low: int, high: int) -> dict[int, Held]:
    """One batch spread over the offsets of a window."""
    values: dict[int, int] = {}
    for run in batch.records:
        if run.value >= 0:
            for offset in range(max(low, run.offset), min(high, run.offset + run.count)):
                values[offset] = run.value + offset - run.offset
    made = {}
    for offset in range(max(low, batch.offset), min(high, batch.offset + batch.count)):
        made[offset] = Held(values.get(offset), batch.epoch, batch.hash)
    return made
