"""A run that could have lost data but harmed no client is repeated with a worse ending."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from harness.search.grammar.conditions import TIMINGS
from harness.search.worlds.endings import judge_with_endings
from harness.search.worlds.outcome import run_simulated
from harness.sim.run import simulate
from nemesis.faults import Cut, Kill
from nemesis.formats.schedule import After, Schedule
from tests.support.sim_schedules import plan

LONELY = plan(
    Cut(at_ms=1000, on="leader:log-0", to="all", for_ms=3000),
    min_isr=2,
    bugs=("hw-ignores-min-isr",),
)
"""The leader goes on alone, and commits what the eligible replicas lack (bug M6): then all heals
and nothing comes of it."""
EARLY = plan(min_isr=2, bugs=("ack-before-isr",))
FORGETS = plan(bugs=("followers-forget-producers",), timings=TIMINGS)
FORGETS = replace(FORGETS, workload=replace(FORGETS.workload, idempotent=True))


@pytest.mark.parametrize(
    ("schedule", "violation", "property_"),
    [
        (LONELY, "candidate-completeness", "committed-prefix-agreement"),
        (EARLY, "acknowledged-early", "no-lost-acknowledged-write"),
        (FORGETS, "producers-as-in-log", "offsets-and-order"),
    ],
)
def test_a_worst_ending_makes_clients_see_what_was_wrong_inside(
    schedule: Schedule, violation: str, property_: str
) -> None:
    judged = list(judge_with_endings(schedule, run_simulated))
    assert len(judged) == len({tried.to_json() for tried, _ in judged}), "each is tried once"
    (_, first), *follows = judged
    assert first.internal_violation == violation
    assert property_ not in first.broken
    harmed = [(tried, outcome) for tried, outcome in follows if property_ in outcome.broken]
    assert harmed
    for tried, _ in harmed:
        assert len(tried.faults) > len(schedule.faults)
        assert sum(isinstance(fault, Kill) for fault in tried.faults) <= 1
        # The same faults harm nobody where the bug is off.
        assert not run_simulated(replace(tried, cluster=replace(tried.cluster, bugs=()))).failed


def test_nothing_follows_from_a_run_that_keeps_every_invariant() -> None:
    correct = replace(LONELY, cluster=replace(LONELY.cluster, bugs=()))
    assert len(list(judge_with_endings(correct, run_simulated))) == 1


def test_a_run_with_one_fault_more_is_the_same_run_until_that_begins() -> None:
    never = Kill(on="n1", after=After(event="role", match={"node": "n1"}, nth=1000))
    more = replace(LONELY, faults=(*LONELY.faults, never))
    assert simulate(LONELY, seed=3).trace == simulate(more, seed=3).trace
