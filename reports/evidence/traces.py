"""The traces of the nodes as events, each with its line: `sed -n 57p trace/n1.jsonl` shows one.

For a system without traces, the answers of its nodes to probes replace them: which node leads, and
which are in sync."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from checker.ingest.tables import SCHEMAS
from harness.formats.problem import Exit
from harness.formats.seal import PROBES
from node.formats import trace
from node.formats.event_text import EXIT, Event
from node.formats.json_input import JsonReader, Unreadable
from reports.evidence.files import Notes, json_lines

_OF_ALL: Final = (trace.STARTED, trace.CONTROLLER)
"""Events that are shown with those of any partition."""
_decoder = JsonReader(Event)


class FileLine(NamedTuple):
    """A line of a file in the run folder, counted from 1; 0: the file as a whole."""

    file: str
    number: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.number}" if self.number else self.file


Cited = tuple[Event, FileLine]


@dataclass(frozen=True)
class Traces:
    """The rows of the table `trace`, and the exits of processes, which come from exits.jsonl. If
    `probed`, the rows come from probes.jsonl instead."""

    rows: pa.Table = field(default_factory=SCHEMAS["trace"].empty_table)
    exits: tuple[Exit, ...] = ()
    probed: bool = False

    @property
    def last_us(self) -> int:
        """The time of the last event, 0 if there is none."""
        return int(pc.max(self.rows["t_us"]).as_py() or 0)

    def of_kinds(self, kinds: Iterable[str]) -> list[Event]:
        """Return the events of some kinds, node by node."""
        return [e for e, _ in self._events(_is_in(self.rows["event"], kinds))]

    def of_partition(self, partition: str) -> list[Cited]:
        """Return the events of a partition, and all starts, changes of controller and exits, by
        time; each with its line."""
        wanted = pc.equal(self.rows["partition"], partition).fill_null(False)
        found = self._events(pc.or_(wanted, _is_in(self.rows["event"], _OF_ALL)))
        for ended in self.exits:
            exited = Event(EXIT, t_us=ended.t_us, node=ended.node, reason=ended.by)
            found.append((exited, FileLine("exits.jsonl")))
        return sorted(found, key=lambda pair: (pair[0].t_us, pair[0].node))

    def at(self, moments: Iterable[tuple[str, int]]) -> dict[tuple[str, int], list[Cited]]:
        """Return the events at each (node, time in us), each with its line."""
        found: dict[tuple[str, int], list[Cited]] = {each: [] for each in moments}
        times = pa.array([t_us for _, t_us in found], pa.int64())
        for e, line in self._events(pc.is_in(self.rows["t_us"], times)):
            found.get((e.node, e.t_us), []).append((e, line))
        return found

    def _events(self, wanted: pa.Array) -> list[Cited]:
        rows = self.rows.select([*_FIELDS, "line", "line_json"]).filter(wanted).to_pylist()
        file = PROBES if self.probed else "trace/{}.jsonl"
        found = ((_event(r), FileLine(file.format(r["node"]), r["line"])) for r in rows)
        return [(e, line) for e, line in found if e is not None]


def of_probes(run_dir: Path, exits: tuple[Exit, ...], notes: Notes) -> Traces:
    """Return the leaders and in-sync sets that nodes reported when the harness asked them."""
    schema = SCHEMAS["trace"]
    rows = [
        {name: getattr(e, name, None) for name in schema.names} | {"line": number}
        for number, e in json_lines(run_dir / PROBES, Event, notes)
        if e.event in (trace.ROLE, trace.ISR)
    ]
    return Traces(pa.Table.from_pylist(rows, schema), exits, probed=True)


def _is_in(column: pa.ChunkedArray, words: Iterable[str]) -> pa.Array:
    return pc.is_in(column, pa.array(list(words), pa.string()))


_FIELDS: Final = tuple(n for n in SCHEMAS["trace"].names if n in Event.__struct_fields__)


def _event(row: dict[str, Any]) -> Event | None:
    """Return the event of a row: its line says more than its columns, if it was kept."""
    if row["line_json"]:
        try:
            e = _decoder.decode(row["line_json"])
            return e if e.node else msgspec.structs.replace(e, node=row["node"])
        except Unreadable:
            return None
    known = {name: row[name] for name in _FIELDS if row[name] is not None}
    return Event(**known | {"isr": tuple(known.get("isr", ()))})
