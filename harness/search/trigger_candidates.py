"""Moments of a run as triggers: the events near a time, each told by a few of its fields. Pure.

A search finds "kill n1 after 812 ms"; in another world that moment never comes again, but "when n2
has cut its log" does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from nemesis.formats.schedule import After
from node.formats import trace

_TOLD_BY: Final[dict[str, tuple[str, ...]]] = {
    trace.ROLE: ("node", "partition", "role", "leader_epoch"),
    trace.TRUNCATED: ("node", "partition"),
    trace.STARTED: ("node", "incarnation"),
    trace.REGISTERED: ("node", "incarnation"),
    trace.ISR: ("node", "partition"),
    trace.PROPOSED: ("node", "partition"),
    trace.APPEND: ("node", "partition", "role"),
    trace.HW: ("node", "partition", "role"),
    trace.ACK: ("node", "partition"),
    trace.PARTITION: ("partition", "leader", "leader_epoch"),
    trace.DIVERGING: ("node", "partition"),
    trace.VOTE: ("node", "partition", "candidate"),
}
"""Events that tell a moment, and the fields by which it is told."""


_REACHED: Final = {
    trace.ROLE: "leader_epoch",
    trace.APPEND: "leo",
    trace.HW: "hw",
    trace.ACK: "leo",
    trace.PARTITION: "leader_epoch",
}
"""Fields that only grow: an event is also told by how far they have come."""
_WHOSE: Final = ("node", "incarnation", "leader")


class Moment(NamedTuple):
    """A trigger without a delay, when it came, and the process (node, incarnation) it came from.

    `event` is what came then.
    """

    after: After
    t_us: int
    node: str
    incarnation: int
    event: Mapping[str, Any] = {}


def moments(events: Iterable[Mapping[str, Any]], storm_us: int) -> Iterator[Moment]:
    """Every event of the storm that tells a moment, in order of time, counted among its like.

    What a node does is told, and counted, for each of its processes apart.
    """
    counts: dict[tuple[tuple[str, Any], ...], int] = {}
    for event in sorted(events, key=lambda e: (e["t_us"], e["node"])):
        name = event["event"]
        if event["t_us"] < storm_us or name not in _TOLD_BY:
            continue
        if event.get("partition") == trace.METADATA_PARTITION or _stands(event):
            continue
        match = {field: event[field] for field in _TOLD_BY[name] if field in event}
        incarnation = event.get("incarnation", 1)
        if "node" in match and incarnation > 1:
            match["incarnation"] = incarnation
        key = (("event", name), *match.items())
        counts[key] = counts.get(key, 0) + 1
        after = After(event=name, match=match, nth=counts[key])
        yield Moment(after, event["t_us"], event["node"], incarnation, event)


def _stands(event: Mapping[str, Any]) -> bool:
    """Whether a replica that follows nobody says so: each timeout brings that about again."""
    return event["event"] == trace.ROLE and event["role"] != "leader" and not event["leader"]


def of_leaders(told: Iterable[Moment]) -> list[Moment]:
    """The moments that any replica brings about which happens to lead, told by that and by how far
    it has come. Where replicas vote, it is a matter of chance who leads."""
    told = list(told)
    made = []
    for moment in told:
        if moment.event.get("role", "leader") == "leader" and moment.after.event != trace.VOTE:
            whoever = next(otherwise_told(told, moment), moment.after)
            made.append(moment._replace(after=whoever))
    return made


def otherwise_told(told: Iterable[Moment], moment: Moment) -> Iterator[After]:
    """Other triggers for the same moment: whoever it is that does it, and by how far it has come
    instead of how often it was done. What is counted again in another world may be more or less."""
    past = [m.event for m in told if m.t_us <= moment.t_us and m.after.event == moment.after.event]
    own = moment.after.match
    anybody = {name: value for name, value in own.items() if name not in _WHOSE}
    field = _REACHED.get(moment.after.event)
    matches = [anybody]
    if field is not None:
        matches += [match | {field: {"at_least": moment.event[field]}} for match in (anybody, own)]
    for match in matches:
        if match != own:
            nth = sum(trace.matches(event, match) for event in past)
            yield replace(moment.after, match=match, nth=max(1, nth))


def before(told: Iterable[Moment], at_us: int, most: int) -> list[Moment]:
    """The last few before a time, the latest first; of those told alike only the latest."""
    latest: dict[tuple[Any, ...], Moment] = {}
    for moment in told:
        if moment.t_us <= at_us:
            key = _alike(moment)
            latest.pop(key, None)
            latest[key] = moment
    return list(reversed(latest.values()))[:most]


def following(told: Iterable[Moment], at_us: int, most: int) -> list[Moment]:
    """The first few after a time; of those told alike only the first."""
    soonest: dict[tuple[Any, ...], Moment] = {}
    for moment in told:
        if moment.t_us > at_us:
            soonest.setdefault(_alike(moment), moment)
    return list(soonest.values())[:most]


def _alike(moment: Moment) -> tuple[Any, ...]:
    return moment.after.event, *moment.after.match.items()
