"""Curves that the checker counted: acknowledged and unread records, and replication lag.

They come from the tables `unseen` and `lag` of a run folder (docs/file-formats.md): a row is the
end of a step and holds until the next.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from markupsafe import Markup, escape

from reports.charts import svg
from reports.charts.svg import Ints, Panel, TrackRow
from reports.run_page.files import Notes

HEIGHT: Final = 46
MOST_POINTS: Final = 600
MOST_LINES: Final = 4
MOST_PARTITIONS: Final = 3
_AGAIN: Final = "The tables of this run folder do not hold it: judge the run again."


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
class RunCurves:
    """`unseen` by partition ("" all together), `lag` by partition and follower; None: no table."""

    unseen: tuple[Curve, ...] | None = None
    lag: dict[str, tuple[Curve, ...]] | None = None


def read(run_dir: Path, notes: Notes) -> RunCurves:
    """Both tables, as far as they are there."""
    unseen = _table(run_dir, "unseen", ("partition", "at_us", "unseen"), notes)
    lag = _table(run_dir, "lag", ("partition", "node", "at_us", "lag"), notes)
    by_partition: dict[str, tuple[Curve, ...]] = {}
    if lag is not None:
        for name in pc.unique(lag["partition"]).to_pylist():
            own = lag.filter(pc.equal(lag["partition"], name))
            by_partition[name] = _by_name(own, "node", "lag")
    return RunCurves(
        None if unseen is None else _by_name(unseen, "partition", "unseen"),
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


def _by_name(table: pa.Table, by: str, value: str) -> tuple[Curve, ...]:
    made = []
    for name in sorted(pc.unique(table[by]).to_pylist()):
        own = table.filter(pc.equal(table[by], name)).sort_by("at_us")
        t_us = own["at_us"].to_numpy().astype(np.int64)
        made.append(Curve(name, t_us, own[value].to_numpy().astype(np.int64)))
    return tuple(made)


def panels(curves: RunCurves, notes: Notes, axis: svg.Axis, first: Iterable[str]) -> list[Panel]:
    """The two panels of the time view; partitions named in `first` come first."""
    return [_unseen(curves, axis), _lag(curves, notes, axis, list(dict.fromkeys(first)))]


def _unseen(curves: RunCurves, axis: svg.Axis) -> Panel:
    title = "Acknowledged and not yet read"
    if curves.unseen is None:
        return Panel(title, (), note=_AGAIN)
    whole = [curve for curve in curves.unseen if curve.name == ""]
    if not whole:
        return Panel(title, (), note="No write was acknowledged.")
    last = int(whole[0].values[-1]) if len(whole[0].values) else 0
    end = "all had been read by the end" if last == 0 else f"{last:,} never read"
    row = _row("", whole, {"": 0}, axis, f"records; {end}")
    return Panel(title, (row,), note=f"records; {end}")


def _lag(curves: RunCurves, notes: Notes, axis: svg.Axis, first: list[str]) -> Panel:
    title = "Replication lag"
    lag = curves.lag
    if lag is None:
        return Panel(title, (), note=_AGAIN)
    order = [*(name for name in first if name in lag), *(n for n in sorted(lag) if n not in first)]
    shown = order[:MOST_PARTITIONS]
    if len(order) > len(shown):
        notes.add(
            f"Replication lag is drawn for {len(shown)} of {len(order):,} partitions: those with "
            "findings first."
        )
    nodes = sorted({curve.name for name in shown for curve in lag[name]})
    styles = {node: i % MOST_LINES for i, node in enumerate(nodes)}
    rows = tuple(
        _row(name, lag[name], styles, axis, f"{name}: records behind the leader") for name in shown
    )
    legend = Markup("").join(
        Markup(f'<li><i class="key line lag{style}"></i>{escape(node)}</li>')
        for node, style in styles.items()
    )
    return Panel(title, rows, legend, "records behind the leader")


def _row(
    label: str, curves: Iterable[Curve], styles: dict[str, int], axis: svg.Axis, hint: str
) -> TrackRow:
    """Curves over one scale from 0; a line's dashes tell it from the others, not colour alone."""
    drawn = list(curves)[:MOST_LINES]
    top = max([1, *(c.highest(axis.start_us, axis.end_us) for c in drawn)])
    body = [svg.path("rule", f"M0 {HEIGHT - 2}H{svg.UNITS}")]
    body += [
        svg.path(f"lag lag{styles[curve.name]}", _staircase(curve, axis, top)) for curve in drawn
    ]
    scale = ((16.0, f"{top:,}"),)
    return TrackRow(label, svg.drawing(body, HEIGHT), HEIGHT, "chart", hint, scale)


def _staircase(curve: Curve, axis: svg.Axis, top: int) -> str:
    """The curve inside the window, with the value that was in force at its start."""
    before = np.flatnonzero(curve.t_us < axis.start_us)
    inside = np.flatnonzero((curve.t_us >= axis.start_us) & (curve.t_us <= axis.end_us))
    rows = np.concatenate((before[-1:], inside))
    if not len(rows):
        return ""
    if len(rows) > MOST_POINTS:
        rows = _peaks(curve, rows)
    xs = axis.units(curve.t_us[rows]).tolist()
    ys = (HEIGHT - 2 - (HEIGHT - 8) * curve.values[rows] / top).tolist()
    return svg.steps([*zip(xs, ys, strict=True), (svg.UNITS, ys[-1])])


def _peaks(curve: Curve, rows: svg.Ints) -> svg.Ints:
    """Of too many points the highest and the last of each stretch: no peak is lost."""
    kept: list[int] = []
    for part in np.array_split(rows, MOST_POINTS // 2):
        kept += [int(part[int(np.argmax(curve.values[part]))]), int(part[-1])]
    return np.array(sorted(set(kept)), dtype=np.int64)
