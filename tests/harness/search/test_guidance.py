"""Guided search: where it branches off, and what is known of what it has not seen."""

from __future__ import annotations

import random
from itertools import accumulate

import pytest
from msgspec.structs import replace

from harness.search.attempt import Attempt, attempt
from harness.search.choice_source import RandomChoices, TapeChoices
from harness.search.engines import ENGINES, Subject, guided_engine, random_engine
from harness.search.generator import CHAIN, CLUSTER, WORKLOAD, draw_schedule
from harness.search.guidance import Corpus, branch
from harness.search.unseen import UnseenStates
from harness.sim.coverage import Coverage
from harness.sim.run import simulate
from nemesis.faults import Kill
from nemesis.formats.schedule import Schedule, Workload


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
    runs = [
        attempt(draw_schedule(TapeChoices(random.Random(n), tape, keep), "kafka"))
        for n in range(1, 5)
    ]
    assert len(frozenset.intersection(*(run.states for run in runs))) > 5
    assert len({run.states for run in runs}) > 1


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

        def judge(
            schedule: object, digests: list[str] = digests, *, independent: bool = False
        ) -> object:
            digests.append(schedule.digest())  # type: ignore[attr-defined]
            return attempt(schedule)  # type: ignore[arg-type]

        engine(Subject("kafka"), 3, judge, lambda d=digests: len(d) >= 6)  # type: ignore[operator]
        runs.append(digests)
    assert runs[0] == runs[1]


def test_clusters_that_differ_in_names_only_are_in_the_same_state() -> None:
    one, other = Coverage(lambda name: None), Coverage(lambda name: None)
    for name in ("n1", "n2"):
        one.ended(name)
    for name in ("n3", "n1"):
        other.ended(name)
    assert one.states == other.states
    assert len(one.states) == 2


def test_a_process_that_ends_is_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(Coverage, "ended", lambda self, node: seen.append(node))
    workload = Workload(clients=1, consumers=0, duration_ms=200)
    simulate(Schedule(workload=workload, faults=(Kill(on="n3", at_ms=50, for_ms=100),)), seed=1)
    # The kill, then the end of the run: brokers, then the voter.
    assert seen[0] == "n3"
    assert sorted(seen[1:]) == ["n1", "n2", "n3", "v1"]


def test_orders_say_on_which_nodes_events_followed_each_other() -> None:
    def orders(*nodes: str) -> frozenset[int]:
        coverage = Coverage(lambda name: None)
        for node, name in zip(nodes, ("hw", "role", "isr"), strict=True):
            coverage.turn(node, None, [{"event": name, "role": "leader"}])
        return coverage.orders

    assert orders("n1", "n2", "n1") == orders("n3", "n1", "n3")
    assert orders("n1", "n2", "n1") != orders("n1", "n2", "n3")


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


def test_schedules_made_from_others_do_not_make_new_states_look_improbable() -> None:
    """Each draw meets a state of its own; its variation meets the same state and one more."""
    unseen = UnseenStates()
    for number in range(10):
        unseen.add_related([number, 100])
        unseen.add([number])
        unseen.add_related([number, 200 + number])
    assert unseen.probability == 1.0
    assert unseen.schedules == 10
    assert unseen.distinct == 21
    unseen.add([0])
    assert unseen.probability == 9 / 11


def test_engines_say_which_schedules_were_drawn_independently(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def told(engine: str) -> list[bool]:
        found: list[bool] = []

        def judge(schedule: Schedule, *, independent: bool = False) -> Attempt:
            found.append(independent)
            return Attempt(steps=frozenset({len(found)}))

        ENGINES[engine](Subject("kafka"), 1, judge, lambda: len(found) >= 30)
        return found

    assert all(told("random"))
    assert 0 < sum(told("guided")) < 30
    assert not any(told("hypothesis"))
    monkeypatch.setattr(
        "harness.search.engines.judge_with_escalations",
        lambda schedule, judge: iter(
            [(each, judge(each)) for each in (schedule, replace(schedule, name="escalated"))]
        ),
    )
    assert told("random")[:4] == [True, False, True, False]


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
