"""The wording of trace events: every event has one, and it reads as a sentence."""

from __future__ import annotations

import pytest

from node.formats import trace
from node.formats.event_text import EXIT, Event, action, leadership, message, offsets, parse

ACTIONS = [
    (Event("started", incarnation=1), "starts (process 1)"),
    (
        Event("started", incarnation=2, clean=False),
        "starts again (process 2); its disk may have lost data",
    ),
    (Event("stopped"), "shuts down"),
    (Event(EXIT, reason="kill"), "exits (kill)"),
    (Event("registered", broker_epoch=7), "is registered with broker epoch 7"),
    (
        Event("role", role="leader", leader="n1", leader_epoch=2, leo=6, hw=5),
        "becomes leader of epoch 2 (log end 6, high watermark 5)",
    ),
    (
        Event("role", role="follower", leader="n1", leader_epoch=2, leo=6, hw=5),
        "follows n1 in epoch 2 (log end 6, high watermark 5)",
    ),
    (
        Event("role", role="candidate", leader_epoch=2, leo=6, hw=5),
        "has role candidate in epoch 2 (log end 6, high watermark 5)",
    ),
    (Event("isr", isr=("n1",), maximal_isr=("n1", "n2")), "has ISR [n1], maximal ISR [n1, n2]"),
    (Event("proposed", isr=("n1", "n2")), "proposes ISR [n1, n2]"),
    (Event("reported", leader="n1"), "reports that leader n1 does not answer"),
    (Event("witnessed", leader="n1", witnesses=("n2",)), "has reports from [n2] about leader n1"),
    (
        Event("append", role="leader", base_offset=5, leo=6, leader_epoch=2),
        "appends offset 5 as leader of epoch 2",
    ),
    (
        Event("append", role="follower", base_offset=5, leo=8, leader_epoch=2),
        "copies offsets 5-7 of epoch 2 from its leader",
    ),
    (
        Event("truncated", from_leo=9, leo=5, reason="own-high-watermark"),
        "truncates its log from 9 to 5, to its own high watermark",
    ),
    (Event("truncated", from_leo=9, leo=5, reason="new"), "truncates its log from 9 to 5 (new)"),
    (
        Event("deleted", from_start=2, start=5, leo=9, reason="retention"),
        "deletes the head of its log: it begins at 5, no longer at 2; all of it is committed",
    ),
    (
        Event("deleted", from_start=2, start=5, leo=5, reason="new"),
        "deletes the head of its log: it begins at 5, no longer at 2",
    ),
    (
        Event("diverging", follower="n2", epoch=1, end_offset=5),
        "tells n2 that its log diverges: epoch 1 ends at 5",
    ),
    (Event("hw", role="leader", hw=6), "moves its high watermark to 6"),
    (Event("hw", role="follower", hw=6), "learns high watermark 6 from its leader"),
    (
        Event("ack", base_offset=5, leo=6, acks=-1, hw=6, isr=("n1", "n2"), client="c1"),
        "acknowledges offset 5 to c1 (acks=all), ISR [n1, n2], high watermark 6",
    ),
    (
        Event("duplicate", base_offset=5, leo=7, hw=5, client="c1"),
        "knows offsets 5-6, which c1 sends again",
    ),
    (
        Event("refused", kind="fetch", source="n2", reason="not-leader"),
        "refuses fetch from n2: not-leader",
    ),
    (Event("vote", candidate="v2", term=3), "grants its vote for v2 in term 3"),
    (Event("vote", candidate="v2", term=3, pre=True), "grants its pre-vote for v2 in term 3"),
    (Event("controller", state="active", term=3), "becomes controller in term 3"),
    (Event("controller", state="resigned", term=3), "resigns as controller in term 3"),
    (Event("broker", broker="n1", state="fenced"), "commits: n1 is fenced"),
    (
        Event("partition", leader="n2", leader_epoch=2, isr=("n2",), elr=("n3",)),
        "commits: n2 leads epoch 2, ISR [n2], ELR [n3]",
    ),
    (Event("break", before="send", at="ack"), "stops at a breakpoint, before the send of 'ack'"),
    (
        Event("damaged", offset=5, what="batch checksum does not match"),
        "finds the batch at 5 damaged on its disk: batch checksum does not match",
    ),
    (
        Event("damaged", key="hw/log-0", what="its checksum does not match"),
        "finds the value 'hw/log-0' damaged on its disk: its checksum does not match",
    ),
]

MESSAGES = [
    (Event("append", base_offset=5, leo=6, leader_epoch=2), "fetch-response: offset 5 of epoch 2"),
    (Event("ack", base_offset=5, leo=6, isr=("n1",)), "produce-response: offset 5, ISR [n1]"),
    (Event("hw", hw=6), "fetch-response: high watermark 6"),
    (Event("diverging", epoch=1, end_offset=5), "fetch-response: epoch 1 ends at 5"),
    (Event("proposed", isr=("n1",)), "alter-partition: ISR [n1]"),
    (Event("reported", leader="n1"), "report-leader: n1 does not answer"),
    (Event("vote", candidate="v2", term=3), "vote-response: vote for v2 in term 3"),
    (Event("refused", kind="fetch", reason="fenced"), "fetch: refused (fenced)"),
]


@pytest.mark.parametrize(("event", "text"), ACTIONS)
def test_an_event_as_an_action_of_its_node(event: Event, text: str) -> None:
    assert action(event) == text


@pytest.mark.parametrize(("event", "text"), MESSAGES)
def test_an_event_as_the_message_that_it_shows(event: Event, text: str) -> None:
    assert message(event) == text


def test_every_event_has_words() -> None:
    assert {event.event for event, _ in ACTIONS} == {*trace.FIELDS, EXIT}
    assert action(Event("unheard-of")) == message(Event("unheard-of")) == ""


def test_every_field_is_one_of_the_vocabulary() -> None:
    known = {name for fields in trace.FIELDS.values() for name in fields}
    always = {"event", "t_us", "node", "incarnation", "partition"}
    assert set(Event.__struct_fields__) <= known | always


def test_a_decoded_line_is_read() -> None:
    line = trace.event("append", "p", base_offset=1, leo=2, leader_epoch=3, hash="", role="leader")
    read = parse({"t_us": 5, "node": "n1", "incarnation": 1, **line})
    assert (read.node, read.base_offset, read.partition) == ("n1", 1, "p")


def test_parts_of_sentences() -> None:
    assert (offsets(5, 6), offsets(5, 9)) == ("offset 5", "offsets 5-8")
    assert leadership("", 2, ()) == "nobody leads epoch 2, ISR []"
    assert leadership("n1", 2, ("n1",), unclean=True) == (
        "n1 leads epoch 2 after an unclean election, ISR [n1]"
    )
