"""Panels of the curves that the checker counted: unread records, and replication lag."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
from markupsafe import Markup, escape

from reports import svg
from reports.evidence.curves import Curve, Ints, Unseen
from reports.evidence.model import RunFolder
from reports.svg import Panel, TrackRow

HEIGHT: Final = 46
MOST_POINTS: Final = 600
MOST_LINES: Final = 4
MOST_PARTITIONS: Final = 3
_AGAIN: Final = "The tables of this run folder do not hold it: judge the run again."


def panels(folder: RunFolder, axis: svg.Axis, first: Iterable[str]) -> list[Panel]:
    """Return the panels of unread records and replication lag; partitions in `first` lead."""
    return [_unseen(folder.unseen, axis), _lag(folder, axis, list(dict.fromkeys(first)))]


def _unseen(unseen: Unseen, axis: svg.Axis) -> Panel:
    title = "Acknowledged and not yet read"
    if unseen is None:
        return Panel(title, (), note=_AGAIN)
    whole = [curve for curve in unseen if curve.name == ""]
    if not whole:
        return Panel(title, (), note="No write was acknowledged.")
    last = int(whole[0].values[-1]) if len(whole[0].values) else 0
    end = "all had been read by the end" if last == 0 else f"{last:,} never read"
    row = _row("", whole, {"": 0}, axis, f"records; {end}")
    return Panel(title, (row,), note=f"records; {end}")


def _lag(folder: RunFolder, axis: svg.Axis, first: list[str]) -> Panel:
    title = "Replication lag"
    lag = folder.lag
    if lag is None:
        return Panel(title, (), note=_AGAIN)
    order = [*(name for name in first if name in lag), *(n for n in sorted(lag) if n not in first)]
    shown = order[:MOST_PARTITIONS]
    if len(order) > len(shown):
        folder.notes.add(
            f"Replication lag is drawn for {len(shown)} of {len(order):,} partitions: those with "
            "findings first."
        )
    nodes = sorted({curve.name for name in shown for curve in lag[name]})
    styles = {node: i % MOST_LINES for i, node in enumerate(nodes)}
    rows = tuple(
        _row(name, lag[name], styles, axis, f"{name}: records behind the leader") for name in shown
    )
    if not rows:
        return Panel(title, (), note="No log end of a replica was recorded while the run went on.")
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
    shown = [(c, c.inside(axis.start_us, axis.end_us)) for c in drawn]
    top = max([1, *(int(c.values[rows].max(initial=0)) for c, rows in shown)])
    body = [svg.path("rule", f"M0 {HEIGHT - 2}H{svg.UNITS}")]
    body += [
        svg.path(f"lag lag{styles[c.name]}", _staircase(c, rows, axis, top)) for c, rows in shown
    ]
    scale = ((16.0, f"{top:,}"),)
    return TrackRow(label, svg.drawing(body, HEIGHT), HEIGHT, "chart", hint, scale)


def _staircase(curve: Curve, rows: Ints, axis: svg.Axis, top: int) -> str:
    if not len(rows):
        return ""
    if len(rows) > MOST_POINTS:
        # The highest and the last point of each stretch: no peak is lost.
        parts = np.array_split(rows, MOST_POINTS // 2)
        kept = {
            int(row) for part in parts for row in (part[np.argmax(curve.values[part])], part[-1])
        }
        rows = np.array(sorted(kept), dtype=np.int64)
    xs = axis.units(curve.t_us[rows]).tolist()
    ys = (HEIGHT - 2 - (HEIGHT - 8) * curve.values[rows] / top).tolist()
    return svg.steps([*zip(xs, ys, strict=True), (svg.UNITS, ys[-1])])
