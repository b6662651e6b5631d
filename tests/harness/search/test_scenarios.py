"""What a search draws strikes: acts that last over several elections wait for events that come."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from harness.search import generator
from harness.search.choice_source import RandomChooser
from harness.search.long_scenarios import churn, contest, relapse, seesaw, succession
from harness.search.scenarios import Act
from harness.sim.run import simulate
from nemesis.formats.schedule import Link


@pytest.mark.parametrize(
    ("act", "protocol"),
    [
        (churn, "quorum"),
        (contest, "quorum"),
        (seesaw, "kafka"),
        (relapse, "kafka"),
        (succession, "kip-279"),
    ],
)
def test_one_fault_of_an_act_leads_to_the_next(
    act: Act, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generator, "_mask", lambda choose, votes: [act])
    monkeypatch.setattr(generator, "MAX_ACTS", 1)
    struck: Counter[int] = Counter()
    for number in range(6):
        schedule = generator.draw_schedule(RandomChooser(random.Random(number)), protocol)
        result = simulate(schedule, seed=number, stop_at="never")
        assert not result.breaches
        struck[number] = sum(line["action"] == "inject" for line in result.faults)
    # Not every chain is played to its end, but most go further than their first fault.
    assert sum(count > 1 for count in struck.values()) >= 4, struck


def test_answers_that_tell_a_follower_to_cut_are_really_held_or_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A rule whose match fits no message ever sent would go unnoticed: nothing happens by it."""
    monkeypatch.setattr(generator, "_mask", lambda choose, votes: [seesaw])
    monkeypatch.setattr(generator, "MAX_ACTS", 1)
    met = False
    for number in range(60):
        schedule = generator.draw_schedule(RandomChooser(random.Random(number)), "kafka")
        rules = [
            at
            for at, fault in enumerate(schedule.faults)
            if isinstance(fault, Link) and "diverging" in fault.match
        ]
        if rules:
            told = simulate(schedule, seed=number).faults
            met |= any(
                line["action"] == "effect"
                and line["fault"] in rules
                and not line["detail"].startswith("0 ")
                for line in told
            )
    assert met
