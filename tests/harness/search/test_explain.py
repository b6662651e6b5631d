"""The reasons why a schedule fails, found by leaving out its faults and the messages they
affected."""

from __future__ import annotations

import functools
from pathlib import Path

import msgspec
from msgspec.structs import replace

from harness.formats import finding
from harness.formats.finding import Counterfactual, Explanation
from harness.search import explain
from nemesis import ready_made
from nemesis.faults import Cut
from tests.harness.search.test_attempt import kip_101, trickle


@functools.cache
def bounced() -> Explanation:
    """Explain KIP-101's loss in two kills, with an irrelevant cut long after."""
    late = Cut(on="n2", to="clients", at_ms=1, for_ms=1)
    schedule = kip_101(146)
    return explain.explain(replace(schedule, faults=(*schedule.faults, late)))


def test_each_fault_is_left_out_in_turn() -> None:
    told = bounced()
    faults = [one for one in told.counterfactuals if one.kind == "fault"]
    assert [(one.fault, one.fails) for one in faults] == [(0, False), (1, False), (2, True)]
    assert "Kill n2" in faults[0].without


def test_the_story_ends_at_the_step_that_broke_something() -> None:
    told = bounced()
    assert told.bucket == "no-lost-acknowledged-write: cut:own-high-watermark"
    assert (told.partition, told.offset >= 0) == ("log-0", True)
    breaks = [s for s in told.sentences if s.breaks]
    assert breaks[0].breaks == "cut:own-high-watermark"
    assert all(s.t_us >= told.storm_us for s in breaks)


@functools.cache
def cut_off() -> Explanation:
    """Explain a loss in which a leader is cut off after it acknowledged what it alone has: few
    messages are lost, and another leader is elected without the write."""
    cut = Cut(on="n1", to="rest", at_ms=2, for_ms=400)
    return explain.explain(trickle(cut, protocol="kafka", bugs=("ack-before-isr",)))


def test_each_message_that_was_lost_is_let_through_in_turn() -> None:
    """The cut is shorter than two sessions: only the last heartbeat would have been in time."""
    single = [one for one in cut_off().counterfactuals if one.kind == "message"]
    assert len(single) > 5
    assert [one.message for one in single if not one.fails] == ["heartbeat"]
    assert not [one for one in single if one.message == "heartbeat"][-1].fails


def test_messages_of_one_kind_are_let_through_together() -> None:
    groups = {
        (one.sender, one.receiver, one.message): one.fails
        for one in cut_off().counterfactuals
        if one.kind == "messages"
    }
    assert [link for link, fails in groups.items() if not fails] == [("n1", "v1", "heartbeat")]


def test_an_explanation_is_saved_and_printed(tmp_path: Path) -> None:
    told, file = bounced(), tmp_path / finding.EXPLANATION
    explain.write(told, file)
    assert msgspec.json.decode(file.read_bytes(), type=Explanation) == told
    lines = list(explain.as_lines(told))
    assert "without fault 0 (Kill n2): does not fail" in lines
    assert any(line.startswith("!") for line in lines)
    # Another failure that comes instead is named.
    one = Counterfactual(kind="fault", without="fault 0 (Kill n1)", fails=False, instead="other: x")
    *_, last = explain.as_lines(replace(told, counterfactuals=(one,)))
    assert last.endswith("fails in another way (other: x)")


def test_a_divergence_is_explained_at_its_first_offset() -> None:
    schedule = ready_made.load("kip-279-scenario-1")
    told = explain.explain(schedule)
    assert told.property == "committed-prefix-agreement"
    appends = [s for s in told.sentences if s.kind == "append" and " as leader of " in s.text]
    assert len({s.node for s in appends}) == 2, "two leaders, two records at one offset"
