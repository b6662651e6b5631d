"""The names of mistakes: the same for the same mistake, another for another."""

from __future__ import annotations

from typing import Any

import pytest

from checker.formats.story import StoryStep
from harness.search.worlds import outcome

PARTITION = "log-0"


def decided(
    t_us: int, leader: str, isr: str, elr: str = "", *, unclean: bool = False
) -> dict[str, Any]:
    """Return the controller's decision about log-0."""
    event = {"t_us": t_us, "node": "v1", "event": "partition", "partition": PARTITION}
    return {**event, "leader": leader, "isr": isr.split(), "elr": elr.split(), "unclean": unclean}


def cut(t_us: int, node: str, reason: str) -> dict[str, Any]:
    event = {"t_us": t_us, "node": node, "event": "truncated"}
    return {**event, "partition": PARTITION, "reason": reason}


def lacking(t_us: int, node: str = "n2") -> list[StoryStep]:
    """Return a story whose only wrong step is that `node` leads without the record."""
    return [
        StoryStep(t_us=0, text="n1 appends", kind="append", node="n1"),
        StoryStep(t_us=t_us, text="n2 leads", kind="role", node=node, breaks="elected-without"),
    ]


@pytest.mark.parametrize(
    ("before", "after", "right"),
    [
        (decided(1, "n1", "n1 n2"), decided(5, "n2", "n2"), "in-sync"),
        (decided(1, "n1", "n1", "n2"), decided(5, "n2", "n2"), "eligible"),
        (decided(1, "n1", "n1"), decided(5, "n2", "n2"), "outside"),
        (decided(1, "n1", "n1"), decided(5, "n2", "n2", unclean=True), "unclean"),
        (decided(1, "n1", "n1 n2"), decided(9, "n2", "n2"), "by-votes"),
    ],
)
def test_the_cause_of_a_leader_without_a_record_is_its_right_to_lead(
    before: dict[str, Any], after: dict[str, Any], right: str
) -> None:
    # Changes after the election do not change the right to lead.
    events = [after, before, decided(after["t_us"] + 1, "n2", "n2 n1")]
    name = outcome.of_record(lacking(8), events, PARTITION)
    assert name == f"elected-without:{right}"


def test_the_cause_of_a_truncation_is_its_rule_and_a_sound_timeline_has_none() -> None:
    wrong = StoryStep(
        t_us=3, text="", kind="truncated", node="n2", breaks="cut:offset-for-leader-epoch"
    )
    assert outcome.of_record([wrong, *lacking(6)], [], PARTITION) == "cut:offset-for-leader-epoch"
    assert outcome.of_record([], [], PARTITION) == ""


def test_the_cause_of_a_divergence_is_the_rule_of_the_last_truncation() -> None:
    events = [
        cut(1, "n2", "own-high-watermark"),
        cut(4, "n2", "offset-for-leader-epoch"),
        cut(6, "n3", "other"),
    ]
    assert outcome.of_divergence(events, PARTITION, "n2") == "kept:offset-for-leader-epoch"
    assert outcome.of_divergence(events, PARTITION, "n2", 3) == "kept:own-high-watermark"
    assert outcome.of_divergence(events, PARTITION) == "kept:other"
    assert outcome.of_divergence(events, PARTITION, "n1") == "kept:never-cut"
