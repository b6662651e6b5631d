"""Faults of clocks and of system calls: what is asked of the world, and when it is undone."""

from __future__ import annotations

import pytest

from nemesis.draw import draw, expand
from nemesis.faults import ClockJump, ClockRate, ClockSkew, Syscall
from nemesis.formats import schedule as schedules
from nemesis.formats.schedule import Cluster, Fault, Schedule, Workload
from node.formats.errors import UsageError
from tests.support.nemesis_world import Storm


def test_a_skew_ends_and_a_jump_stays() -> None:
    storm = Storm(
        ClockSkew(on="n1", at_ms=10, for_ms=20, offset_ms=500),
        ClockJump(on="n2", at_ms=15, offset_ms=-700),
    )
    storm.run(99)
    acts = ["10 shift_clock 500 n1", "15 shift_clock -700 n2", "30 shift_clock -500 n1"]
    assert storm.world.log == acts


def test_a_clock_runs_at_another_rate_until_the_heal() -> None:
    storm = Storm(ClockRate(on="n1", at_ms=10, for_ms=20, percent=150))
    storm.run(99)
    assert storm.world.log == ["10 set_clock_rate 150 n1", "30 set_clock_rate 100 n1"]


def test_calls_fail_until_the_heal_which_starts_a_node_that_has_ended() -> None:
    storm = Storm(Syscall(on="n1", at_ms=10, for_ms=20, action="kill", nth=5))
    storm.run(15)
    storm.world.up.remove("n1")
    storm.run(99)
    acts = ["10 add_call_fault kill n1", "30 remove_call_fault n1", "30 start n1"]
    assert storm.world.log == acts
    assert storm.lines[-1]["calls"] == 3
    assert "writes" not in storm.lines[-1]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (ClockSkew(on="n1", at_ms=1, offset_ms=-1500), "Set the wall clock of n1 back by 1.5 s"),
        (ClockJump(on="n1", at_ms=1, offset_ms=2000), "Let the wall clock of n1 jump ahead by 2 s"),
        (ClockRate(on="n1", at_ms=1, percent=67), "Let the clock of n1 run at 67 %"),
        (Syscall(on="n1", at_ms=1, action="error"), "Let fsync and the like of n1 fail with EIO"),
        (
            Syscall(on="n1", at_ms=1, action="kill", nth=5),
            "Kill n1 at its 5th call of fsync and the like",
        ),
        (
            Syscall(on="n1", at_ms=1, action="delay", delay_ms=7, calls="write", nth=2),
            "Let writes of n1 take 7 ms longer, from the second on",
        ),
    ],
)
def test_they_are_put_in_words(fault: ClockSkew, words: str) -> None:
    assert fault.words() == words


@pytest.mark.parametrize(
    ("fault", "wrong"),
    [
        (ClockSkew(on="n1", at_ms=1, offset_ms=0), "offset_ms is 0, which changes nothing"),
        (ClockJump(on="n1", at_ms=1, for_ms=5, offset_ms=9), "so it takes no for_ms"),
        (ClockRate(on="n1", at_ms=1, percent=100), "percent is 100, which changes nothing"),
        (ClockRate(on="n1", at_ms=1, percent=5), "percent: expected `int` >= 10"),
        (Syscall(on="n1", at_ms=1, action="lie", calls="write"), "only calls of the group sync"),
        (Syscall(on="n1", at_ms=1, action="delay"), "delay_ms belongs to the action delay"),
    ],
)
def test_what_means_nothing_is_refused(fault: Fault, wrong: str) -> None:
    with pytest.raises(UsageError, match=wrong):
        schedules.check(Schedule(faults=(fault,)), source="a test")


def test_they_are_drawn_only_when_named() -> None:
    assert not {"clock-skew", "clock-jump", "clock-rate", "syscall"} & set(
        expand(["all"], Cluster())
    )
    assert expand(["clock"], Cluster()) == ("clock-skew", "clock-jump")
    workload = Workload(duration_ms=60_000)
    for seed in range(20):
        faults = draw(Cluster(), workload, ["clock", "clock-rate", "syscall"], seed)
        schedules.check(Schedule(workload=workload, faults=faults), source="a drawn storm")
        kinds = {"clock-skew", "clock-jump", "clock-rate", "syscall"}
        assert {fault.what for fault in faults} == kinds
