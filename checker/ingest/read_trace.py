"""Reading of trace/<node>.jsonl: the trace table, and facts of the events that checks rest on.

A broker writes the events of a turn with one write, before it sends what they caused. So a killed
broker can leave half a line, but none on which anything else depended. Half a line at the end of
the file, or right before `started` of the next incarnation, is a note. Any other line that cannot
be read is a problem; then a missing event proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count, repeat
from operator import attrgetter, itemgetter
from typing import Any, Final

import msgspec

from checker.evidence import facts
from checker.evidence.columns import Rows, rows
from checker.evidence.facts import PartitionMembers, Served, TraceFiles, hash_number
from checker.ingest import tables
from checker.ingest.lines import Line
from checker.ingest.source import FileReader, Ingested, LineNumbers, Source, why
from node.formats import trace
from node.formats.bounds import Number, Time
from node.formats.event_text import Event
from node.formats.json_input import JsonReader, Unreadable, WrongForm
from node.formats.trace import TraceEvent


class _Event(Event, frozen=True, kw_only=True):
    """An event as it stands in a file."""

    t_us: Time
    incarnation: Number = -1
    seq: Number = -1
    fenced: tuple[str, ...] = ()


_decoder = JsonReader(_Event)
# Columns of the table that are fields of an event, between run, node, incarnation, line and text.
_FIELDS: Final = tables.SCHEMAS["trace"].names[4:-1]
_IN_BULK: Final = frozenset({trace.HW, trace.APPEND, trace.ACK})


class _Reader(FileReader[_Event]):
    """A reader of one node's trace."""

    form = _decoder

    def __init__(self, source: Source, into: Ingested) -> None:
        super().__init__(source, into)
        self.last_us = -1
        self.numbers = LineNumbers()
        self.incarnation = -1
        self.rows: list[tuple[int, _Event, str | None]] = []
        # events that were never lines, of the names in _IN_BULK
        self.plain: list[tuple[int, TraceEvent]] = []
        self.torn: int | None = None
        self.fenced: dict[str, None] = {}

    def take_all(
        self, entries: Sequence[_Event] | Sequence[TraceEvent], first: int = 1, text: bytes = b""
    ) -> None:
        """Take events with the lines that they were on, if these are to be kept. Events in memory
        were never lines; most of them are of a few kinds, and are taken without being converted."""
        if not text:
            self._take_objects(entries)  # type: ignore[arg-type]
            return
        lines = text.split(b"\n") if self.into.whole_tables else repeat(b"")
        for number, event, line in zip(count(first), entries, lines, strict=False):
            self.take_event(number, event, line.rstrip(b"\r"))  # type: ignore[arg-type]

    def _take_objects(self, objects: Sequence[TraceEvent]) -> None:
        assert not self.into.whole_tables, "without lines there can be no table of them"
        times = [event["t_us"] for event in objects]
        in_order = times == sorted(times)
        kept = [n for n, e in enumerate(objects) if not in_order or e["event"] not in _IN_BULK]
        if in_order:
            self.plain = [(n, e) for n, e in enumerate(objects, 1) if e["event"] in _IN_BULK]
        events = msgspec.convert([objects[n] for n in kept], list[_Event])
        for number, event in zip(kept, events, strict=True):
            self.take_event(number + 1, event, b"")

    def refuse(self, line: Line, error: Unreadable) -> None:
        """Take the event behind half a line, or decide about it later."""
        found = _whole_tail(line.data)
        self.settle(None)
        if found is None and line.whole and isinstance(error, WrongForm):
            self.problem("line", f"line {line.number} is not a trace event: {why(error)}.")
            return
        self.torn = line.number
        if found is not None:
            self.take_event(line.number, *found)

    def take_event(self, number: int, event: _Event, text: bytes) -> None:
        """Take an event and the line it was on."""
        if self.torn is not None:
            self.settle(event)
        self._count(number, event)
        if event.t_us < self.last_us:
            self.problem(
                "time", f"line {number}: time goes back by {self.last_us - event.t_us} us."
            )
        self.last_us = event.t_us
        if event.hash:
            try:
                hash_number(event.hash)
            except ValueError as error:
                self.problem("line", f"line {number}: {why(error)}.")
                return
        if event.event in _IN_BULK:
            self.rows.append((number, event, None))
        else:
            self.rows.append((number, self._with_fenced(event), text.decode(errors="replace")))

    def _count(self, number: int, event: _Event) -> None:
        """Compare an event's number with the one before; each process counts its own from 0."""
        if event.incarnation < self.incarnation and event.seq >= 0:
            self.damage(f"line {number}: it is of an earlier process than the line before it.")
        if event.incarnation != self.incarnation:
            self.incarnation, self.numbers = event.incarnation, LineNumbers()
        if gap := self.numbers.gap(event.seq):
            self.damage(f"line {number}: {gap}.")

    def _with_fenced(self, event: _Event) -> _Event:
        """Return a committed change of a partition with the brokers that were fenced then, as far
        as this controller has reported it: what another controller did in between is not known."""
        if event.event in (trace.CONTROLLER, trace.STARTED):
            self.fenced.clear()
        elif event.event == trace.BROKER and event.state == "fenced":
            self.fenced[event.broker] = None
        elif event.event == trace.BROKER:
            self.fenced.pop(event.broker, None)
        elif event.event == trace.PARTITION and self.fenced:
            return msgspec.structs.replace(event, fenced=tuple(self.fenced))
        return event

    def settle(self, following: _Event | None, *, at_end: bool = False) -> None:
        """Decide about a torn line when the event behind it is known."""
        if self.torn is None:
            return
        if at_end or (following is not None and following.event == trace.STARTED):
            self.into.problems.note(
                f"{self.name} line {self.torn} is half a line, cut by a kill: left out."
            )
        else:
            self.problem("line", f"line {self.torn} is not a trace event: not JSON.")
        self.torn = None


def _whole_tail(data: bytes) -> tuple[_Event, bytes] | None:
    """Return the complete event that follows half an event on the same line, if there is one."""
    place = data.find(b'{"', 1)
    while place >= 0:
        try:
            return _decoder.decode(data[place:]), data[place:]
        except Unreadable:
            place = data.find(b'{"', place + 1)
    return None


def read_trace(source: Source, into: Ingested) -> None:
    """Read a node's trace; add its part of the table, and facts of its events, to `into`."""
    reader = _Reader(source, into)
    reader.read()
    reader.settle(None, at_end=True)
    if into.whole_tables:
        _table(into, reader)
    into.facts.extend(_facts(source.run, reader))


def _table(into: Ingested, reader: _Reader) -> None:
    """Return one node's part of the trace table."""
    run, node = into.meta.run, reader.node
    fields = attrgetter(*_FIELDS)
    rows = ((run, node, e.incarnation, n, *fields(e), text) for n, e, text in reader.rows)
    into.tables["trace"] = tables.from_rows("trace", rows)


def _facts(run: int, reader: _Reader) -> Iterator[Rows]:
    """Yield facts of the events, by name of event."""
    by_event: dict[str, list[Any]] = {}
    numbers: dict[str, list[int]] = {}
    for number, event, _ in reader.rows:
        by_event.setdefault(event.event, []).append(event)
        numbers.setdefault(event.event, []).append(number)
    partitions = {*reader.into.meta.partitions, ""}
    partitions.update(e.partition for _, e, _ in reader.rows)
    plain: set[str] = set()
    for number, each in reader.plain:
        plain.add(each["event"])
        partitions.add(each["partition"])
        by_event.setdefault(each["event"], []).append(each)
        numbers.setdefault(each["event"], []).append(number)
    yield rows(
        TraceFiles,
        run,
        sorted(partitions),
        node=reader.node,
        whole=not reader.damaged,
        incarnation=reader.incarnation,
        stopped=any(e.incarnation == reader.incarnation for e in by_event.get(trace.STOPPED, ())),
    )
    roles = [e for e in by_event.get(trace.ROLE, ()) if e.role in ("leader", "follower")]
    if roles:
        turns = [*roles, *by_event.get(trace.STARTED, ())]
        serves = [event.event == trace.ROLE for event in turns]
        about = {"node": reader.node, "t_us": [event.t_us for event in turns]}
        yield rows(Served, run, "", serves=serves, **about)
    for name, kind in _EVENTS.items():
        if events := by_event.get(name):
            field = itemgetter if name in plain else attrgetter
            yield rows(
                kind,
                run,
                [*map(field("partition"), events)],
                node=reader.node,
                line=numbers[name],
                **{of: _column(events, of, field) for of in kind.columns if of not in _OF_FILE},
            )


def _column(
    events: list[Any], name: str, field: Callable[[str], Callable[[Any], Any]]
) -> list[Any]:
    """Return a column of facts: a field of each event, or what is made of it."""
    if name == "members":
        return list(map(_members, events))
    of, made = _MADE.get(name, (name, None))
    values = map(field(of), events)
    return list(map(made, values) if made else values)


def _members(event: _Event) -> str:
    return msgspec.json.encode(
        PartitionMembers(
            event.leader or "",
            event.isr,
            event.elr,
            event.last_known_elr,
            event.replicas,
            event.removing,
            event.fenced,
        )
    ).decode()


_OF_FILE: Final = ("node", "line")
_MADE: Final[dict[str, tuple[str, Callable[[Any], Any] | None]]] = {
    "hash": ("hash", hash_number),
    "epoch": ("leader_epoch", None),
    "leads": ("role", lambda role: role == "leader"),
    "active": ("state", lambda state: state == "active"),
}
"""Columns made of a field with another name or type: the field, and the conversion."""
_EVENTS: Final[dict[str, type[facts.Events]]] = {
    trace.HW: facts.HighWatermarks,
    trace.APPEND: facts.Appends,
    trace.TRUNCATED: facts.Truncations,
    trace.DELETED: facts.Deletions,
    trace.ROLE: facts.RoleChanges,
    trace.PARTITION: facts.PartitionChanges,
    trace.CONTROLLER: facts.Controllers,
}
