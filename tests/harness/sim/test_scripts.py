"""Faults in the simulated world: each shows what it changed, and the verdict is the promised one.

`python -m tests.support.scripts` says how to read the files in `scripts/`."""

from __future__ import annotations

import pytest

from harness.sim.run import simulate
from nemesis.faults import ClockRate
from tests.support.scripts import beside, proving
from tests.support.sim_schedules import plan, storm

test_script = proving(beside(__file__))


def test_a_clock_at_the_true_rate_changes_nothing() -> None:
    right = [
        ClockRate(on=name, at_ms=100, for_ms=2000, percent=100) for name in ("n1", "n2", "n3", "v1")
    ]
    changed, usual = (simulate(plan(*faults), seed=3).trace for faults in (right, ()))
    assert changed == usual


@pytest.mark.parametrize("seed", range(4))
def test_storms_with_an_operator_in_them(seed: int) -> None:
    kinds = ("kill", "stop", "reassign", "elect-preferred")
    for cluster in ({"protocol": "kafka", "brokers": 4}, {"protocol": "kip-279"}):
        result = simulate(storm(seed, kinds=kinds, **cluster), seed=seed)
        assert result.verdict == "valid", result.sentence
