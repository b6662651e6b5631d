"""The trace events of a run that can trigger faults and operations. Pure.

"Kill n1 after 812 ms" means nothing in another world, but "when n2 has truncated its log" does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
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


_PROGRESS: Final = {
    trace.ROLE: "leader_epoch",
    trace.APPEND: "leo",
    trace.HW: "hw",
    trace.ACK: "leo",
    trace.PARTITION: "leader_epoch",
}
"""Fields that only grow: a trigger may match their value instead of counting events."""
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
    candidates = list(candidates)
    made = []
    for trigger in candidates:
        if trigger.event.get("role", "leader") == "leader" and trigger.after.event != trace.VOTE:
            any_node = next(alternative_triggers(candidates, trigger), trigger.after)
            made.append(trigger._replace(after=any_node))
    return made


def alternative_triggers(
    candidates: Iterable[TriggerCandidate], trigger: TriggerCandidate
) -> Iterator[After]:
    """Yield other triggers for an event: on any node, and by a lower bound of a growing field (such
    as an offset) instead of by number, because other worlds may have more equal events."""
    past = [
        m.event
        for m in candidates
        if m.t_us <= trigger.t_us and m.after.event == trigger.after.event
    ]
    own = trigger.after.match
    any_node = {name: value for name, value in own.items() if name not in _IDENTITY}
    field = _PROGRESS.get(trigger.after.event)
    matches = [any_node]
    if field is not None:
        matches += [
            match | {field: {"at_least": trigger.event[field]}} for match in (any_node, own)
        ]
    for match in matches:
        if match != own:
            nth = sum(trace.matches(event, match) for event in past)
            yield replace(trigger.after, match=match, nth=max(1, nth))


def before(candidates: Iterable[TriggerCandidate], at_us: int, most: int) -> list[TriggerCandidate]:
    """Return the last `most` candidates before a time, latest first; of equal ones the latest."""
    latest: dict[tuple[Any, ...], TriggerCandidate] = {}
    for trigger in candidates:
        if trigger.t_us <= at_us:
            key = _key(trigger)
            latest.pop(key, None)
            latest[key] = trigger
    return list(reversed(latest.values()))[:most]


def following(
    candidates: Iterable[TriggerCandidate], at_us: int, most: int
) -> list[TriggerCandidate]:
    """Return the first `most` candidates after a time; of equal triggers only the first."""
    soonest: dict[tuple[Any, ...], TriggerCandidate] = {}
    for trigger in candidates:
        if trigger.t_us > at_us:
            soonest.setdefault(_key(trigger), trigger)
    return list(soonest.values())[:most]


def _key(trigger: TriggerCandidate) -> tuple[Any, ...]:
    return trigger.after.event, *trigger.after.match.items()
