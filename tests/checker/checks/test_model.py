"""Histories of a model of a correct log, as they are and corrupted in one known way.

A correct one has no anomaly. A corrupted one has the anomaly that was made, and no others than come
with it by their definition. Either way the checker says what the slow definitions say."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.support.checker.agreed import EXERCISE, agreed, budget
from tests.support.checker.corruption import CORRUPTIONS, Corruption
from tests.support.checker.model import Model, World

STEPS = st.integers(5, 45)

slow_but_sure = budget()


def judged(world: World) -> Counter[str]:
    """Return the findings of the checker; exercise left out."""
    found = agreed(world.tell())
    return Counter({name: n for name, n in found.items() if name not in EXERCISE})


def check_corrupted(made: Corruption, world: World) -> None:
    found = judged(world)
    assert made.anomaly in found
    assert set(found) - {made.anomaly} <= made.companions


@slow_but_sure
@given(st.randoms(use_true_random=False), STEPS, st.booleans())
def test_a_correct_log_has_no_anomaly(rng: random.Random, steps: int, transactions: bool) -> None:
    assert judged(Model(rng, steps, transactions=transactions).world) == {}


@slow_but_sure
@given(
    st.sampled_from(sorted(CORRUPTIONS)), st.randoms(use_true_random=False), STEPS, st.booleans()
)
def test_what_was_corrupted_is_found_and_nothing_else(
    name: str, rng: random.Random, steps: int, transactions: bool
) -> None:
    made = CORRUPTIONS[name]
    world = Model(rng, steps, transactions=transactions).world
    assume(made.corrupt(world, rng))
    check_corrupted(made, world)


@pytest.mark.parametrize("name", sorted(CORRUPTIONS))
def test_every_corruption_is_found(name: str) -> None:
    made = CORRUPTIONS[name]
    for seed in range(30):
        rng = random.Random(seed)
        world = Model(rng, 40, transactions=bool(seed % 2)).world
        if made.corrupt(world, rng):
            break
    else:
        pytest.fail("no world of these can be corrupted so")
    check_corrupted(made, world)
