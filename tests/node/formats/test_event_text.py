"""The wording of trace events (`events.txt`): every event has one, and it reads as a sentence."""

from __future__ import annotations

from pathlib import Path

from node.formats import trace
from node.formats.event_text import EXIT, Event, action, message, parse
from tests.support.scripts import read

[EVENTS] = read(Path(__file__).parent / "events.txt")


def test_events_are_worded_as_the_script_says() -> None:
    assert EVENTS.played() == EVENTS.lines


def test_every_event_has_words() -> None:
    assert {command.split()[0] for command in EVENTS.commands} == {*trace.FIELDS, EXIT}
    assert action(Event("unheard-of")) == message(Event("unheard-of")) == ""


def test_every_field_is_one_of_the_vocabulary() -> None:
    known = {name for fields in trace.FIELDS.values() for name in fields}
    always = {"event", "t_us", "node", "incarnation", "partition"}
    assert set(Event.__struct_fields__) <= known | always


def test_a_decoded_line_is_read() -> None:
    line = trace.event("append", "p", base_offset=1, leo=2, leader_epoch=3, hash="", role="leader")
    read = parse({"t_us": 5, "node": "n1", "incarnation": 1, **line})
    assert (read.node, read.base_offset, read.partition) == ("n1", 1, "p")
