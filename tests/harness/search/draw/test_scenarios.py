"""Scenarios of several elections: their triggers wait for events that really come."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from harness.search.draw import generator
from harness.search.draw.choice_source import RandomChoices
from harness.search.draw.dimensions import DIMENSIONS, LATE_DIMENSIONS, Dimension, draw_dimensions
from harness.search.draw.scenarios import (
    Scenario,
    alternate_leaders,
    contended_election,
    failover_while_lagging,
    isr_flap,
    repeated_failover,
)
from harness.search.draw.wide_scenarios import (
    cancel_move,
    change_min_isr,
    fail_voter,
    late_votes,
    outlive_sender,
    power_below_min_isr,
)
from harness.sim.run import simulate
from nemesis.faults import Link
from nemesis.formats.schedule import Schedule, check, parse
from node.core.protocol import LeaderBy
from node.formats.trace import GROUPS_PARTITION


@pytest.mark.parametrize(
    ("scenario", "protocol"),
    [
        *((each, "quorum") for each in (repeated_failover, contended_election, late_votes)),
        *((each, "kafka") for each in (alternate_leaders, isr_flap, fail_voter, change_min_isr)),
        *((each, "kafka") for each in (cancel_move, outlive_sender, power_below_min_isr)),
        (failover_while_lagging, "kip-279"),
    ],
)
def test_one_fault_of_a_scenario_triggers_the_next(
    scenario: Scenario, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generator, "_enabled", lambda choose, votes: [scenario])
    monkeypatch.setattr(generator, "draw_dimensions", lambda choose, led_by: _dimension(scenario))
    monkeypatch.setattr(generator, "MOST_SCENARIOS", 1)

    def injected(number: int) -> int:
        schedule = generator.draw_schedule(RandomChoices(random.Random(number)), protocol)
        result = simulate(schedule, seed=number, stop_at="never")
        assert not result.violations
        return sum(line.action == "inject" for line in result.faults)

    # Not every chain runs to its end, but most go further than their first fault.
    assert any(injected(number) > 1 for number in range(2))


def _dimension(scenario: Scenario) -> list[Dimension]:
    """Return the dimension that a scenario needs: its cluster, and no scenario twice."""
    return [replace(each, scenarios=()) for each in DIMENSIONS if scenario in each.scenarios]


@pytest.mark.parametrize("led_by", list(LeaderBy))
def test_most_dimensions_are_off_in_most_schedules(led_by: LeaderBy) -> None:
    drawn = [
        draw_dimensions(RandomChoices(random.Random(number)), led_by) for number in range(2000)
    ]
    used = Counter(dimension.name for dimensions in drawn for dimension in dimensions)
    possible = [each for each in DIMENSIONS if each.led_by in (None, led_by)]
    assert used.keys() == {each.name for each in possible}
    for each in possible:
        assert abs(used[each.name] / 2000 - each.percent / 100) < 0.03, each.name
    assert sum(not dimensions for dimensions in drawn) > 800


@pytest.mark.parametrize("dimension", DIMENSIONS, ids=lambda each: each.name)
def test_schedules_of_each_dimension_can_be_carried_out(
    dimension: Dimension, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generator, "draw_dimensions", lambda choose, led_by: [dimension])
    protocol = "quorum" if dimension.led_by is LeaderBy.VOTES else "kip-279"
    plain = 0
    for number in range(10):
        choose = RandomChoices(random.Random(number))
        schedule = generator.draw_schedule(choose, protocol)
        check(schedule)
        plain += schedule == _plain(number, protocol, monkeypatch)
    # A move of all copies, or the loss of what is not synced, may have nothing to change.
    assert plain < 10


@pytest.mark.parametrize("name", [each.name for each in LATE_DIMENSIONS])
@pytest.mark.parametrize("protocol", ["kafka", "quorum"])
def test_a_late_dimension_adds_to_what_a_seed_draws(
    name: str, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [
        generator.draw_schedule(RandomChoices(random.Random(n)), protocol, always=(name,))
        for n in range(30)
    ]
    monkeypatch.setattr(generator, "draw_late", lambda choose, schedule, always: schedule)
    for number, schedule in enumerate(asked):
        check(schedule)
        plain = generator.draw_schedule(RandomChoices(random.Random(number)), protocol)
        common = min(len(plain.faults), generator.MAX_FAULTS_DRAWN // 4)
        # That of groups aims the same faults at another partition.
        same = parse(schedule.to_json().replace(GROUPS_PARTITION.encode() + b'"', b'log-0"'))
        assert same.faults[:common] == plain.faults[:common]
        assert len(schedule.faults) <= generator.MAX_FAULTS_DRAWN
        if name == "batch-sizes":
            assert schedule.workload.batch_most > schedule.workload.batch
        if name == "short-answers":
            assert schedule.cluster.fetch_max_bytes < 1000
        if name == "idempotent":
            assert schedule.workload.idempotent
            assert schedule.workload.acks == -1


def _plain(number: int, protocol: str, monkeypatch: pytest.MonkeyPatch) -> Schedule:
    """Return the schedule of that number without the dimension."""
    with monkeypatch.context() as context:
        context.setattr(generator, "draw_dimensions", lambda choose, led_by: [])
        return generator.draw_schedule(RandomChoices(random.Random(number)), protocol)


def test_rules_for_diverging_responses_affect_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that matches no message that is ever sent would go unnoticed."""
    monkeypatch.setattr(generator, "_enabled", lambda choose, votes: [alternate_leaders])
    monkeypatch.setattr(generator, "MOST_SCENARIOS", 1)
    met = False
    for number in range(60):
        schedule = generator.draw_schedule(RandomChoices(random.Random(number)), "kafka")
        rules = [
            at
            for at, fault in enumerate(schedule.faults)
            if isinstance(fault, Link) and "diverging" in fault.match
        ]
        if rules:
            told = simulate(schedule, seed=number).faults
            met |= any(
                line.action == "effect" and line.fault in rules and not line.detail.startswith("0 ")
                for line in told
            )
    assert met
