"""Charts of acknowledgements: latency by outcome, rate per second, longest gaps between them."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from reports import svg, wording
from reports.evidence.model import RunFolder
from reports.evidence.operations import FAIL, INFO, OK
from reports.svg import Panel, TrackRow

LATENCY_HEIGHT: Final = 150
RATE_HEIGHT: Final = 84
MOST_DOTS: Final = 5_000
LEAST_FOR_QUANTILES: Final = 400
"""Of fewer dots each can be seen."""
QUANTILES: Final = {"p50": (0.5, "median"), "p99": (0.99, "99th percentile")}

Ints = npt.NDArray[np.int64]


def latency(folder: RunFolder, axis: svg.Axis) -> Panel:
    """Draw each completed write as a dot by completion time and latency, and quantiles."""
    ops = folder.operations
    done = ops.writes & (ops.completed_us >= 0)
    rows = np.flatnonzero(
        done & (ops.completed_us >= axis.start_us) & (ops.completed_us <= axis.end_us)
    )
    if not len(rows):
        return Panel("Write latency", (), note="No write was completed in this window.")
    took = np.maximum(ops.completed_us[rows] - ops.invoked_us[rows], 1)
    low = math.floor(math.log10(float(took.min())))
    high = max(low + 1, math.ceil(math.log10(float(took.max())) - 1e-9))

    def height(decade: Any) -> Any:
        return (LATENCY_HEIGHT - 4) * (1 - (decade - low) / (high - low)) + 2

    decades, y = range(low, high + 1), height(np.log10(took))
    x, outcome = axis.units(ops.completed_us[rows]), ops.outcome[rows]
    body = [svg.path("rule", "".join(f"M0 {height(d):.4g}H{svg.UNITS}" for d in decades))]
    for code, kind in ((OK, "dot-ok"), (FAIL, "dot-fail"), (INFO, "dot-info")):
        body += _dots(x[outcome == code], y[outcome == code], kind, folder, len(rows))
    legend, ok = _LATENCY_LEGEND, outcome == OK
    for name, (q, meaning) in QUANTILES.items():
        if line := _quantile(x[ok], y[ok], q):
            body.append(svg.path(f"quantile {name}", line))
            legend += Markup(f'<li><i class="key line {name}"></i>{meaning} of ok</li>')
    scale = tuple((100 * height(d) / LATENCY_HEIGHT, _decade(d)) for d in decades)
    row = TrackRow("", svg.drawing(body, LATENCY_HEIGHT), LATENCY_HEIGHT, "chart", scale=scale)
    return Panel("Write latency, by outcome", (row,), legend)


def _decade(exponent: int) -> str:
    """Return a short label for ten to the `exponent` microseconds."""
    unit, power = (("µs", exponent), ("ms", exponent - 3), ("s", exponent - 6))[
        min(2, max(0, exponent // 3))
    ]
    return f"{10**power:,} {unit}"


def _dots(
    x: Ints, y: npt.NDArray[np.float64], kind: str, folder: RunFolder, total: int
) -> list[Markup]:
    """Dots of one outcome; many are snapped to a raster and each raster point drawn once."""
    if total <= MOST_DOTS:
        d = svg.dots(x, np.round(y, 1).tolist())
    else:
        folder.notes.add(
            "Latency dots are snapped to a raster of one to two pixels and drawn once each."
        )
        d = _raster(x, np.round(y / 2).astype(np.int64))
    under = [svg.path(kind, d)]
    # A smaller dot in the colour of the page over each unknown one makes it a ring.
    return [*under, svg.path("dot-hole", d)] if kind == "dot-info" else under


def _raster(x: Ints, rows: Ints) -> str:
    """Dots snapped to raster cells (rows are 2 px high); neighbours in a row become one line."""
    coarse = svg.UNITS // svg.BINS
    drawn = []
    for row in np.unique(rows).tolist():
        cells = np.unique(x[rows == row]) // coarse * coarse
        low, high = svg.merge(cells, cells, coarse)
        pairs = zip(low.tolist(), (high - low).tolist(), strict=True)
        drawn += [f"M{a} {row * 2}h{w}" for a, w in pairs]
    return "".join(drawn)


def _quantile(x: Ints, y: npt.NDArray[np.float64], q: float) -> str:
    """Return a quantile of the dots' heights by time bin, as a line that skips thin bins."""
    if len(x) < LEAST_FOR_QUANTILES:
        return ""
    bins = min(120, max(10, len(x) // 20))
    where = x * bins // (svg.UNITS + 1)
    points: list[str] = []
    begun = False
    if np.count_nonzero(np.bincount(where, minlength=bins) >= 4) < 8:
        return ""
    for b in range(bins):
        inside = y[where == b]
        if len(inside) < 4:
            begun = False
            continue
        at = (b + 0.5) * svg.UNITS / bins
        points.append(f"{'L' if begun else 'M'}{at:.0f} {np.quantile(inside, 1 - q):.4g}")
        begun = True
    return "".join(points)


def rate(folder: RunFolder, axis: svg.Axis) -> Panel:
    """Draw the acknowledged writes per second, and the longest gap without any."""
    ops = folder.operations
    times = ops.completed_us[ops.acked]
    times = times[(times >= axis.start_us) & (times <= axis.end_us)]
    if not len(times):
        return Panel(
            "Acknowledged writes per second", (), note="No write was acknowledged in this window."
        )
    width = max(int(svg.nice_step(axis.length_us / 1e6 / 300) * 1e6), 100_000)
    width = max(width, 1_000_000) if axis.length_us > 10_000_000 else width
    # Bins start at storm start, so that the same second is the same bin in every view.
    first = (axis.start_us - axis.zero_us) // width
    bins = np.bincount((times - axis.zero_us) // width - first)
    per_second = bins * (1e6 / width)
    top = svg.nice_step(float(per_second.max()))
    points = [
        (
            int(axis.units(np.array([axis.zero_us + (first + i) * width]))[0]),
            RATE_HEIGHT - 2 - (RATE_HEIGHT - 6) * value / top,
        )
        for i, value in enumerate([*per_second.tolist(), 0.0])
    ]
    outline = svg.steps(points)
    floor = RATE_HEIGHT - 2
    body = [
        svg.path("rule", f"M0 4H{svg.UNITS}M0 {floor}H{svg.UNITS}"),
        svg.path("area", f"{outline}V{floor}H{points[0][0]}Z"),
        svg.path("outline", outline),
    ]
    drawn = svg.drawing(body, RATE_HEIGHT) + _gap_mark(folder, axis)
    scale = ((100 * 4 / RATE_HEIGHT, f"{top:,.0f}/s"), (100 * floor / RATE_HEIGHT, "0"))
    row = TrackRow("", drawn, RATE_HEIGHT, "chart", scale=scale)
    note = "" if width == 1_000_000 else f"counted in steps of {wording.span(width)}"
    return Panel("Acknowledged writes per second", (row,), note=note)


def _gap_mark(folder: RunFolder, axis: svg.Axis) -> Markup:
    gap = folder.gaps.get("")
    if gap is None or gap.length_us < 250_000 or not axis.covers(gap.start_us, gap.end_us):
        return Markup("")
    text = f"no ack for {wording.span(gap.length_us)}"
    side = " left" if axis.fraction(gap.start_us) > 0.45 else ""
    title, place = f"{text} from {axis.label(gap.start_us)}", axis.place(gap.start_us, gap.end_us)
    return svg.element("span", f"gap{side}", place, Markup("<em>{}</em>").format(text), title=title)


_LATENCY_LEGEND: Final = Markup(
    '<li><i class="key dot ok"></i>ok</li><li><i class="key dot fail"></i>fail</li>'
    '<li><i class="key dot info"></i>info</li>'
)
