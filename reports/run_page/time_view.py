"""The time view: everything that happened, over one axis; and a close-up of the first finding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from checker.formats.verdict import Anomaly, Verdict
from reports.charts import charts, svg
from reports.run_page import curves, fault_lanes, leader_timeline, operation_timeline
from reports.run_page.fault_lanes import Row, Section
from reports.run_page.model import RunFolder

LONGEST_CLOSE_UP_US: Final = 12_000_000
SHORTEST_PAD_US: Final = 400_000


@dataclass(frozen=True)
class View:
    """One window of the run, ready for the template."""

    name: str
    title: str
    axis: svg.Axis
    shades: Markup
    marker: Markup
    top: tuple[Row, ...]
    sections: tuple[Section, ...]
    strips: tuple[Section, ...]
    legend: Markup = leader_timeline.LEGEND


def views(folder: RunFolder) -> list[View]:
    """The whole run, and before it a close-up where there is a finding with a time.

    No view at all when nothing is known to have happened.
    """
    if not len(folder.operations) and not folder.faults and not folder.cluster.processes:
        return []
    whole = _whole(folder)
    close = close_up(folder, whole)
    made = []
    if close is not None:
        made.append(_view(folder, close, "close", "Close-up of the first finding", anchors=True))
    made.append(_view(folder, whole, "whole", "The whole run", anchors=close is None))
    return made


def _whole(folder: RunFolder) -> svg.Axis:
    """From just before the storm to the last thing that happened."""
    end = max(folder.last_us, folder.zero_us + 1_000_000)
    lead = min((end - folder.zero_us) // 50, 2_000_000)
    return svg.Axis(folder.zero_us - lead, end + lead // 2, folder.zero_us)


def first_finding(folder: RunFolder) -> Anomaly | None:
    """The anomaly that the page is about: the first that broke the run, with a known time."""
    return next((a for a in folder.anomalies if a.verdict is Verdict.INVALID and _times(a)), None)


def _times(anomaly: Anomaly) -> list[int]:
    return [t for t in (anomaly.t_us, *(w.t_us for w in anomaly.witnesses)) if t >= 0]


def close_up(folder: RunFolder, whole: svg.Axis) -> svg.Axis | None:
    """From the last good moment to the finding, a quarter more on both sides, at most 12 s. Where
    there is a story, its steps that broke something are in it, however early a witness was.

    None when nothing was found, or when the window would be most of the run anyway.
    """
    found = first_finding(folder)
    if found is None:
        return None
    times = [t for t in _times(found) if whole.covers(t)]
    if not times:
        return None
    at = found.t_us if whole.covers(found.t_us) and found.t_us >= 0 else max(times)
    broke = [s.t_us for s in folder.told if s.breaks and whole.covers(s.t_us)]
    at, times = max(at, *broke, at), [*times, *broke]
    start = max(min(times), at - LONGEST_CLOSE_UP_US)
    pad = max(SHORTEST_PAD_US, (at - start) // 4)
    axis = svg.Axis(max(whole.start_us, start - pad), min(whole.end_us, at + pad), folder.zero_us)
    return axis if axis.length_us < whole.length_us * 0.6 else None


def _view(folder: RunFolder, axis: svg.Axis, name: str, title: str, *, anchors: bool) -> View:
    top = [fault_lanes.phases(folder, axis)]
    flags = fault_lanes.findings(folder, axis)
    found = first_finding(folder)
    marker = Markup("")
    if found is not None and found.t_us >= 0 and axis.covers(found.t_us):
        marker = Markup(f'<i class="marker" style="{axis.place(found.t_us)}"></i>')
    # Without operations one section says why; empty charts would say that nothing happened.
    writes = () if folder.in_tables else (charts.latency(folder, axis), charts.rate(folder, axis))
    return View(
        name=name,
        title=title,
        axis=axis,
        shades=fault_lanes.shades(folder, axis),
        marker=marker,
        top=tuple([*top, flags] if flags else top),
        sections=(
            fault_lanes.fault_section(folder, axis),
            operation_timeline.section(folder, axis, anchors=anchors),
            *writes,
            *curves.sections(folder, axis, [a.partition for a in folder.anomalies]),
        ),
        strips=tuple(leader_timeline.sections(folder, axis)),
    )
