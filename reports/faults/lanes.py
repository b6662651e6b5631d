"""The upper part of the time view: phases, findings, and the faults as executed, lane by lane."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
import numpy as np
from markupsafe import Markup, escape

from checker.formats.verdict import Verdict
from reports import svg, wording
from reports.evidence.faults import Executed, sentence
from reports.evidence.leaders import Up
from reports.evidence.model import RunFolder
from reports.svg import Panel, TrackRow

MOST_BARS: Final = 400
MOST_SHADES: Final = 200
LANE_HEIGHT: Final = 20
MOST_SENTENCES: Final = 250


def phases(folder: RunFolder, axis: svg.Axis) -> TrackRow:
    """Draw the phases of the run as a band: start, storm, recovery, final reads."""
    p = folder.info.phases
    marks = [
        (p.start_us, "start-up", ""),
        (p.storm_us, "storm", "storm"),
        (p.heal_us, "healed", "heal"),
        (p.recovered_us, "recovered", "heal"),
        (p.final_us, "final reads", "final"),
    ]
    known = sorted((m for m in marks if m[0]), key=lambda mark: mark[0])
    body = []
    for i, (start, name, kind) in enumerate(known):
        end = known[i + 1][0] if i + 1 < len(known) else max(folder.last_us, start)
        if axis.covers(start, end):
            title = f"{name} from {axis.label(start)}, {wording.span(end - start)}"
            text = axis.fitting(start, end, name)
            place = axis.place(start, end)
            body.append(svg.element("span", f"phase {kind}", place, text, title=title))
    return TrackRow("phase", Markup("").join(body), LANE_HEIGHT, "phases")


def findings(folder: RunFolder, axis: svg.Axis) -> TrackRow | None:
    """Draw a numbered flag for every anomaly with a known time, linked to its text."""
    flags = [
        (number, anomaly)
        for number, anomaly in enumerate(folder.anomalies[:60], 1)
        if anomaly.t_us >= 0 and axis.covers(anomaly.t_us)
    ]
    if not flags:
        return None
    room = axis.length_us // 16
    lanes = svg.pack(flags, lambda flag: (flag[1].t_us, flag[1].t_us), room)
    body = []
    for level, lane in enumerate(lanes[:6]):
        for number, anomaly in lane:
            kind = "flag" if anomaly.verdict is Verdict.INVALID else "flag allowed"
            title = f"{anomaly.name} {anomaly.partition} at {axis.label(anomaly.t_us)}"
            place = axis.place(anomaly.t_us, top=level * LANE_HEIGHT + 2)
            link = f"#finding-{number}"
            body.append(svg.element("a", kind, place, number, title=title, href=link))
    return TrackRow("finding", Markup("").join(body), LANE_HEIGHT * min(6, len(lanes)), "findings")


def panel(folder: RunFolder, axis: svg.Axis) -> Panel:
    """Draw the lanes of the nodes (processes and faults on them), then those of link faults."""
    done = [f for f in folder.faults if f.status == "done" and axis.covers(f.start_us, f.end_us)]
    rows: list[TrackRow] = []
    nodes = (*folder.info.brokers, *folder.info.voters) or tuple(
        sorted({up.node for up in folder.cluster.processes})
    )
    drawn = 0
    for node in nodes[:24]:
        own = [f for f in done if f.kind.on_processes and node in f.nodes]
        rows.append(_node_row(folder, axis, node, own[: MOST_BARS - drawn]))
        drawn += min(len(own), MOST_BARS - drawn)
    known = set(nodes[:24])
    links = [f for f in done if not f.kind.on_processes or not known & set(f.nodes)]
    rows += _link_rows(axis, links[: max(0, MOST_BARS - drawn)])
    drawn += min(len(links), max(0, MOST_BARS - drawn))
    total = sum(len(f.nodes) if f.kind.on_processes else 1 for f in done)
    if total > drawn:
        folder.notes.add(
            f"The lanes show {drawn:,} of {total:,} fault bars; the shading shows all of them."
        )
    note = "" if done else "No fault was active in this window."
    legend = _legend(done, processes=bool(folder.cluster.processes))
    return Panel("Faults as executed", tuple(rows), legend, note)


def _node_row(folder: RunFolder, axis: svg.Axis, node: str, own: list[Executed]) -> TrackRow:
    """Draw one node: a thin line while its process lives, a box for each fault on it."""
    lanes = svg.pack(own, lambda f: (f.start_us, f.end_us)) or [[]]
    height = LANE_HEIGHT * len(lanes)
    ups = [up for up in folder.cluster.processes if up.node == node and up.end_us > up.start_us]
    body = [svg.drawing([_life(ups, axis)], height)]
    for level, lane in enumerate(lanes):
        body += [_bar(fault, axis, level) for fault in lane]
    for x in folder.exits:
        if x.node == node and not x.expected and axis.covers(x.t_us):
            title = f"{node} exited by itself at {axis.label(x.t_us)}, code {x.code}"
            body.append(svg.element("i", "crash", axis.place(x.t_us), "✗", title=title))
    return TrackRow(node, Markup("").join(body), height, "lane")


def _life(ups: list[Up], axis: svg.Axis) -> Markup:
    shown = [up for up in ups if axis.covers(up.start_us, up.end_us)]
    start = axis.units(np.array([up.start_us for up in shown], dtype=np.int64))
    end = axis.units(np.array([up.end_us for up in shown], dtype=np.int64))
    return svg.path("life", svg.bars(start, end, LANE_HEIGHT / 2))


def _link_rows(axis: svg.Axis, faults: list[Executed]) -> list[TrackRow]:
    rows = []
    for i, lane in enumerate(svg.pack(faults, lambda f: (f.start_us, f.end_us), 1)):
        body = Markup("").join(_bar(fault, axis, 0) for fault in lane)
        rows.append(TrackRow("" if i else "links", body, LANE_HEIGHT, "lane"))
    return rows


def _bar(fault: Executed, axis: svg.Axis, level: int) -> Markup:
    """Draw a fault's box from injection to undoing: letter, kind, victim."""
    text = fault.what if fault.kind.on_processes else f"{fault.what} {fault.short_victims}"
    start, end = fault.start_us, fault.end_us
    shown = Markup("<b>{}</b> {}").format(fault.letter, axis.fitting(start, end, text))
    kind = f"fault f-{fault.what}" + ("" if fault.kind.lasts else " instant")
    place = axis.place(start, end, top=level * LANE_HEIGHT + 2)
    title = wording.clip(fault.title(axis.zero_us), 300)
    return svg.element("a", kind, place, shown, title=title, href=f"#fault-{fault.index}")


def _legend(faults: Iterable[Executed], *, processes: bool) -> Markup:
    kinds = {f.what: f.letter for f in faults}
    items = [
        Markup(f'<li><i class="key f-{escape(what)}">{letter}</i>{escape(what)}</li>')
        for what, letter in kinds.items()
    ]
    if items and processes:
        items.append(Markup('<li><i class="key line life"></i>process alive</li>'))
    return Markup("").join(items)


def shades(folder: RunFolder, axis: svg.Axis) -> Markup:
    """Draw bands behind the whole view, one for each fault; merged by kind when there are many."""
    done = [f for f in folder.faults if f.status == "done" and axis.covers(f.start_us, f.end_us)]
    made = []
    for kind, own in (
        ("process", [f for f in done if f.kind.on_processes and f.kind.lasts]),
        ("link", [f for f in done if not f.kind.on_processes]),
    ):
        spans = [(f.start_us, f.end_us) for f in own]
        if len(spans) > MOST_SHADES:
            starts = np.array([a for a, _ in sorted(spans)], dtype=np.int64)
            ends = np.array([b for _, b in sorted(spans)], dtype=np.int64)
            low, high = svg.merge(starts, ends, axis.length_us // MOST_SHADES)
            spans = list(zip(low.tolist(), high.tolist(), strict=True))
        made += [
            Markup(f'<i class="shade {kind}" style="{axis.place(a, b)}"></i>') for a, b in spans
        ]
    return Markup("").join(made)


def sentences(folder: RunFolder) -> list[tuple[Executed, str]]:
    """Return each fault with its sentence; of very many those nearest to the first finding."""
    chosen = list(folder.faults)
    if len(chosen) > MOST_SENTENCES:
        found = folder.first_finding
        centre = found.t_us if found is not None and found.t_us >= 0 else folder.last_us
        chosen.sort(key=lambda f: abs(f.start_us - centre))
        chosen = sorted(chosen[:MOST_SENTENCES], key=lambda f: f.index)
        folder.notes.add(
            f"The list of faults shows the {MOST_SENTENCES} of {len(folder.faults):,} faults "
            f"nearest to {'the first finding' if found else 'the end of the run'}."
        )
    after = _acknowledged(folder)
    return [
        (f, wording.clip(f"{sentence(f, folder.zero_us)}{after.get(f.index, '')}", 600))
        for f in chosen
    ]


class _Around(msgspec.Struct):
    """The checker's measures around a fault, of the partition that fared worst."""

    fault: int
    first_ack_ms: float | None = None
    longest_gap_ms: float | None = None

    def words(self) -> str:
        """Word the measures; "" if nothing was measured."""
        if not self.longest_gap_ms:
            return ""
        first = ""
        if self.first_ack_ms is not None:
            first = f", the first one {wording.span(self.first_ack_ms * 1e3)} after its end"
        longest = wording.span(self.longest_gap_ms * 1e3)
        return f" Longest time without an acknowledgement: {longest}{first}."


def _acknowledged(folder: RunFolder) -> dict[int, str]:
    measured = folder.result.measures.get("around_faults", ()) if folder.result else ()
    try:
        return {row.fault: row.words() for row in msgspec.convert(measured, list[_Around])}
    except msgspec.ValidationError:
        return {}
