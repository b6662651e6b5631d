"""The time view: everything that happened, over one axis; and a close-up of the first finding."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from reports import svg
from reports.evidence.model import RunFolder, times
from reports.faults import lanes
from reports.leaders import timeline
from reports.operations import acknowledgements, clients, curves
from reports.svg import Panel, TrackRow

LONGEST_CLOSE_UP_US: Final = 12_000_000
SHORTEST_PAD_US: Final = 400_000
TITLES: Final = {"close": "Close-up of the first finding", "whole": "The whole run"}


@dataclass(frozen=True)
class View:
    """One window of time of the run, ready for the template."""

    name: str
    title: str
    axis: svg.Axis
    shades: Markup
    marker: Markup
    top: tuple[TrackRow, ...]
    panels: tuple[Panel, ...]
    leaders: tuple[Panel, ...]
    legend: Markup = timeline.LEGEND


def views(folder: RunFolder) -> list[View]:
    """Return a view of each window. A witness can be linked to in the first view that shows it."""
    made: list[View] = []
    anchored: set[int] = set()
    for name, axis in windows(folder).items():
        own = clients.witnesses_in(folder, axis).keys() - anchored
        made.append(_view(folder, axis, name, own))
        anchored |= own
    if "close" in windows(folder) and folder.lean:
        folder.notes.add("The view of the whole run is left out to keep this page small.")
    return made


def windows(folder: RunFolder) -> dict[str, svg.Axis]:
    """Return the windows of the time view: the whole run, after a close-up of the first finding.

    There is no close-up without a finding whose time is known, and no window at all if the run
    recorded nothing. A page that must be kept small has only one window."""
    if not len(folder.operations) and not folder.faults and not folder.cluster.processes:
        return {}
    whole = _whole(folder)
    close = close_up(folder, whole)
    if close is None:
        return {"whole": whole}
    return {"close": close} if folder.lean else {"close": close, "whole": whole}


def _whole(folder: RunFolder) -> svg.Axis:
    end = max(folder.last_us, folder.zero_us + 1_000_000)
    lead = min((end - folder.zero_us) // 50, 2_000_000)
    return svg.Axis(folder.zero_us - lead, end + lead // 2, folder.zero_us)


def close_up(folder: RunFolder, whole: svg.Axis) -> svg.Axis | None:
    """Return the time from the first witness, finding or breaking step of the story to the finding
    or the last such step, its last 12 s if it is longer, and a quarter more on both sides.

    None if there is no finding, or if the window would be most of the run anyway."""
    found = folder.first_finding
    if found is None:
        return None
    known = [t for t in times(found) if whole.covers(t)]
    if not known:
        return None
    at = found.t_us if whole.covers(found.t_us) and found.t_us >= 0 else max(known)
    broke = [s.t_us for s in folder.steps if (s.breaks or s.rule) and whole.covers(s.t_us)]
    at, known = max(at, *broke, at), [*known, *broke]
    start = max(min(known), at - LONGEST_CLOSE_UP_US)
    pad = max(SHORTEST_PAD_US, (at - start) // 4)
    axis = svg.Axis(max(whole.start_us, start - pad), min(whole.end_us, at + pad), folder.zero_us)
    return axis if axis.length_us < whole.length_us * 0.6 else None


def _view(folder: RunFolder, axis: svg.Axis, name: str, anchored: Container[int]) -> View:
    top = [lanes.phases(folder, axis)]
    flags = lanes.findings(folder, axis)
    found = folder.first_finding
    marker = Markup("")
    if found is not None and found.t_us >= 0 and axis.covers(found.t_us):
        marker = Markup(f'<i class="marker" style="{axis.place(found.t_us)}"></i>')
    found_in = [anomaly.partition for anomaly in folder.anomalies]
    return View(
        name=name,
        title=TITLES[name],
        axis=axis,
        shades=lanes.shades(folder, axis),
        marker=marker,
        top=tuple([*top, flags] if flags else top),
        panels=(
            lanes.panel(folder, axis),
            clients.panel(folder, axis, anchored),
            acknowledgements.latency(folder, axis),
            acknowledgements.rate(folder, axis),
            *curves.panels(folder, axis, found_in),
        ),
        leaders=tuple(timeline.panels(folder, axis)),
    )
