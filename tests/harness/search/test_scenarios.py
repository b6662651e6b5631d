"""Scenarios of several elections: their triggers wait for events that really come."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from harness.search import generator
from harness.search.choice_source import RandomChoices
from harness.search.scenarios import (
    Scenario,
    alternate_leaders,
    contended_election,
    failover_while_lagging,
    isr_flap,
    repeated_failover,
)
from harness.sim.run import simulate
from nemesis.faults import Link


@pytest.mark.parametrize(
    ("scenario", "protocol"),
    [
        (repeated_failover, "quorum"),
        (contended_election, "quorum"),
        (alternate_leaders, "kafka"),
        (isr_flap, "kafka"),
        (failover_while_lagging, "kip-279"),
    ],
)
def test_one_fault_of_a_scenario_triggers_the_next(
    scenario: Scenario, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generator, "_enabled", lambda choose, votes: [scenario])
    monkeypatch.setattr(generator, "CHAIN", generator.CHAIN[:1])
    injected: Counter[int] = Counter()
    for number in range(6):
        schedule = generator.draw_schedule(RandomChoices(random.Random(number)), protocol)
        result = simulate(schedule, seed=number, stop_at="never")
        assert not result.violations
        injected[number] = sum(line.action == "inject" for line in result.faults)
    # Not every chain runs to its end, but most go further than their first fault.
    assert sum(count > 1 for count in injected.values()) >= 4, injected


def test_rules_for_diverging_responses_affect_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that matches no message that is ever sent would go unnoticed."""
    monkeypatch.setattr(generator, "_enabled", lambda choose, votes: [alternate_leaders])
    monkeypatch.setattr(generator, "CHAIN", generator.CHAIN[:1])
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
