"""Guided search: where it branches off, and what is known of what it has not seen."""

from __future__ import annotations

import random
from itertools import accumulate

import pytest

from harness.search.attempt import attempt
from harness.search.choice_source import RandomChoices, TapeChoices
from harness.search.engines import Subject, guided_engine, random_engine
from harness.search.generator import CHAIN, CLUSTER, WORKLOAD, draw_schedule
from harness.search.guidance import Corpus, branch
from harness.search.unseen import UnseenStates
from harness.sim.coverage import Coverage


def drawn(seed: int) -> TapeChoices:
    choices = TapeChoices(random.Random(seed), {}, ())
    draw_schedule(choices, "kafka")
    return choices


def test_a_tape_that_is_kept_whole_gives_the_same_schedule() -> None:
    tape = drawn(5).tape
    assert next(iter(tape)) == CLUSTER
    assert list(tape)[-1] == WORKLOAD
    first = draw_schedule(TapeChoices(random.Random(5), {}, ()), "kafka")
    again = draw_schedule(TapeChoices(random.Random(99), tape, list(tape)), "kafka")
    assert again == first == draw_schedule(RandomChoices(random.Random(5)), "kafka")


@pytest.mark.parametrize("seed", range(8))
def test_a_branch_keeps_the_beginning_of_the_chain(seed: int) -> None:
    tape = drawn(seed).tape
    rng = random.Random(seed)
    before, keep = branch(tape, rng)
    choices = TapeChoices(rng, before, keep)
    draw_schedule(choices, "kafka")
    kept = [name for name in tape if name in keep and name in choices.tape]
    assert CLUSTER in kept
    assert all(choices.tape[name] == tape[name] for name in kept)
    assert len(keep) < len(tape) + 1


def test_a_run_with_the_same_beginning_goes_through_the_same_states() -> None:
    tape = next(t for t in (drawn(n).tape for n in range(50)) if CHAIN[2] in t)
    keep = (CLUSTER, WORKLOAD, CHAIN[0], CHAIN[1])
    one, other = (
        attempt(draw_schedule(TapeChoices(random.Random(n), tape, keep), "kafka")) for n in (1, 2)
    )
    assert len(one.states & other.states) > 5
    assert one.states != other.states


def test_rare_steps_are_chosen_and_less_so_each_time() -> None:
    corpus, rng = Corpus(), random.Random(0)
    common, rare = {"common": [0]}, {"rare": [0]}
    corpus.add(common, {1, 2})
    corpus.add({"nothing new": [0]}, {1, 2})
    corpus.add(rare, {1, 2, 3, 4})
    assert len(corpus) == 2
    chosen = [next(iter(corpus.choose(rng))) for _ in range(40)]
    assert chosen[0] == "rare"
    assert {"rare", "common"} == set(chosen)
    assert chosen.count("rare") > chosen.count("common")


@pytest.mark.parametrize("engine", [random_engine, guided_engine])
def test_an_engine_repeats_itself(engine: object) -> None:
    runs = []
    for _ in range(2):
        digests: list[str] = []

        def judge(schedule: object, digests: list[str] = digests) -> object:
            digests.append(schedule.digest())  # type: ignore[attr-defined]
            return attempt(schedule)  # type: ignore[arg-type]

        engine(Subject("kafka"), 3, judge, lambda d=digests: len(d) >= 6)  # type: ignore[operator]
        runs.append(digests)
    assert runs[0] == runs[1]


def test_clusters_that_differ_in_names_only_are_in_the_same_state() -> None:
    one, other = Coverage(), Coverage()
    for name in ("n1", "n2"):
        one.ended(name)
    for name in ("n3", "n1"):
        other.ended(name)
    assert one.states == other.states
    assert len(one.states) == 2


def test_the_probability_of_a_new_state_is_that_of_the_next_schedules() -> None:
    """States of very different probabilities: 1/rank, as in a search."""
    rng, unseen = random.Random(1), UnseenStates()
    assert unseen.probability == 1.0
    ranks = range(1, 20_001)
    cum_weights = list(accumulate(1 / rank for rank in ranks))

    def schedule() -> set[int]:
        return set(rng.choices(ranks, cum_weights=cum_weights, k=10))

    known: set[int] = set()
    for _ in range(2_000):
        states = schedule()
        known |= states
        unseen.add(states)
    assert unseen.distinct == len(known)
    fresh = sum(not schedule() <= known for _ in range(1_000)) / 1_000
    assert abs(unseen.probability - fresh) < 0.2 * fresh


@pytest.mark.slow
def test_the_probability_holds_for_simulated_schedules() -> None:
    """Predicted after 400 schedules against what the next 200 show."""
    unseen, known, new = UnseenStates(), set[int](), 0
    for number in range(600):
        states = attempt(draw_schedule(RandomChoices(random.Random(f"p/{number}")), "kafka")).states
        if number < 400:
            unseen.add(states)
            known |= states
        else:
            new += not states <= known
    assert abs(unseen.probability - new / 200) < 0.2 * unseen.probability
