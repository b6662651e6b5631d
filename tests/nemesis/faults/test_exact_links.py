"""Exact windows: breakpoints, releases, and single operations with triggers."""

from __future__ import annotations

import pytest

from nemesis.faults import Break, Kill, Link, Pause, PowerCut, Release
from nemesis.formats.schedule import After, Cluster, Schedule, Send, Workload, check, parse
from node.formats import trace
from node.formats.errors import UsageError
from tests.support.nemesis_world import Storm

STOPPED = After(event="break")


def stops(storm: Storm, node: str, number: int) -> None:
    """A process comes to a breakpoint."""
    storm.happens(node, trace.BREAK, "log-0", number=number, before="send", at="ack")


class TestBreak:
    def test_it_is_armed_ahead_and_a_kill_ends_who_stands_there(self) -> None:
        storm = Storm(
            Break(at_ms=0, on="n1", event="ack", name="unsent"),
            Kill(after=STOPPED, on="n1", for_ms=50),
        )
        storm.run(20)
        stops(storm, "n1", 1)
        storm.run(100)
        storm.injector.heal_all()
        assert storm.world.log == [
            "0 add_breakpoint n1",
            "20 kill n1",
            "70 start n1",
            "100 remove_breakpoint n1",
        ]
        assert storm.lines[-2]["stopped"] == 1

    def test_its_time_counts_from_the_stop(self) -> None:
        storm = Storm(Break(at_ms=0, on="n1", event="ack", for_ms=30))
        storm.run(500)
        assert not storm.injector.exhausted
        stops(storm, "n1", 1)
        storm.run(1000)
        assert storm.world.log == ["0 add_breakpoint n1", "530 remove_breakpoint n1"]
        assert storm.injector.exhausted

    def test_one_that_nobody_came_to_had_no_effect(self) -> None:
        storm = Storm(Break(at_ms=0, on="n1", event="ack"))
        storm.run(10)
        storm.injector.heal_all()
        (effect,) = [line for line in storm.lines if line["action"] == "effect"]
        assert (effect["stopped"], effect["nodes"]) == (0, [])

    def test_all_its_nodes_or_none(self) -> None:
        storm = Storm(Break(at_ms=0, on="n1,n2", event="ack"))
        storm.world.broken.add("add_breakpoint n2")
        storm.run(1)
        assert storm.told() == ["0 missed n1,n2: cannot add_breakpoint n2"]
        assert not storm.world.points


class TestRelease:
    def test_messages_are_held_until_an_event_lets_them_go(self) -> None:
        storm = Storm(
            Link(at_ms=0, on="n1", to="n2", action="hold", name="late"),
            Release(after=After(event="role"), of="late"),
        )
        storm.run(70)
        storm.leads("n2")
        assert storm.world.log == ["0 add_rule n1>n2", "70 remove_rule 1"]
        assert storm.told()[1:] == ["0 heal n1", "0 effect n1: 10 messages matched", "1 inject n1"]

    def test_what_is_released_early_is_not_undone_again(self) -> None:
        storm = Storm(Pause(at_ms=0, on="n1", for_ms=100, name="nap"), Release(at_ms=10, of="nap"))
        storm.run(200)
        assert storm.world.log == ["0 pause n1", "10 resume n1"]

    def test_a_release_of_what_is_not_in_force_is_missed(self) -> None:
        storm = Storm(Kill(at_ms=50, on="n1", name="later"), Release(at_ms=10, of="later"))
        storm.run(100)
        assert "1 missed: no fault 'later' is in force" in storm.told()


class TestOperations:
    def test_they_begin_at_their_time_or_event_and_after_the_faults_of_that_moment(self) -> None:
        storm = Storm(
            Kill(after=After(event="role"), on="n2"),
            operations=(
                Send(client="c1", at_ms=5),
                Send(client="c1", after=After(event="role", delay_ms=20)),
                Send(client="c1", after=After(event="role")),
            ),
        )
        storm.run(50)
        storm.leads("n1")
        assert not storm.injector.exhausted
        storm.run(100)
        assert storm.world.log == ["5 operate 0", "50 kill n2", "50 operate 2", "70 operate 1"]
        assert (storm.injector.operated, storm.injector.exhausted) == (3, True)

    def test_one_that_cannot_be_handed_over_is_a_problem_of_the_run(self) -> None:
        storm = Storm(operations=(Send(client="c1", at_ms=0),))
        storm.world.broken.add("operate 0")
        storm.run(1)
        assert storm.injector.problems == ["operation 0: cannot operate 0"]


WRONG = [
    ("fault 0 (break): unknown trace event 'nap'", Break(at_ms=0, on="n1", event="nap")),
    ("fault 0 (break): nth: expected `int` >= 1", Break(at_ms=0, on="n1", event="ack", nth=0)),
    (
        "fault 0 (break): 'ack' has no field 'x'",
        Break(at_ms=0, on="n1", event="ack", match={"x": 1}),
    ),
    ("fault 0 (release): no fault is called 'it'", Release(at_ms=0, of="it")),
    ("operation 0 (send): client 'c2' must be one of its own: c3", Send(client="c2", at_ms=0)),
    ("operation 0 (send): clients are numbered without gaps", Send(client="c4", at_ms=0)),
    ("operation 0 (send): no partition 'log-9'", Send(client="c3", at_ms=0, partition="log-9")),
    ("operation 0 (send): needs exactly one of at_ms", Send(client="c3")),
    ("operation 0 (send): count must be", Send(client="c3", at_ms=0, count=0)),
]


@pytest.mark.parametrize(("wrong", "what"), WRONG)
def test_what_no_run_could_carry_out_is_refused(wrong: str, what: Break | Release | Send) -> None:
    operations, faults = ((what,), ()) if isinstance(what, Send) else ((), (what,))
    schedule = Schedule(
        cluster=Cluster(),
        faults=faults,
        workload=Workload(clients=1, consumers=1, operations=operations),
    )
    with pytest.raises(UsageError) as refused:
        check(schedule)
    assert wrong in str(refused.value)


def test_two_faults_of_one_name_are_refused() -> None:
    twice = tuple(PowerCut(at_ms=at, on="n1", name="dark") for at in (0, 1))
    with pytest.raises(UsageError, match="two faults are called 'dark'"):
        check(Schedule(faults=twice))


def test_a_client_either_sends_or_polls() -> None:
    text = b"""{"floodmark_schedule": 1, "workload": {"clients": 0, "consumers": 0, "operations": [
        {"what": "send", "client": "c1", "at_ms": 0}, {"what": "poll", "client": "c1", "at_ms": 1}
    ]}}"""
    with pytest.raises(UsageError, match="client 'c1' either sends or polls"):
        parse(text)
