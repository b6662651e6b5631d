"""Guided search: where it branches off, and what is known of what it has not seen."""

from __future__ import annotations

import random
from collections import Counter
from itertools import accumulate

import pytest
from msgspec.structs import replace

from harness.search.attempt import Attempt, attempt
from harness.search.choice_source import RandomChoices
from harness.search.engines import (
    ENGINES,
    Subject,
    guided_engine,
    plain_engine,
    random_engine,
    storm_instead,
)
from harness.search.generator import draw_schedule
from harness.search.guidance import Corpus, strike
from harness.search.moments import StepMoment
from harness.search.unseen import UnseenStates
from harness.sim.coverage import Coverage
from harness.sim.node import HAND_OVER_US
from harness.sim.run import simulate
from nemesis.faults import Kill, Pause, Stop
from nemesis.formats.schedule import Schedule, Workload


def drawn(seed: int, protocol: str = "kafka") -> Schedule:
    return draw_schedule(RandomChoices(random.Random(seed)), protocol)


def moments(*steps: int) -> tuple[StepMoment, ...]:
    return tuple(StepMoment(step, step, "role", (("node", "n1"),), 1, 0, 0, 0) for step in steps)


@pytest.mark.parametrize("protocol", ["kafka", "quorum"])
def test_a_moment_comes_again_in_a_run_with_the_same_past(protocol: str) -> None:
    """A fault that waits for a moment's event is carried out in that moment."""
    checked = 0
    for seed in range(4):
        schedule = drawn(seed, protocol)
        faults = len(schedule.faults)
        longer = replace(schedule.workload, duration_ms=schedule.workload.duration_ms + 100)
        for moment in attempt(schedule).moments[::3]:
            late = Pause(on="n1", for_ms=1, after=moment.trigger)
            run = simulate(
                replace(schedule, workload=longer, faults=(*schedule.faults, late)),
                seed=schedule.workload.seed,
                stop_at="visible",
            )
            line = next(line for line in run.faults if line.fault == faults)
            # The nemesis may be carrying out a command just then, or wait for a hand-over.
            late_ms = (line.t_us - run.info.phases.storm_us) // 1000 - moment.at_ms
            stops = any(isinstance(fault, Stop) for fault in schedule.faults)
            assert 0 <= late_ms < (HAND_OVER_US // 1000 + 100 if stops else 100)
            checked += 1
    assert checked >= 8


def test_a_strike_begins_at_its_moment_and_keeps_what_came_before() -> None:
    schedule = drawn(6)
    moment = attempt(schedule).moments[10]
    at_once = 0
    for number in range(20):
        struck = strike(schedule, moment, RandomChoices(random.Random(number)))
        kept = [f for f in schedule.faults if f.at_ms is None or f.at_ms <= moment.at_ms]
        assert list(struck.faults[: len(kept)]) == kept
        assert len(kept) < len(schedule.faults)
        begins = struck.faults[len(kept)].after
        trigger = replace(moment.trigger, delay_ms=0 if begins is None else begins.delay_ms)
        at_once += begins == trigger
        assert (struck.cluster, struck.drawn) == (schedule.cluster, schedule.drawn)
    # A few scenarios begin with something else, such as the wait for a leader.
    assert at_once >= 14


def test_rare_steps_are_chosen_and_less_so_each_time() -> None:
    corpus, rng = Corpus(), random.Random(0)
    common, rare = Schedule(name="common"), Schedule(name="rare")
    corpus.add(common, moments(1, 2))
    corpus.add(Schedule(name="nothing new"), moments(1, 2))
    corpus.add(rare, moments(1, 2, 3, 4))
    assert len(corpus) == 2
    chosen = [corpus.choose(rng) for _ in range(40)]
    assert chosen[0][0].name == "rare"
    assert chosen[0][1].step in (3, 4)
    assert {schedule.name for schedule, _ in chosen} == {"rare", "common"}
    counts = Counter(moment.step for _, moment in chosen)
    assert counts[3] + counts[4] > counts[1] + counts[2]


def test_a_plain_storm_has_no_faults_that_wait_for_events() -> None:
    for seed in range(20):
        stormy = storm_instead(drawn(seed), seed)
        assert stormy.faults
        assert all(fault.after is None for fault in stormy.faults)
        assert stormy.cluster == drawn(seed).cluster


@pytest.mark.parametrize("engine", [random_engine, guided_engine, plain_engine])
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
            return Attempt(moments=moments(len(found)))

        ENGINES[engine](Subject("kafka"), 1, judge, lambda: len(found) >= 30)
        return found

    assert all(told("random"))
    assert all(told("plain"))
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
