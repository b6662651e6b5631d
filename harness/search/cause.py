"""How a failure came about, as a name: the second half of a bucket. Pure.

Two schedules that fail by the same mistake get the same name, wherever and whenever it was made:
no node, offset, epoch or time is in it. Two different mistakes should not: so the name says which
step lost or kept the record, and by which rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from checker.formats.timeline import Sentence
from node.formats import trace

ELECTED_WITHOUT: Final = "elected-without"
VOTED: Final = "by-votes"
NEVER_CUT: Final = "never-cut"


def of_story(story: Sequence[Sentence], events: Iterable[Mapping[str, Any]], partition: str) -> str:
    """The first step of a record's story at which something broke, "" when there is none.

    "cut:RULE" and "overwritten" as the story says; of a leader that lacks the record also by what
    right it was elected: "elected-without:in-sync".
    """
    step = next((s for s in story if s.breaks), None)
    if step is None:
        return ""
    if step.breaks != ELECTED_WITHOUT:
        return step.breaks
    return f"{step.breaks}:{_right_to_lead(step, events, partition)}"


def _right_to_lead(step: Sentence, events: Iterable[Mapping[str, Any]], partition: str) -> str:
    """What the controller knew of a leader when it was elected."""
    isr: Sequence[str] = ()
    elr: Sequence[str] = ()
    right = VOTED
    for event in _told(events, partition, trace.PARTITION):
        if event["t_us"] > step.t_us:
            break
        if event["leader"] == step.node:
            # It may have been leader before: what counts is how it became leader this time.
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
    """By which rule the logs were last cut before they were taken to be equal: "kept:RULE".

    Of `node` when it is known who differs, else of any replica; "kept:never-cut" where nobody did.
    """
    rule = NEVER_CUT
    for event in _told(events, partition, trace.TRUNCATED):
        if until_us is not None and event["t_us"] > until_us:
            break
        if node in ("", event["node"]):
            rule = event["reason"]
    return f"kept:{rule}"


def _told(
    events: Iterable[Mapping[str, Any]], partition: str, name: str
) -> list[Mapping[str, Any]]:
    found = [e for e in events if e["event"] == name and e.get("partition") == partition]
    return sorted(found, key=lambda e: (e["t_us"], e["node"]))
