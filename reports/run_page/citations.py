"""The line of the raw file on which a statement of the page rests.

Line numbers, not copies: the files lie beside the page, and `sed -n 57p trace/n1.jsonl` shows one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from checker.formats.story import StoryStep
from checker.formats.verdict import Witness
from node.formats import trace
from node.formats.event_text import EXIT, Event
from reports.run_page.files import Notes, numbered_lines
from reports.run_page.model import RunFolder


class _Moment(msgspec.Struct, frozen=True):
    """The fields of a line of a trace that find it again."""

    t_us: int = -1
    event: str = ""


class _Place(msgspec.Struct, frozen=True):
    """The fields of a line of a log."""

    partition: str
    offset: int
    count: int


@dataclass(frozen=True)
class FileLine:
    """A line of a file in the run folder, counted from 1."""

    file: str
    number: int

    def __str__(self) -> str:
        return f"{self.file}:{self.number}"


def of_story(folder: RunFolder) -> list[tuple[StoryStep, FileLine | None]] | None:
    """The steps of the story, each with its line of a trace; None where there is no story."""
    if folder.story is None:
        return None
    steps = folder.steps
    found = _events(folder, {(s.node, s.t_us) for s in steps if s.kind in trace.FIELDS})
    return [(s, _one(found.get((s.node, s.t_us), []), s.kind)) for s in steps]


def _one(lines: list[tuple[str, FileLine]], kind: str) -> FileLine | None:
    """Of the events of one moment the one of that kind."""
    return next((line for event, line in lines if event == kind or not kind), None)


def of_witnesses(
    folder: RunFolder, witnesses: Iterable[tuple[str, Witness]]
) -> dict[Witness, tuple[FileLine, ...]]:
    """The lines that (partition, witness) pairs rest on: an operation's begin and end, a moment in
    a trace, a batch in a log. Witnesses of which none is found are left out."""
    wanted = list(witnesses)
    moments = _events(folder, {(w.node, w.t_us) for _, w in wanted if w.node and w.t_us >= 0})
    places = _places(folder, {(w.node, p, w.offset) for p, w in wanted if w.node and w.offset >= 0})
    made: dict[Witness, tuple[FileLine, ...]] = {}
    for partition, w in wanted:
        lines = [
            FileLine("history.jsonl", number)
            for number in folder.lines_of.get(w.op, ())
            if number > 0
        ]
        if not lines:
            lines = [line for _, line in moments.get((w.node, w.t_us), [])][:2]
        if not lines and (w.node, partition, w.offset) in places:
            lines = [places[w.node, partition, w.offset]]
        if lines:
            made[w] = tuple(lines)
    return made


def _events(
    folder: RunFolder, wanted: set[tuple[str, int]]
) -> dict[tuple[str, int], list[tuple[str, FileLine]]]:
    """The trace events of these nodes at these moments."""
    by_node: dict[str, set[int]] = defaultdict(set)
    for node, t_us in wanted:
        by_node[node].add(t_us)
    found: dict[tuple[str, int], list[tuple[str, FileLine]]] = defaultdict(list)
    for node, times in by_node.items():
        file = _inside(folder, "trace", node)
        needles = tuple(f'"t_us":{t_us}'.encode() for t_us in times)
        if file is None:
            continue
        for number, e in numbered_lines(file, _Moment, Notes(), needles=needles):
            if e.t_us in times:
                found[node, e.t_us].append((e.event, FileLine(f"trace/{file.name}", number)))
    return found


def _places(
    folder: RunFolder, wanted: set[tuple[str, str, int]]
) -> dict[tuple[str, str, int], FileLine]:
    """The batches of the logs that hold these (node, partition, offset)."""
    found: dict[tuple[str, str, int], FileLine] = {}
    for node in {node for node, _, _ in wanted}:
        file = _inside(folder, "logs", node)
        if file is None:
            continue
        own = {(p, o) for n, p, o in wanted if n == node}
        needles = tuple(partition.encode() for partition in {p for p, _ in own} if partition)
        for number, b in numbered_lines(file, _Place, Notes(), needles=needles):
            for partition, offset in own:
                if b.partition == partition and b.offset <= offset < b.offset + b.count:
                    found[node, partition, offset] = FileLine(f"logs/{file.name}", number)
    return found


def _inside(folder: RunFolder, part: Literal["trace", "logs"], node: str) -> Path | None:
    """A node's file, None where there is none; a witness's node may be any text."""
    names = {file.stem: file for file in folder.evidence(part)}
    return names.get(node)


def trace_events(folder: RunFolder, partition: str) -> list[tuple[Event, str]]:
    """What the traces say of a partition, with starts, controllers and exits, by time; each with
    its file and line."""
    # What cannot be read of a trace is in the notes already.
    unread = Notes()
    needles = (partition.encode(), b'"started"', b'"controller"')
    found: list[tuple[Event, str]] = []
    for file in folder.evidence("trace"):
        for number, e in numbered_lines(file, Event, unread, needles=needles):
            if e.partition == partition or e.event in (trace.STARTED, trace.CONTROLLER):
                found.append((e, f"trace/{file.name}:{number}"))
    for ended in folder.exits:
        exited = Event(EXIT, t_us=ended.t_us, node=ended.node, reason=ended.by)
        found.append((exited, "exits.jsonl"))
    return sorted(found, key=lambda pair: (pair[0].t_us, pair[0].node))
