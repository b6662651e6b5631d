"""Shrinking, judged by planted failures whose smallest form is known."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.search.choosing import RandomChooser
from harness.search.drawing import draw_schedule
from harness.search.shrink import Shrinking, minimize_list
from harness.search.simplify import SHORTEST_MS
from nemesis.schedule import Kill, Link, Pause, Schedule, check


def drawn(number: int) -> Schedule:
    return draw_schedule(RandomChooser(random.Random(number)), "kafka")


def kills_and_drops(schedule: Schedule) -> bool:
    """A planted bug: a killed node and a lost message of any kind."""
    kills = any(isinstance(fault, Kill) for fault in schedule.faults)
    return kills and any(isinstance(f, Link) and f.action == "drop" for f in schedule.faults)


FAILING = [number for number in range(1500) if kills_and_drops(drawn(number))][:25]


def test_there_are_failures_to_shrink() -> None:
    assert len(FAILING) == 25


@pytest.mark.parametrize("number", FAILING)
def test_a_planted_bug_shrinks_to_its_two_faults(number: int) -> None:
    shrinking = Shrinking(drawn(number), kills_and_drops)
    smallest = shrinking.run()

    assert kills_and_drops(smallest)
    assert [type(fault) for fault in smallest.faults if isinstance(fault, Kill | Link)]
    assert len(smallest.faults) == 2
    assert (smallest.workload.clients, smallest.workload.consumers) == (1, 0)
    assert smallest.cluster.partitions == 1
    assert all((fault.for_ms or 0) <= SHORTEST_MS for fault in smallest.faults)
    check(smallest)
    assert shrinking.tries < 200
    assert not shrinking.exhausted


def test_the_same_failure_shrinks_to_the_same_bytes() -> None:
    results = {Shrinking(drawn(FAILING[0]), kills_and_drops).run().to_json() for _ in range(3)}
    assert len(results) == 1


def test_one_class_of_failure_does_not_become_another() -> None:
    """A schedule with two bugs, either of which alone fails: the judge of the first decides."""
    both = next(
        schedule for schedule in map(drawn, range(5000))
        if {Kill, Pause} <= {type(fault) for fault in schedule.faults}
    )  # fmt: skip

    def by_pause(schedule: Schedule) -> bool:
        return any(isinstance(fault, Pause) for fault in schedule.faults)

    (only,) = Shrinking(both, by_pause).run().faults
    assert isinstance(only, Pause)


def test_a_bound_on_tries_keeps_the_smallest_so_far() -> None:
    shrinking = Shrinking(drawn(FAILING[0]), kills_and_drops, max_tries=2)
    smallest = shrinking.run()
    assert shrinking.tries == 2
    assert shrinking.exhausted
    assert kills_and_drops(smallest)


@given(st.lists(st.booleans(), max_size=40))
def test_exactly_the_needed_items_remain(needed: list[bool]) -> None:
    wanted = [at for at, is_needed in enumerate(needed) if is_needed]

    def fails(items: Sequence[int]) -> bool:
        return set(wanted) <= set(items)

    assert minimize_list(list(range(len(needed))), fails) == wanted
