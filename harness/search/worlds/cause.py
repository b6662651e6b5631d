"""The cause of a failure as a short name, the second half of a bucket (class of failures). Pure.

Schedules that fail by the same bug should get the same name, so it contains no node, offset, epoch
or time. Different bugs should get different names, so it says which step lost the record or kept a
wrong one, and by which rule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from checker.formats.story import StoryStep
from node.formats import trace

ELECTED_WITHOUT: Final = "elected-without"
VOTED: Final = "by-votes"
NEVER_CUT: Final = "never-cut"


def of_record(
    history: Sequence[StoryStep], events: Iterable[Mapping[str, Any]], partition: str
) -> str:
    """Return the first wrong step in the history of a record, "" if none is: "cut:RULE",
    "overwritten", or for a leader that lacks it by which rule: "elected-without:in-sync"."""
    step = next((s for s in history if s.breaks), None)
    if step is None:
        return ""
    if step.breaks != ELECTED_WITHOUT:
        return step.breaks
    return f"{step.breaks}:{_election_rule(step, events, partition)}"


def _election_rule(step: StoryStep, events: Iterable[Mapping[str, Any]], partition: str) -> str:
    """Return the rule by which a leader was elected, from the controller's state at that time."""
    isr: Sequence[str] = ()
    elr: Sequence[str] = ()
    right = VOTED
    for event in _events(events, partition, trace.PARTITION):
        if event["t_us"] > step.t_us:
            break
        if event["leader"] == step.node:
            # It may have led before: the rule of its latest election counts.
            right = right if right != VOTED else _right(event, isr, elr)
        else:
            right = VOTED
        isr, elr = event["isr"], event["elr"]
    return right


def _right(event: Mapping[str, Any], isr: Sequence[str], elr: Sequence[str]) -> str:
    if event["unclean"]:
        return "unclean"
    if event["leader"] in isr:
        return "in-sync"
    return "eligible" if event["leader"] in elr else "outside"


def of_divergence(
    events: Iterable[Mapping[str, Any]], partition: str, node: str = "", until_us: int | None = None
) -> str:
    """Return why two logs differ: "kept:RULE" with the rule of the last truncation of `node` ("":
    of any replica), which chose what was kept; "kept:never-cut" without a truncation."""
    rule = NEVER_CUT
    for event in _events(events, partition, trace.TRUNCATED):
        if until_us is not None and event["t_us"] > until_us:
            break
        if node in ("", event["node"]):
            rule = event["reason"]
    return f"kept:{rule}"


def _events(
    events: Iterable[Mapping[str, Any]], partition: str, name: str
) -> list[Mapping[str, Any]]:
    found = [e for e in events if e["event"] == name and e.get("partition") == partition]
    return sorted(found, key=lambda e: (e["t_us"], e["node"]))
