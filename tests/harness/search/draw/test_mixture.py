"""A search composes schedules, varies those of its corpus, and lets nodes fail for good."""

from __future__ import annotations

import operator
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checker.formats.anomalies import LIVENESS
from harness.search.draw.mixture import Mixture, corpus
from harness.search.draw.storms import StormGenerator
from harness.search.draw.variation import vary
from harness.search.grammar.phrases import compose
from harness.search.worlds.outcome import run_simulated
from harness.search.worlds.real import StormSubject
from harness.systems.floodmark.system import SYSTEM
from nemesis.formats.schedule import Schedule, check
from node.core.protocol import REGISTRY
from node.core.quorum import Quorum

STAYS = range(10, 400, 20)
"""Numbers whose schedules have failures that stay."""


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.sampled_from(sorted(REGISTRY)))
def test_each_drawn_schedule_is_valid_and_follows_from_its_number(
    seed: int, number: int, protocol: str
) -> None:
    schedule = Mixture(protocol).draw(seed, number)
    check(schedule)
    assert schedule == Mixture(protocol).draw(seed, number)
    assert schedule.cluster.protocol == protocol


def test_a_search_composes_and_varies_and_lets_nodes_fail_for_good() -> None:
    kafka = Mixture("kafka")
    drawn = [kafka.draw(0, number) for number in range(20)]
    composed = [compose(random.Random(f"search/0/{number}"), "kafka") for number in range(20)]
    assert sum(map(operator.eq, drawn, composed)) == 14
    assert _stays(drawn[10])


def test_the_corpus_has_each_schedule_once() -> None:
    for protocol in ("kafka", "kip-279", "quorum"):
        known = corpus(protocol)
        assert len(known) == len({*known}) >= 20
    assert corpus("quorum-push") == corpus("quorum")


def test_a_variation_is_near_its_schedule_and_is_another_run() -> None:
    kafka, shared = Mixture("kafka"), 0
    other = kafka.of_corpus(0)
    for number in range(1, 101):
        base = kafka.of_corpus(number)
        varied = vary(random.Random(number), base, other)
        assert varied.workload.seed != base.workload.seed
        shared += bool({*map(repr, varied.faults)} & {*map(repr, base.faults)})
    assert shared > 80


@pytest.mark.parametrize("protocol", ["kafka", "quorum"])
def test_the_rest_of_a_cluster_is_judged_while_a_minority_stays_away(protocol: str) -> None:
    drawn = [Mixture(protocol).draw(0, number) for number in STAYS]
    assert all(_stays(schedule) for schedule in drawn)
    kinds = {fault.what for each in drawn for fault in each.faults if fault.for_ms is None}
    assert kinds == {"stop", "kill", "pause", "isolate", "disk-full"}
    outcomes = [run_simulated(schedule, stop_at="never") for schedule in drawn[:4]]
    assert not any(outcome.failed for outcome in outcomes)


def test_a_bug_that_needs_every_voter_is_found_by_failures_that_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Quorum, "_won", lambda self: len(self._granted) == len(self.voters))
    outcomes = (run_simulated(Mixture("quorum").draw(0, number)) for number in STAYS)
    assert any(outcome.property == LIVENESS for outcome in outcomes)


def test_storms_of_our_own_processes_have_failures_that_stay() -> None:
    generator = StormGenerator(StormSubject(system=SYSTEM.name), SYSTEM, 1)
    drawn = [generator.draw(number) for number in range(100)]
    staying = [storm.schedule for storm in drawn if storm.family == "stays"]
    assert 2 <= len(staying) <= 12
    for schedule in staying:
        SYSTEM.check(schedule)
        assert _stays(schedule)


def _stays(schedule: Schedule) -> bool:
    last = schedule.faults[-1]
    return last.for_ms is None and schedule.workload.duration_ms > (last.at_ms or 0) + 2000
