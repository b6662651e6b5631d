"""The trace events of a run that can trigger faults and operations. Pure.

"Kill n1 after 812 ms" means nothing in another world, but "when n2 has truncated its log" does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from nemesis.formats.schedule import After
from node.formats import trace

_FIELDS: Final[dict[str, tuple[str, ...]]] = {
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
"""Events that a trigger can wait for, and the fields that identify one of them."""


_IDENTITY: Final = ("node", "incarnation", "leader")


class TriggerCandidate(NamedTuple):
    """An event of a run that can trigger a fault: the trigger without a delay, the time of the
    event, the process (node and incarnation), and the event itself."""

    after: After
    t_us: int
    node: str
    incarnation: int
    event: Mapping[str, Any] = {}


def trigger_candidates(
    events: Iterable[Mapping[str, Any]], storm_us: int
) -> Iterator[TriggerCandidate]:
    """Yield the storm's events as triggers, in order; equal ones are numbered by process."""
    counts: dict[tuple[tuple[str, Any], ...], int] = {}
    for event in sorted(events, key=lambda e: (e["t_us"], e["node"])):
        name = event["event"]
        if event["t_us"] < storm_us or name not in _FIELDS:
            continue
        if event.get("partition") == trace.METADATA_PARTITION or _follows_nobody(event):
            continue
        match = {field: event[field] for field in _FIELDS[name] if field in event}
        incarnation = event.get("incarnation", 1)
        if "node" in match and incarnation > 1:
            match["incarnation"] = incarnation
        key = (("event", name), *match.items())
        counts[key] = counts.get(key, 0) + 1
        after = After(event=name, match=match, nth=counts[key])
        yield TriggerCandidate(after, event["t_us"], event["node"], incarnation, event)


def _follows_nobody(event: Mapping[str, Any]) -> bool:
    """Return whether a replica has no leader: each timeout repeats such events."""
    return event["event"] == trace.ROLE and event["role"] != "leader" and not event["leader"]


def leader_candidates(candidates: Iterable[TriggerCandidate]) -> list[TriggerCandidate]:
    """Return the events of leaders, as triggers on any node: if replicas vote, leaders differ."""
    known = list(candidates)
    return [
        _on_any_node(trigger, known)
        for trigger in known
        if trigger.event.get("role", "leader") == "leader" and trigger.after.event != trace.VOTE
    ]


def _on_any_node(trigger: TriggerCandidate, known: Sequence[TriggerCandidate]) -> TriggerCandidate:
    after = trigger.after
    match = {name: value for name, value in after.match.items() if name not in _IDENTITY}
    past = (each for each in known if each.t_us <= trigger.t_us)
    nth = sum(e.after.event == after.event and trace.matches(e.event, match) for e in past)
    return trigger._replace(after=replace(after, match=match, nth=max(1, nth)))


def before(candidates: Iterable[TriggerCandidate], at_us: int, most: int) -> list[TriggerCandidate]:
    """Return the last `most` candidates before a time, latest first; of equal ones the latest."""
    latest: dict[tuple[Any, ...], TriggerCandidate] = {}
    for trigger in candidates:
        if trigger.t_us <= at_us:
            key = _key(trigger)
            latest.pop(key, None)
            latest[key] = trigger
    return list(reversed(latest.values()))[:most]


def _key(trigger: TriggerCandidate) -> tuple[Any, ...]:
    return trigger.after.event, *trigger.after.match.items()
