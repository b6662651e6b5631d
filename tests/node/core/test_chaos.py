"""Storms with every kind of weather, checked at every step of every node."""

from __future__ import annotations

import pytest

from tests.support.core_storm import CLIMATES, ChaosStorm


@pytest.mark.parametrize("climate", CLIMATES)
def test_a_storm_breaks_no_invariant_and_everything_heals(climate: str) -> None:
    storm = ChaosStorm(1, CLIMATES[climate])
    storm.run(20)
    assert storm.problems() == []
    assert storm.acknowledged() > 0, "a storm in which nothing is written proves nothing"


@pytest.mark.slow
@pytest.mark.parametrize("climate", CLIMATES)
@pytest.mark.parametrize("seed", range(100, 106))
def test_more_storms(climate: str, seed: int) -> None:
    storm = ChaosStorm(seed, CLIMATES[climate])
    storm.run()
    assert storm.problems() == []


@pytest.mark.parametrize("bug", ["ack-before-isr", "elect-any-replica"])
def test_the_watcher_sees_a_bug(bug: str) -> None:
    """What finds nothing in a broken broker proves nothing about a correct one."""
    for seed in range(5):
        storm = ChaosStorm(seed, CLIMATES["loss"], bugs=(bug,))
        try:
            storm.run(25)
        except AssertionError:
            return
        if any("is lost" in problem for problem in storm.problems()):
            return
    pytest.fail(f"five storms did not notice {bug}")
