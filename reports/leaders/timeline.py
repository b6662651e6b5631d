"""The leader timeline: for each partition its leaders and epochs, its in-sync set and its HW."""

from __future__ import annotations

from typing import Final

import numpy as np
from markupsafe import Markup

from checker.formats.verdict import Verdict
from reports import svg, wording
from reports.evidence.leaders import PartitionTimeline, RoleSpan
from reports.evidence.model import RunFolder
from reports.evidence.operations import AckGap
from reports.svg import Panel, TrackRow
from reports.theme import EPOCH_COLOURS

REPLICA_HEIGHT: Final = 14
HW_HEIGHT: Final = 24
MOST_PARTITIONS: Final = 6
MOST_BOXES: Final = 120
MOST_CUTS: Final = 40
SHORTEST_GAP_US: Final = 1_000_000


def panels(folder: RunFolder, axis: svg.Axis) -> list[Panel]:
    """Draw a panel for each partition with findings, then for those with most leader changes."""
    timelines = folder.cluster.partitions
    if not timelines:
        return []
    found = [a.partition for a in folder.anomalies if a.partition in timelines]
    contested = sorted(timelines, key=lambda name: (-timelines[name].leader_changes, name))
    chosen = list(dict.fromkeys([*found, *contested]))[:MOST_PARTITIONS]
    if len(timelines) > len(chosen):
        folder.notes.add(
            f"The leader timeline shows {len(chosen)} of {len(timelines):,} partitions: those with "
            "findings, then those with most changes of leader."
        )
    longest = folder.gaps
    controllers = folder.cluster.controllers
    made = []
    if len(controllers) > 1:
        made.append(_controllers(axis, controllers))
    broke = [a.partition for a in folder.anomalies if a.verdict is Verdict.INVALID]
    shown = sorted(chosen, key=lambda name: (name not in broke, name))
    made += [_partition(folder, axis, timelines[name], longest.get(name)) for name in shown]
    return made


def _controllers(axis: svg.Axis, controllers: tuple[RoleSpan, ...]) -> Panel:
    body = Markup("").join(
        _box(axis, r, f"{r.node} t{r.epoch}", f"{r.node} is controller in term {r.epoch}")
        for r in controllers[:MOST_BOXES]
        if axis.covers(r.start_us, r.end_us)
    )
    return Panel("Controller", (TrackRow("active", body, REPLICA_HEIGHT, "replica"),))


def _partition(
    folder: RunFolder, axis: svg.Axis, timeline: PartitionTimeline, gap: AckGap | None
) -> Panel:
    nodes = folder.info.partitions.get(timeline.name, ()) or tuple(
        sorted({span.node for span in timeline.roles})
    )
    rows = [_replica(folder, axis, timeline, node) for node in nodes[:9]]
    if timeline.hw:
        rows.append(_hw(axis, timeline, gap))
    note = wording.count(timeline.leader_changes, "change of leader", "changes of leader")
    if gap and gap.length_us >= SHORTEST_GAP_US:
        note += f"; longest time without an acknowledged write {wording.span(gap.length_us)}"
    return Panel(timeline.name, tuple(rows), note=note)


def _replica(folder: RunFolder, axis: svg.Axis, timeline: PartitionTimeline, node: str) -> TrackRow:
    """Draw one replica: a box while it leads (its own belief), a line while it is in sync."""
    inside = [x for x in timeline.in_sync if node in x.isr and axis.covers(x.start_us, x.end_us)]
    start = axis.units(np.array([x.start_us for x in inside], dtype=np.int64))
    end = axis.units(np.array([x.end_us for x in inside], dtype=np.int64))
    low, high = svg.merge(start, end, svg.UNITS // svg.BINS // 2)
    body = svg.drawing(
        [svg.path("insync", svg.bars(low, high, REPLICA_HEIGHT / 2))], REPLICA_HEIGHT
    )
    leads = [
        r
        for r in timeline.roles
        if r.node == node and r.role == "leader" and axis.covers(r.start_us, r.end_us)
    ]
    if len(leads) > MOST_BOXES:
        folder.notes.add(
            f"{timeline.name}: {node} took leadership {len(leads):,} times; the {MOST_BOXES} "
            "longest are shown."
        )
        leads = sorted(leads, key=lambda r: r.start_us - r.end_us)[:MOST_BOXES]
    for r in leads:
        title = (
            f"{node} leads {timeline.name} in epoch {r.epoch}, {axis.label(r.start_us)} to "
            f"{axis.label(r.end_us)}"
        )
        body += _box(axis, r, f"e{r.epoch}", title)
    cuts = [c for c in timeline.cuts if c.node == node and axis.covers(c.t_us)]
    if len(cuts) > MOST_CUTS:
        folder.notes.add(
            f"{timeline.name}: only the {MOST_CUTS} longest truncations of a replica are marked."
        )
    for c in sorted(cuts, key=lambda c: c.leo - c.from_leo)[:MOST_CUTS]:
        title = (
            f"{node} cut its log of {timeline.name} from {c.from_leo} to {c.leo} at "
            f"{axis.label(c.t_us)} ({c.reason or 'no reason given'}), HW {c.hw}"
        )
        body += svg.element("i", "cut", axis.place(c.t_us), "▼", title=title)
    return TrackRow(node, body, REPLICA_HEIGHT, "replica")


def _box(axis: svg.Axis, span: RoleSpan, text: str, title: str) -> Markup:
    colour, place = max(0, span.epoch) % EPOCH_COLOURS, axis.place(span.start_us, span.end_us)
    return svg.element("span", f"lead ep{colour}", place, text, title=title)


def _hw(axis: svg.Axis, timeline: PartitionTimeline, gap: AckGap | None) -> TrackRow:
    """Draw how the leaders' high watermark rose; a fall would be drawn as one."""
    inside = [(t, hw) for t, hw in timeline.hw if axis.start_us <= t <= axis.end_us]
    if not inside:
        return TrackRow("HW", Markup(""), HW_HEIGHT, "hw")
    low, high = min(hw for _, hw in inside), max(hw for _, hw in inside)
    scale = (HW_HEIGHT - 6) / max(1, high - low)
    every = max(1, len(inside) // 600)
    kept = inside[::every] + inside[-1:]
    xs = axis.units(np.array([t for t, _ in kept], dtype=np.int64)).tolist()
    points = [(x, HW_HEIGHT - 3 - (hw - low) * scale) for x, (_, hw) in zip(xs, kept, strict=True)]
    body = svg.drawing([svg.path("hwline", svg.steps(points))], HW_HEIGHT)
    if gap and gap.length_us >= SHORTEST_GAP_US and axis.covers(gap.start_us, gap.end_us):
        title = (
            f"{timeline.name} acknowledged nothing for {wording.span(gap.length_us)} from "
            f"{axis.label(gap.start_us)}"
        )
        body += svg.element("i", "hole", axis.place(gap.start_us, gap.end_us), title=title)
    return TrackRow("HW", body, HW_HEIGHT, "hw", f"high watermark from {low:,} to {high:,}")


LEGEND: Final = Markup(
    '<li><i class="key lead ep1">e1</i>leads in epoch 1 (by its own belief)</li>'
    '<li><i class="key line insync"></i>in sync</li>'
    '<li><i class="key plain">▼</i>truncated its log</li>'
    '<li><i class="key line hwline"></i>high watermark</li>'
    '<li><i class="key hole"></i>longest time without an acknowledged write</li>'
)
