"""The messages about one offset of a log: the rows of the message diagram.

Brokers do not record their messages, but the receiver's trace shows what each message did. An arrow
is drawn from the events of both ends, at the time when the message took effect: a follower's append
is a fetch-response, an acknowledgement a produce-response. Messages that a link fault affected are
recorded (`messages.jsonl`); the arrows of dropped ones end at two bars."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final, NamedTuple

from harness.formats.history import show_value
from nemesis.formats import message_log
from nemesis.formats.message_log import MessageLine
from node.formats import trace
from node.formats.event_text import EXIT
from reports import wording
from reports.evidence import citations
from reports.evidence.files import json_lines
from reports.evidence.model import RunFolder
from reports.messages.message_events import Known, MessageRow, Tone

MOST_ROWS: Final = 64
MOST_AFFECTED: Final = 24
MOST_FAULTS_BEFORE: Final = 6
_EACH: Final = ("client", "fault", "lost")
MARGIN_US: Final = 250_000
AROUND_US: Final = 1_500_000


@dataclass(frozen=True)
class Messages:
    """All rows about one offset, oldest first, and the lifelines that they join."""

    about: str
    lifelines: tuple[str, ...]
    rows: tuple[MessageRow, ...]
    down_at_first: frozenset[str]
    left_out: int = 0
    recorded: bool = False


class _Window(NamedTuple):
    partition: str
    low: int
    high: int
    start_us: int
    end_us: int


def messages(folder: RunFolder) -> Messages | None:
    """Return the messages of the first finding: about its offset if it names one, else at its time.
    None if there is no finding, or no trace of its partition."""
    place = _place(folder)
    if place is None:
        return None
    # What a client saw in the end matters, however late it was.
    known = [r for r in _recorded(folder, place) if r.t_us <= place.end_us or r.tone == "client"]
    # What clients did at the offset belongs to it, however long an answer took.
    whole = place.high > place.low
    inside = [r for r in known if r.t_us >= place.start_us or (whole and r.tone == "client")]
    if not any(row.tone in ("data", "client", "control") for row in inside):
        return None
    affected = list(_affected(folder, place))
    inside += [*_faults(folder, place, counted=not affected), *_evenly(affected)]
    inside.sort(key=lambda row: (row.t_us, bool(row.sender)))
    inside = list(_once(inside))
    broke = next((s.t_us for s in folder.steps if s.rule or s.breaks), None)
    found_us = min((a.t_us for a in folder.anomalies if a.t_us >= 0), default=place.end_us)
    kept = _kept(inside, found_us if broke is None else broke)
    where = wording.clip(place.partition, 120)
    about = f"{where} around the first finding"
    if place.high > place.low:
        about = f"offset {place.low:,} of {where}"
    return Messages(
        about=about,
        rows=tuple(kept),
        lifelines=_lifelines(folder, kept, place.partition),
        down_at_first=_down(known, kept[0].t_us),
        left_out=len(inside) - len(kept),
        recorded=bool(affected),
    )


def _once(found: Iterable[MessageRow]) -> Iterator[MessageRow]:
    """Yield equal rows that follow each other as one, with their number; those of clients, faults
    and lost messages one by one."""

    def said(row: MessageRow) -> MessageRow:
        return replace(row, citation="", t_us=row.t_us if row.tone in _EACH else 0)

    for _, alike in groupby(found, said):
        first, *more = alike
        yield replace(first, text=f"{first.text} ({len(more) + 1} times)") if more else first


def _place(folder: RunFolder) -> _Window | None:
    """Return the story's offset and time, else the finding's."""
    story, steps = folder.story, folder.steps
    if story is not None and steps and story.offset >= 0:
        low, first_us, last_us = story.offset, steps[0].t_us, steps[-1].t_us
        return _Window(story.partition, low, low + 1, first_us - MARGIN_US, last_us + MARGIN_US)
    found = next((a for a in folder.anomalies if a.partition and a.t_us >= 0), None)
    if found is None:
        return None
    low, high = (found.offset, found.offset + 1) if found.offset >= 0 else (0, 0)
    start, end = found.t_us - AROUND_US, found.t_us + AROUND_US
    return _Window(found.partition, low, high, start, end)


def _kept(found: list[MessageRow], centre: int) -> list[MessageRow]:
    """Return at most MOST_ROWS: the events of the violation, faults and what clients saw, then the
    nearest."""
    if len(found) <= MOST_ROWS:
        return found

    def rank(at: int) -> tuple[bool, int]:
        row = found[at]
        kept = row.breaks or row.tone == "client" or not row.sender
        return (not kept, abs(row.t_us - centre))

    return [found[at] for at in sorted(sorted(range(len(found)), key=rank)[:MOST_ROWS])]


def _down(known: Iterable[MessageRow], before_us: int) -> frozenset[str]:
    """Return the nodes whose process had ended before the first row."""
    down: set[str] = set()
    for row in known:
        if row.t_us < before_us:
            down = (down | {row.down}) - {row.up, ""}
    return frozenset(down)


def _lifelines(folder: RunFolder, shown: Iterable[MessageRow], partition: str) -> tuple[str, ...]:
    """Clients first, then the replicas, then the controllers; only those with messages."""
    named = {name for row in shown for name in (row.sender, row.receiver) if name}
    replicas = folder.info.partitions.get(partition, ()) or folder.info.brokers
    others = sorted(named - set(replicas), key=wording.by_number)
    nodes = {*folder.info.brokers, *folder.info.voters}
    clients = [name for name in others if name not in nodes]
    return (*clients, *replicas, *(name for name in others if name not in clients))


def _recorded(folder: RunFolder, place: _Window) -> list[MessageRow]:
    known = Known(place.low, place.high)
    found = list(_operations(folder, place))
    for e, line in folder.traces.of_partition(place.partition):
        row = known.row(e, str(line)) if e.event == EXIT or not folder.traces.probed else None
        if row is not None:
            found.append(row)
    if folder.traces.probed:
        found += _answered(folder)
    return _addressed(sorted(found, key=lambda row: row.t_us))


def _answered(folder: RunFolder) -> Iterator[MessageRow]:
    """Yield what nodes without traces said of themselves, as the story words it, and when they were
    started again."""
    for step, line in citations.of_story(folder) or ():
        if step.kind in (trace.ROLE, trace.ISR) and step.node:
            text = step.text.removeprefix(f"{step.node} ").rstrip(".")
            yield MessageRow(step.t_us, step.node, "", text, "own", str(line or ""))
    for fault in folder.faults:
        for node in fault.nodes if fault.kind.ends_process and fault.healed else ():
            text, cited = "is started again", f"#fault-{fault.index}"
            yield MessageRow(fault.end_us, node, "", text, "own", cited, up=node)


def _addressed(found: list[MessageRow]) -> list[MessageRow]:
    """Address each produce request to the leader that appended next, as it was acknowledged."""
    leader, made = "", []
    for row in reversed(found):
        if row.appends:
            leader = row.sender
        if row.text.startswith("produce:") and leader:
            row = replace(row, receiver=leader)
        made.append(row)
    return made[::-1]


def _operations(folder: RunFolder, place: _Window) -> Iterator[MessageRow]:
    """Yield the writes and reads of clients at this place; traces have the acknowledgements."""
    # Without traces nobody knows which server answered: one lifeline stands for all of them.
    traced = folder.traces.rows.num_rows and not folder.traces.probed
    whole = "" if traced else "servers"
    ops = folder.operations
    for window in folder.windows:
        if window.partition != place.partition or not window.low <= place.low < window.high:
            continue
        acked = window.acked.get(place.low, ())
        rows = ops.rows_of([seen.op for seen in acked])
        for seen in acked:
            if seen.op in rows:
                invoked = int(ops.invoked_us[rows[seen.op]])
                text, cited = f"produce: value {show_value(seen.value)}", f"operation #{seen.op}"
                yield MessageRow(invoked, seen.client, whole, text, "client", cited)
                if whole:
                    text = f"acknowledged: value {show_value(seen.value)} at offset {place.low}"
                    yield MessageRow(seen.t_us, whole, seen.client, text, "client", cited)
        for seen in [*window.read.get(place.low, ()), *window.final.get(place.low, ())]:
            text = f"read: value {show_value(seen.value)} at offset {place.low}"
            yield MessageRow(
                seen.t_us,
                seen.node or whole or seen.client,
                seen.client if seen.node or whole else "",
                text,
                "client",
                f"operation #{seen.op}",
            )
        return  # Another window with the same offset has the same of it.


def _faults(folder: RunFolder, place: _Window, *, counted: bool) -> Iterator[MessageRow]:
    """Yield the faults that were active in the window, and the last ones before it; `counted`: with
    the number of messages that each dropped."""
    done = [f for f in folder.faults if f.status == "done" and f.start_us <= place.end_us]
    earlier = [f for f in done if f.end_us < place.start_us]
    for fault in done:
        if fault in earlier[:-MOST_FAULTS_BEFORE]:
            continue
        text = f"fault: {fault.what} {wording.clip(fault.short_victims, 40)}"
        if fault.kind.lasts and fault.healed:
            text += f", for {wording.span(fault.end_us - fault.start_us)}"
        if counted and (dropped := fault.counts.get("dropped")):
            text += f" ({wording.count(dropped, 'message')} dropped until it ends)"
        yield MessageRow(fault.start_us, "", "", text, "fault", f"#fault-{fault.index}")


def _affected(folder: RunFolder, place: _Window) -> Iterator[MessageRow]:
    """Messages of the partition, or of none, that a link fault affected in the window."""
    file = folder.path / message_log.FILE
    for number, m in json_lines(file, MessageLine, folder.notes):
        if m.partition not in ("", place.partition):
            continue
        if place.start_us <= m.t_us <= place.end_us:
            facts = [
                f"{name} {value}"
                for name, value in (
                    ("offset", m.offset),
                    ("high watermark", m.hw),
                    ("epoch", m.leader_epoch),
                    ("term", m.term),
                )
                if value >= 0
            ]
            text = f"{m.kind}: {', '.join(facts) or m.fate}"
            tone: Tone = "lost" if m.fate == "dropped" else "fault"
            label = text if m.fate == "dropped" else f"{text} ({m.fate})"
            yield MessageRow(
                m.t_us, m.sender, m.receiver, label, tone, f"{message_log.FILE}:{number}"
            )


def _evenly(found: list[MessageRow]) -> list[MessageRow]:
    """Select the first equal rows of each kind and link, then some at equal distances."""
    first = {(row.sender, row.receiver, row.text.split(":")[0]): row for row in reversed(found)}
    kept = {id(row) for row in first.values()}
    rest = [row for row in found if id(row) not in kept]
    room = max(0, MOST_AFFECTED - len(first))
    step = max(1, -(-len(rest) // room)) if room else len(rest) + 1
    return [*first.values(), *rest[::step]]
