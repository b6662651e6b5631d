"""Plots of a run as pictures, for slides and issue trackers: `plots/<name>.png` and `.svg`.

Drawn by matplotlib from what the page draws, in the page's palette. The same folder gives the same
bytes: no date, no random ids, text left as text.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np

from reports import theme, wording
from reports.evidence.model import Plot, RunFolder
from reports.evidence.operations import FAIL, INFO, OK

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


def draw(folder: RunFolder) -> list[Plot]:
    """Return the plots that have something to draw; none for a run in which nothing happened."""
    if not folder.operations.acked.any():
        return []
    made = [
        _plot(
            "operations",
            "Latency, acknowledged writes and unread records",
            folder,
            [_latency, _rate, _unseen],
        )
    ]
    if any(timeline.hw for timeline in folder.cluster.partitions.values()):
        made.append(
            _plot("replication", "High watermarks and replication lag", folder, [_hw, _lag])
        )
    return made


def save(folder: RunFolder, plots: Iterable[Plot]) -> list[Path]:
    """Write both forms of each plot beside the page. Raises ReportError."""
    into = folder.path / FOLDER
    made = []
    try:
        into.mkdir(exist_ok=True)
    except OSError as error:
        raise theme.ReportError(f"{into}: cannot be made: {error.strerror}") from None
    for plot in plots:
        for suffix, content in (("png", plot.png), ("svg", plot.svg)):
            made.append(theme.write(into / f"{plot.name}.{suffix}", content))
    return made


Panel = Callable[[Any, RunFolder, dict[str, str]], None]


def _plot(name: str, title: str, folder: RunFolder, panels: list[Panel]) -> Plot:
    # Slow to import, not needed for a page without operations, and not always installed.
    try:
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise theme.ReportError("matplotlib is missing: install floodmark[plots]") from None

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


def _faults(axis: Any, folder: RunFolder, ink: dict[str, str]) -> None:
    """Faults in force as shades, the first finding as a line."""
    done = [f for f in folder.faults if f.status == "done"]
    for fault in done[:200]:
        colour = ink["unsure"] if fault.on_process else ink["none"]
        start, end = folder.seconds(fault.start_us), folder.seconds(fault.end_us)
        axis.axvspan(
            start,
            max(end, start + 0.02),
            color=colour,
            alpha=0.13,
            linewidth=0,
            hatch=None if fault.on_process else "///",
        )
    times = [a.t_us for a in folder.anomalies if a.t_us >= 0 and a.verdict == "invalid"]
    if times:
        axis.axvline(folder.seconds(times[0]), color=ink["mark"], linewidth=1, linestyle="--")


def _latency(axis: Any, folder: RunFolder, ink: dict[str, str]) -> None:
    ops = folder.operations
    rows = np.flatnonzero(ops.writes & (ops.completed_us >= 0))
    if len(rows) > MOST_DOTS:
        # Evenly over the run, and all that failed: never only the first.
        odd = rows[ops.outcome[rows] != OK]
        rows = np.union1d(rows[:: len(rows) // MOST_DOTS + 1], odd[:: len(odd) // MOST_DOTS + 1])
    at = (ops.completed_us[rows] - folder.zero_us) / 1e6
    took_ms = np.maximum(ops.completed_us[rows] - ops.invoked_us[rows], 1) / 1e3
    for code, name, marker in ((OK, "ok", "."), (FAIL, "fail", "s"), (INFO, "info", "o")):
        own, colour = ops.outcome[rows] == code, ink[name]
        axis.scatter(
            at[own],
            took_ms[own],
            s=7 if code == OK else 12,
            marker=marker,
            label=name,
            facecolors="none" if code == INFO else colour,
            edgecolors=colour,
            linewidths=0.6,
            rasterized=True,
        )
    axis.set_yscale("log")
    axis.set_ylabel("write latency, ms")
    axis.legend(loc="upper right", ncols=3)


def _rate(axis: Any, folder: RunFolder, ink: dict[str, str]) -> None:
    ops = folder.operations
    seconds = (ops.completed_us[ops.acked] - folder.zero_us) // 1_000_000
    low, counts = int(seconds.min()), np.bincount(seconds - int(seconds.min()))
    axis.step(np.arange(low, low + len(counts)), counts, where="post", color=ink["ok"])
    gap = folder.gaps[""]
    if gap.length_us > 250_000:
        axis.plot(
            [folder.seconds(gap.start_us), folder.seconds(gap.end_us)],
            [0, 0],
            color=ink["bad"],
            linewidth=4,
            solid_capstyle="butt",
            label=f"no acknowledgement for {wording.span(gap.length_us)}",
        )
        axis.legend(loc="upper right")
    axis.set_ylabel("acknowledged a second")


def _unseen(axis: Any, folder: RunFolder, ink: dict[str, str]) -> None:
    whole = [c for c in folder.curves.unseen or () if c.name == ""]
    for curve in whole:
        at = (curve.t_us - folder.zero_us) / 1e6
        axis.step(at, curve.values, where="post", color=ink["accent"])
    axis.set_ylabel("acked, unread")
    if not whole:
        axis.text(0.5, 0.5, "not counted", transform=axis.transAxes, ha="center")


def _hw(axis: Any, folder: RunFolder, ink: dict[str, str]) -> None:
    for i, (name, timeline) in enumerate(list(folder.cluster.partitions.items())[:MOST_LINES]):
        if timeline.hw:
            at = [folder.seconds(t) for t, _ in timeline.hw]
            axis.step(
                at,
                [hw for _, hw in timeline.hw],
                where="post",
                linewidth=1,
                linestyle=_DASHES[i],
                color=_line_colour(ink, i),
                label=name,
            )
    axis.set_ylabel("high watermark")
    axis.legend(loc="upper left", ncols=3)


def _lag(axis: Any, folder: RunFolder, ink: dict[str, str]) -> None:
    curves = [
        (f"{name} on {curve.name}", curve)
        for name, own in (folder.curves.lag or {}).items()
        for curve in own
    ]
    curves.sort(key=lambda pair: -int(pair[1].values.max(initial=0)))
    for i, (label, curve) in enumerate(curves[:MOST_LINES]):
        axis.step(
            (curve.t_us - folder.zero_us) / 1e6,
            curve.values,
            where="post",
            linewidth=1,
            linestyle=_DASHES[i],
            color=_line_colour(ink, i),
            label=label,
        )
    axis.set_ylabel("records behind")
    if curves:
        axis.legend(loc="upper left", ncols=3)
    else:
        axis.text(0.5, 0.5, "not counted", transform=axis.transAxes, ha="center")


def _line_colour(ink: dict[str, str], number: int) -> str:
    names = ("accent", "info", "ink", "good", "bad", "muted")
    return ink[names[number % len(names)]]
