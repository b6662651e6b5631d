"""Drawing primitives of the time view: one time axis, compact paths, packed intervals.

Every drawing is stretched to the width of its track (`preserveAspectRatio="none"`), so a page fits
a phone and a wide screen alike. Strokes do not scale (CSS `vector-effect`), and only shapes that
survive stretching are used: horizontal and vertical lines, and dots, which are zero-length lines
with round caps. Elements with text are HTML, placed by the custom properties `--a` (start) and
`--w` (width), both fractions of the axis: a zoom only has to change two numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt
from markupsafe import Markup, escape

UNITS: Final = 10_000
BINS: Final = 1_250
Ints = npt.NDArray[np.int64]
T = TypeVar("T")


@dataclass(frozen=True)
class AxisTick:
    """A label on the axis at a fraction of its width; every other one is `minor`, for phones."""

    at: float
    label: str
    minor: bool


@dataclass(frozen=True)
class Axis:
    """The shared time axis: a window of monotonic microseconds, labelled in s since `zero_us`."""

    start_us: int
    end_us: int
    zero_us: int

    @property
    def length_us(self) -> int:
        """The length of the window; at least 1, so that an empty run still has an axis."""
        return max(1, self.end_us - self.start_us)

    def fraction(self, t_us: float) -> float:
        """Return the position of a moment: 0 is the start and 1 the end of the window; clipped."""
        return min(1.0, max(0.0, (t_us - self.start_us) / self.length_us))

    def covers(self, start_us: int, end_us: int | None = None) -> bool:
        """Return whether a moment or an interval shows in the window."""
        end = start_us if end_us is None else end_us
        return end >= self.start_us and start_us <= self.end_us

    def units(self, t_us: Ints) -> Ints:
        """Return times as horizontal drawing units 0..UNITS, clipped to the window."""
        scaled = (t_us - self.start_us) * (UNITS / self.length_us)
        return np.clip(np.round(scaled), 0, UNITS).astype(np.int64)

    def place(self, start_us: int, end_us: int | None = None, *, top: int = -1) -> Markup:
        """Return the style that puts an HTML element at a moment or over an interval, `top` pixels
        below the upper edge of its track."""
        a = self.fraction(start_us)
        width = "" if end_us is None else f";--w:{self.fraction(end_us) - a:.5g}"
        return Markup(f"--a:{a:.5g}{width}{f';top:{top}px' if top >= 0 else ''}")

    def fitting(self, start_us: int, end_us: int, text: str) -> str:
        """Return a text if it fits over an interval, else "": the tooltip has it."""
        return text if self.fraction(end_us) - self.fraction(start_us) > 0.008 * len(text) else ""

    def label(self, t_us: int) -> str:
        """Return a moment in seconds since the storm began."""
        return f"{(t_us - self.zero_us) / 1e6:.3f} s"

    def ticks(self, wanted: int = 10) -> list[AxisTick]:
        """Return about `wanted` ticks at round times."""
        seconds = self.length_us / 1e6
        step = nice_step(seconds / wanted)
        places = max(0, -math.floor(math.log10(step) + 1e-9))
        low, high = self.start_us - self.zero_us, self.end_us - self.zero_us
        first, last = math.ceil(low / 1e6 / step - 1e-9), math.floor(high / 1e6 / step + 1e-9)
        made = []
        for i in range(first, last + 1):
            at = self.fraction(self.zero_us + i * step * 1e6)
            made.append(AxisTick(at, f"{i * step:,.{places}f}", bool(i % 2)))
        return made


@dataclass(frozen=True)
class TrackRow:
    """One row over the axis: a label in the gutter, a drawing in the track (CSS px high)."""

    label: str
    body: Markup
    height: int
    kind: str = ""
    hint: str = ""
    scale: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True)
class Panel:
    """A titled group of rows; `legend` names its shapes and colours."""

    title: str
    rows: tuple[TrackRow, ...]
    legend: Markup = field(default_factory=Markup)
    note: str = ""


def nice_step(rough: float) -> float:
    """Return the least number 1, 2 or 5 times a power of ten that is at least `rough`."""
    power = 10.0 ** math.floor(math.log10(max(rough, 1e-9)))
    return next(m * power for m in (1.0, 2.0, 5.0, 10.0) if m * power >= rough * 0.999)


def merge(start: Ints, end: Ints, gap: int) -> tuple[Ints, Ints]:
    """Join intervals (sorted by start) that overlap or lie within `gap` of each other."""
    if not len(start):
        return start, end
    reach = np.maximum.accumulate(end)
    opens = np.concatenate(([True], start[1:] > reach[:-1] + gap))
    closes = np.concatenate((opens[1:], [True]))
    return start[opens], reach[closes]


def bars(start: Ints, end: Ints, y: float) -> str:
    """Return the path data of horizontal bars at height `y`; a very short bar is still visible."""
    widths = np.maximum(end - start, 12)
    pairs = zip(start.tolist(), widths.tolist(), strict=True)
    return "".join(f"M{x} {y:g}h{w}" for x, w in pairs)


def dots(x: Ints, y: Iterable[float]) -> str:
    """Return the path data of dots at x at heights `y`."""
    return "".join(f"M{a} {b:g}h0" for a, b in zip(x.tolist(), y, strict=True))


def ticks(x: Ints, top: float, height: float) -> str:
    """Return the path data of vertical ticks `height` long, whose upper ends are at `top`."""
    return "".join(f"M{a} {top:g}v{height:g}" for a in np.unique(x).tolist())


def steps(points: Sequence[tuple[int, float]]) -> str:
    """Return the path data of a staircase: each value holds until the next point."""
    if not points:
        return ""
    rest = "".join(f"H{x}V{y:.4g}" for x, y in points[1:])
    return f"M{points[0][0]} {points[0][1]:.4g}{rest}"


def path(kind: str, d: str, title: str = "") -> Markup:
    """Return one path of CSS class `kind`; "" if it has no data."""
    if not d:
        return Markup("")
    if not title:
        return Markup(f'<path class="{kind}" d="{d}"/>')
    return Markup(f'<path class="{kind}" d="{d}"><title>{escape(title)}</title></path>')


def drawing(body: Iterable[Markup], height: int) -> Markup:
    """Return an SVG that fills its track: UNITS wide, `height` CSS pixels high."""
    inside = Markup("").join(body)
    return Markup(
        f'<svg viewBox="0 0 {UNITS} {height}" preserveAspectRatio="none" '
        f'style="height:{height}px" aria-hidden="true">{inside}</svg>'
    )


def element(
    tag: str, kind: str, place: Markup, text: object = "", *, title: str = "", **named: str
) -> Markup:
    """Return an HTML element of CSS class `kind`, with the style `place` (from `Axis.place`)."""
    given = {"class": kind, **named, "title": title, "style": place}
    attributes = "".join(f' {name}="{escape(value)}"' for name, value in given.items())
    return Markup(f"<{tag}{attributes}>{escape(text)}</{tag}>")


def pack(
    items: Iterable[T], extent: Callable[[T], tuple[int, int]], room: int = 0
) -> list[list[T]]:
    """Distribute items over as few lanes as possible, so that none overlap within a lane. `extent`
    gives an item's start and end, `room` is the least distance between neighbours."""
    lanes: list[list[T]] = []
    ends: list[int] = []
    for item in sorted(items, key=lambda item: extent(item)[0]):
        start, end = extent(item)
        for i, taken in enumerate(ends):
            if start >= taken + room:
                lanes[i].append(item)
                ends[i] = end
                break
        else:
            lanes.append([item])
            ends.append(end)
    return lanes
