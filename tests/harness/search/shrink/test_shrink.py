"""Shrinking, judged by planted failures whose smallest form is known."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import count, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.search.grammar.phrases import compose
from harness.search.shrink import passes as shrink_passes
from harness.search.shrink.passes import (
    REAL_PASSES,
    SHORTEST_MS,
    SIMULATED_PASSES,
    Pass,
    keeping,
    without_each_fault,
)
from harness.search.shrink.shrinker import Shrinking, minimize_list, sort_key
from nemesis.faults import Kill, Link, Pause, Release
from nemesis.formats.schedule import After, Cluster, Poll, Schedule, Send, Workload, check


def drawn(number: int) -> Schedule:
    return compose(random.Random(number), "kafka")


def kills_and_drops(schedule: Schedule) -> bool:
    """Play a planted bug: a killed node and a lost message of any kind."""
    kills = any(isinstance(fault, Kill) for fault in schedule.faults)
    return kills and any(isinstance(f, Link) and f.action == "drop" for f in schedule.faults)


@cache
def failing() -> list[Schedule]:
    """Return drawn schedules that show the planted bug."""
    return list(islice(filter(kills_and_drops, map(drawn, count())), 6))


@pytest.mark.parametrize("number", range(6))
def test_a_planted_bug_shrinks_to_its_two_faults(number: int) -> None:
    shrinking = Shrinking(failing()[number], kills_and_drops)
    smallest = shrinking.run()
    assert kills_and_drops(smallest)
    assert len(smallest.faults) == 2
    assert (smallest.workload.clients, smallest.workload.consumers) == (1, 0)
    assert smallest.cluster.partitions == 1
    assert all((fault.for_ms or 0) <= SHORTEST_MS for fault in smallest.faults)
    check(smallest)
    assert shrinking.tries < 200


PASSES = (
    shrink_passes.without_each_fault,
    shrink_passes.fewer_operations,
    shrink_passes.smaller_workloads,
    shrink_passes.smaller_clusters,
    shrink_passes.lower_names,
    shrink_passes.plainer_faults,
)


@pytest.mark.parametrize("propose", PASSES)
def test_every_proposal_of_a_pass_is_smaller_in_the_total_order(
    propose: Callable[[Schedule], Iterable[Schedule]],
) -> None:
    for schedule in map(drawn, range(20)):
        key = sort_key(schedule)
        for smaller in propose(schedule):
            assert sort_key(smaller) < key, (schedule, smaller)


@pytest.mark.parametrize("needed", [1, 2, 3])
def test_each_accepted_candidate_is_smaller_than_the_one_before(needed: int) -> None:
    """Planted predicates: so many faults of any kind, or a seed that asks for one more."""
    accepted: list[tuple[object, ...]] = []

    def fails(candidate: Schedule) -> bool:
        found = len(candidate.faults) >= needed + candidate.workload.seed % 2
        if found:
            accepted.append(sort_key(candidate))
        return found

    smallest = Shrinking(failing()[3], fails).run()
    assert len(smallest.faults) <= needed + 1
    assert accepted == sorted(accepted, reverse=True)
    assert len(set(accepted)) == len(accepted)


def test_a_larger_candidate_is_never_judged() -> None:
    """A pass that proposes what is not smaller cannot keep the shrinker going for ever."""
    small, large = Schedule(faults=(Kill(on="n1", at_ms=1),)), failing()[0]

    def larger(schedule: Schedule) -> Iterator[Schedule]:
        yield large

    def fails(candidate: Schedule) -> bool:
        assert candidate != large
        return bool(candidate.faults)

    assert len(Shrinking(small, fails, passes=(larger,)).run().faults) == 1


def test_one_class_of_failure_does_not_become_another() -> None:
    """A schedule with two bugs, either of which alone fails: the judge of the first decides."""
    both = next(
        schedule
        for schedule in map(drawn, range(5000))
        if {Kill, Pause} <= {type(fault) for fault in schedule.faults}
    )

    def by_pause(schedule: Schedule) -> bool:
        return any(isinstance(fault, Pause) for fault in schedule.faults)

    (only,) = Shrinking(both, by_pause).run().faults
    assert isinstance(only, Pause)


@pytest.mark.parametrize("max_tries", [0, 2, 10, 2000])
@pytest.mark.parametrize("number", range(3))
def test_each_fault_that_is_left_is_needed_whatever_the_budget(number: int, max_tries: int) -> None:
    first = failing()[number]
    shrinking = Shrinking(first, kills_and_drops, max_tries=max_tries)
    smallest = shrinking.run()
    assert len(smallest.faults) == 2
    assert not any(map(kills_and_drops, without_each_fault(smallest)))
    assert shrinking.exhausted is (max_tries < 2000)
    if max_tries <= 2:
        # What is not about faults was left as it was.
        assert smallest.cluster.timings == first.cluster.timings
        assert smallest.workload == first.workload
    again = Shrinking(first, kills_and_drops, max_tries=max_tries).run()
    assert again.to_json() == smallest.to_json()


def test_a_fault_goes_with_what_releases_it() -> None:
    schedule = Schedule(
        faults=(
            Pause(on="n1", at_ms=1, name="held"),
            Kill(on="n2", at_ms=2),
            Release(of="held", at_ms=9),
        )
    )
    fewer = [[type(fault) for fault in s.faults] for s in without_each_fault(schedule)]
    assert fewer == [[Kill], [Pause, Release], [Pause, Kill]]


@pytest.mark.parametrize("passes", [SIMULATED_PASSES, REAL_PASSES])
def test_a_fault_on_several_nodes_keeps_only_those_that_matter(passes: tuple[Pass, ...]) -> None:
    """A node without a replica stays out of the smallest schedule, and then out of the cluster."""

    def kills_two(schedule: Schedule) -> bool:
        on = [fault.on.split(",") for fault in schedule.faults if isinstance(fault, Kill)]
        return any({"n1", "n2"} <= {*nodes} for nodes in on)

    schedule = Schedule(cluster=Cluster(brokers=5), faults=(Kill(on="n4,n2,n5,n1", at_ms=1000),))
    smallest = Shrinking(schedule, kills_two, passes=passes).run()
    assert [fault.on for fault in smallest.faults if isinstance(fault, Kill)] == ["n2,n1"]
    assert smallest.cluster.brokers == (2 if passes is SIMULATED_PASSES else 5)


def test_triggers_count_from_the_fault_before_one_that_is_left_out() -> None:
    def since(name: str) -> After:
        return After(event="ack", since=name)

    schedule = Schedule(
        faults=(
            Kill(name="a", on="n1", at_ms=1),
            Kill(name="b", on="n2", after=since("a")),
            Pause(on="n3", after=since("b")),
        )
    )

    def fails(candidate: Schedule) -> bool:
        return any(isinstance(fault, Pause) for fault in candidate.faults)

    (only,) = Shrinking(schedule, fails).run().faults
    assert only.after == since("")
    first, second, _ = schedule.faults
    assert keeping(schedule, schedule.faults[2:]).faults[0].after == since("")
    assert keeping(schedule, [first, schedule.faults[2]]).faults[1].after == since("a")
    assert keeping(schedule, [first, second]).faults == (first, second)


def test_only_the_operations_that_matter_are_left() -> None:
    workload = Workload(
        clients=1,
        consumers=1,
        operations=(
            Send(client="c3", at_ms=1),
            Poll(client="c4", at_ms=2),
            Send(client="c5", at_ms=3, count=7),
        ),
    )

    def by_seven(schedule: Schedule) -> bool:
        return any(isinstance(o, Send) and o.count == 7 for o in schedule.workload.operations)

    smallest = Shrinking(Schedule(workload=workload), by_seven).run()
    check(smallest)
    (only,) = smallest.workload.operations
    assert (only.client, smallest.workload.clients, smallest.workload.consumers) == ("c2", 1, 0)


@given(st.lists(st.booleans(), max_size=40))
def test_exactly_the_needed_items_remain(needed: list[bool]) -> None:
    wanted = [at for at, is_needed in enumerate(needed) if is_needed]

    def fails(items: Sequence[int]) -> bool:
        return set(wanted) <= set(items)

    assert minimize_list(list(range(len(needed))), fails) == wanted
