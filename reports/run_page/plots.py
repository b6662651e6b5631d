"""Plots of a run as pictures, for slides and issue trackers: `plots/<name>.png` and `.svg`.

Drawn by matplotlib from what the page draws, in the page's palette. The same folder gives the same
bytes: no date, no random ids, text left as text."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from node.formats.files import make_folder
from reports import theme, wording
from reports.evidence.model import Plot, RunFolder
from reports.evidence.operations import OUTCOMES

FOLDER: Final = "plots"
MOST_DOTS: Final = 20_000
MOST_LINES: Final = 6
_STYLE: Final[dict[Any, Any]] = {
    "svg.hashsalt": "floodmark",
    "svg.fonttype": "none",
    "font.size": 8,
    "axes.grid": True,
    "grid.linewidth": 0.4,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.dpi": 110,
    "legend.frameon": False,
    "path.simplify": True,
}
_DASHES: Final = ("-", "--", ":", "-.", (0, (8, 2)), (0, (1, 3)))
_INKS: Final = ("accent", "info", "ink", "good", "bad", "muted")
Ink = dict[str, str]
Panel = Callable[[Any, RunFolder, Ink], None]
Line = tuple[str, Any, Any]
"""A staircase: its label, times in seconds, values."""


def draw(folder: RunFolder) -> list[Plot]:
    """Return the plots that have something to draw; none for a run in which nothing happened."""
    if not folder.operations.acked.any():
        return []
    title = "Latency, acknowledged writes and unread records"
    made = [_plot("operations", title, folder, [_latency, _rate, _unseen])]
    if any(timeline.hw for timeline in folder.cluster.partitions.values()):
        title = "High watermarks and replication lag"
        made.append(_plot("replication", title, folder, [_hw, _lag]))
    return made


def save(folder: RunFolder, plots: Iterable[Plot]) -> list[Path]:
    """Write each plot beside the page, as PNG and as SVG. Raises ReportError, StorageError."""
    into = folder.path / FOLDER
    made = []
    make_folder(into, folder.path)
    for plot in plots:
        for suffix, content in (("png", plot.png), ("svg", plot.svg)):
            made.append(theme.write(into / f"{plot.name}.{suffix}", content, folder.path))
    return made


def _plot(name: str, title: str, folder: RunFolder, panels: list[Panel]) -> Plot:
    # Slow to import, not needed for a page without operations, and not always installed.
    try:
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise theme.ReportError(
            "plots need matplotlib, which is missing: pip install '.[plots]' in a clone"
        ) from None

    ink = theme.colours("light")
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(9, 1 + 1.75 * len(panels)), layout="constrained")
        axes = np.atleast_1d(figure.subplots(len(panels), 1, sharex=True))
        for axis, panel in zip(axes, panels, strict=True):
            panel(axis, folder, ink)
            _faults(axis, folder, ink)
        axes[-1].set_xlabel("seconds since the storm began; shaded: faults in force")
        figure.suptitle(f"{wording.clip(folder.name, 80)} ({folder.verdict}): {title}", fontsize=9)
        png, svg = io.BytesIO(), io.BytesIO()
        FigureCanvasAgg(figure)
        figure.savefig(png, format="png", metadata={"Software": None})
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
    return Plot(name, title, png.getvalue(), svg.getvalue())


def _faults(axis: Any, folder: RunFolder, ink: Ink) -> None:
    done = [f for f in folder.faults if f.status == "done"]
    for fault in done[:200]:
        colour, hatch = (ink["unsure"], None) if fault.kind.on_processes else (ink["none"], "///")
        start, end = folder.seconds(fault.start_us), folder.seconds(fault.end_us)
        end = max(end, start + 0.02)
        axis.axvspan(start, end, color=colour, alpha=0.13, linewidth=0, hatch=hatch)
    times = [a.t_us for a in folder.anomalies if a.t_us >= 0 and a.verdict == "invalid"]
    if times:
        axis.axvline(folder.seconds(times[0]), color=ink["mark"], linewidth=1, linestyle="--")


def _latency(axis: Any, folder: RunFolder, ink: Ink) -> None:
    ops = folder.operations
    rows = np.flatnonzero(ops.writes & (ops.completed_us >= 0))
    if len(rows) > MOST_DOTS:
        # Evenly over the run, and all that failed: never only the first.
        odd = rows[ops.outcome[rows] != OUTCOMES.index("ok")]
        rows = np.union1d(rows[:: len(rows) // MOST_DOTS + 1], odd[:: len(odd) // MOST_DOTS + 1])
    at = (ops.completed_us[rows] - folder.zero_us) / 1e6
    took_ms = np.maximum(ops.completed_us[rows] - ops.invoked_us[rows], 1) / 1e3
    for code, (name, marker) in enumerate(zip(OUTCOMES, ".so", strict=True)):
        own = ops.outcome[rows] == code
        look = {"s": 12 if code else 7, "marker": marker, "linewidths": 0.6, "rasterized": True}
        face = "none" if name == "info" else ink[name]
        axis.scatter(
            at[own], took_ms[own], label=name, facecolors=face, edgecolors=ink[name], **look
        )
    axis.set_yscale("log")
    axis.set_ylabel("write latency, ms")
    axis.legend(loc="upper right", ncols=3)


def _lines(axis: Any, what: str, lines: Sequence[Line], ink: Ink) -> None:
    axis.set_ylabel(what)
    for i, (label, at, values) in enumerate(lines[:MOST_LINES]):
        look = {"color": ink[_INKS[i]], "linestyle": _DASHES[i], "linewidth": 1}
        axis.step(at, values, where="post", label=label, **look)
    if any(label for label, _, _ in lines):
        axis.legend(loc="upper left", ncols=3)
    if not lines:
        axis.text(0.5, 0.5, "not counted", transform=axis.transAxes, ha="center")


def _rate(axis: Any, folder: RunFolder, ink: Ink) -> None:
    ops = folder.operations
    seconds = (ops.completed_us[ops.acked] - folder.zero_us) // 1_000_000
    low, counts = int(seconds.min()), np.bincount(seconds - int(seconds.min()))
    gap = folder.gaps[""]
    if gap.length_us > 250_000:
        at = [folder.seconds(gap.start_us), folder.seconds(gap.end_us)]
        label = f"no acknowledgement for {wording.span(gap.length_us)}"
        axis.plot(at, [0, 0], color=ink["bad"], linewidth=4, solid_capstyle="butt", label=label)
        axis.legend(loc="upper right")
    _lines(axis, "acknowledged a second", [("", range(low, low + len(counts)), counts)], ink)


def _unseen(axis: Any, folder: RunFolder, ink: Ink) -> None:
    whole = [c for c in folder.unseen or () if c.name == ""]
    lines = [("", (c.t_us - folder.zero_us) / 1e6, c.values) for c in whole]
    _lines(axis, "acked, unread", lines, ink)


def _hw(axis: Any, folder: RunFolder, ink: Ink) -> None:
    known = [(name, each.hw) for name, each in folder.cluster.partitions.items() if each.hw]
    lines = [(name, [folder.seconds(t) for t, _ in hw], [n for _, n in hw]) for name, hw in known]
    _lines(axis, "high watermark", lines, ink)


def _lag(axis: Any, folder: RunFolder, ink: Ink) -> None:
    curves = [(name, c) for name, own in (folder.lag or {}).items() for c in own]
    curves.sort(key=lambda pair: -int(pair[1].values.max(initial=0)))
    lines = [(f"{n} on {c.name}", (c.t_us - folder.zero_us) / 1e6, c.values) for n, c in curves]
    _lines(axis, "records behind", lines, ink)
