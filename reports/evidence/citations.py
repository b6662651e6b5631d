"""The lines of raw files on which statements of the page rest.

The page has line numbers, not copies: the files lie beside it, and `sed -n 57p trace/n1.jsonl`
shows a line."""

from __future__ import annotations

from collections.abc import Iterable

from checker.formats.story import StoryStep
from checker.formats.verdict import Witness
from checker.ingest.source import history_name
from node.formats import trace
from reports.evidence.model import RunFolder
from reports.evidence.traces import FileLine


def of_story(folder: RunFolder) -> list[tuple[StoryStep, FileLine | None]] | None:
    """Return the steps of the story, each with its line of a trace; None if there is no story."""
    if folder.story is None:
        return None
    steps = folder.steps
    found = folder.traces.at((s.node, s.t_us) for s in steps if s.kind in trace.FIELDS)
    return [
        (s, next((line for e, line in found.get((s.node, s.t_us), ()) if e.event == s.kind), None))
        for s in steps
    ]


def of_witnesses(
    folder: RunFolder, witnesses: Iterable[tuple[str, Witness]]
) -> dict[Witness, tuple[FileLine, ...]]:
    """Return the lines of operations, traces and logs on which (partition, witness) pairs rest."""
    wanted, ops, history = list(witnesses), folder.operations, history_name(folder.path)
    rows = ops.rows_of({w.op for _, w in wanted if w.op >= 0})
    moments = folder.traces.at((w.node, w.t_us) for _, w in wanted if w.node and w.t_us >= 0)
    places = folder.replicas.lines(
        {(w.node, p, w.offset) for p, w in wanted if w.node and w.offset >= 0}
    )
    made: dict[Witness, tuple[FileLine, ...]] = {}
    for partition, w in wanted:
        lines: list[FileLine] = []
        if w.op in rows:
            numbers = (int(column[rows[w.op]]) for column in (ops.begin_line, ops.end_line))
            lines = [FileLine(history, n) for n in numbers if n > 0]
        if not lines:
            lines = [line for _, line in moments.get((w.node, w.t_us), ())][:2]
        if not lines and (number := places.get((w.node, partition, w.offset), 0)):
            lines = [FileLine(f"logs/{w.node}.jsonl", number)]
        if lines:
            made[w] = tuple(lines)
    return made
