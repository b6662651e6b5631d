"""Situations: their faults happen, they ask for what they are named after, and a third have one."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from checker.formats.anomalies import LIVENESS
from harness.search import generator
from harness.search.attempt import visibly_broken
from harness.search.choice_source import RandomChoices
from harness.search.situations import PERCENT, SITUATIONS, Situation, draw_situation
from harness.sim.run import simulate
from nemesis.faults import Kill, Link, PowerCut, Reassign
from nemesis.formats.schedule import Schedule, check
from node.core.protocol import LeaderBy
from node.core.protocol import protocol as protocol_of
from tests.lab.occurrences import happened, run_of

_BY_NAME = {each.name: each for each in SITUATIONS}


def _drawn(
    situation: Situation, protocol: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Schedule]:
    """Schedules of this situation, and of nothing after it."""
    monkeypatch.setattr(generator, "draw_situation", lambda choose, led_by: situation)
    monkeypatch.setattr(generator, "draw_dimensions", lambda choose, led_by: [])
    monkeypatch.setattr(generator, "draw_late", lambda choose, schedule, always: schedule)
    monkeypatch.setattr(generator, "MOST_SCENARIOS", 1)
    for number in range(count):
        yield generator.draw_schedule(RandomChoices(random.Random(number)), protocol)


@pytest.mark.parametrize("led_by", list(LeaderBy))
def test_more_than_a_third_of_the_schedules_begins_with_a_situation(led_by: LeaderBy) -> None:
    drawn = [draw_situation(RandomChoices(random.Random(n)), led_by) for n in range(3000)]
    used = Counter(each.name for each in drawn if each is not None)
    possible = [each for each in SITUATIONS if each.led_by in (None, led_by)]
    assert used.keys() == {each.name for each in possible}
    assert abs(sum(used.values()) / 3000 - PERCENT / 100) < 0.03
    whole = sum(each.weight for each in possible)
    for each in possible:
        assert abs(used[each.name] / sum(used.values()) - each.weight / whole) < 0.05, each.name


@pytest.mark.parametrize(
    ("situation", "protocol"),
    [
        pytest.param(situation, protocol, id=f"{situation.name}-{protocol}")
        for protocol in ("kafka", "kip-279", "high-watermark", "quorum")
        for situation in SITUATIONS
        if situation.led_by in (None, protocol_of(protocol).leader_by)
    ],
)
def test_one_fault_of_a_situation_leads_to_the_next(
    situation: Situation, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    injected, of = 0, 0
    for number, schedule in enumerate(_drawn(situation, protocol, 2, monkeypatch)):
        check(schedule)
        assert len(schedule.faults) > 1
        result = simulate(schedule, seed=number, stop_at="never")
        assert protocol == "high-watermark" or not result.violations
        injected += len({line.fault for line in result.faults if line.action == "inject"})
        of += len(schedule.faults)
    assert injected > of / 3


def test_a_process_that_lost_data_dies_before_it_is_registered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def dies(schedule: Schedule) -> bool:
        assert schedule.cluster.flush == "async"
        assert schedule.cluster.min_isr >= 2
        result = simulate(schedule, seed=schedule.workload.seed, stop_at="visible")
        return "it dies before it is registered" in set(happened(schedule, result))

    assert any(map(dies, _drawn(_BY_NAME["dies-again"], "kafka", 12, monkeypatch)))


def test_a_registration_outlives_the_process_that_it_was_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def outlives(schedule: Schedule) -> bool:
        assert any(isinstance(fault, PowerCut) for fault in schedule.faults)
        return bool(run_of(schedule)[1]["a registration of a dead process arrives"])

    assert any(map(outlives, _drawn(_BY_NAME["late-registration"], "kafka", 8, monkeypatch)))


def test_a_dropped_replica_is_taken_in_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def comes_back(schedule: Schedule) -> bool:
        assert sum(isinstance(fault, Reassign) for fault in schedule.faults) == 2
        result = simulate(schedule, seed=schedule.workload.seed, stop_at="visible")
        sizes = [len(e["replicas"]) for e in result.trace if e["event"] == "partition"]
        return any(a > b < c for a, b, c in zip(sizes, sizes[1:], sizes[2:], strict=False))

    assert any(map(comes_back, _drawn(_BY_NAME["comes-back"], "kafka", 8, monkeypatch)))


def test_a_restarted_leader_leads_on_in_its_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a broker registers at once, the process after a crash leads in the same epoch."""

    def leads_on(schedule: Schedule) -> bool:
        assert any(isinstance(fault, Kill | PowerCut) for fault in schedule.faults)
        result = simulate(schedule, seed=schedule.workload.seed, stop_at="visible")
        led = Counter(
            (event["node"], event["partition"], event["leader_epoch"])
            for event in result.trace
            if event["event"] == "role" and event["role"] == "leader"
        )
        return any(
            count > 1 and partition != "@metadata" for (_, partition, _), count in led.items()
        )

    assert any(map(leads_on, _drawn(_BY_NAME["leads-on"], "kip-279", 12, monkeypatch)))


@pytest.mark.parametrize("name", ["own-tails", "unequal-remains"])
def test_leaders_write_different_records_at_one_offset(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def differ(schedule: Schedule) -> bool:
        result = simulate(schedule, seed=schedule.workload.seed, stop_at="never")
        written: dict[tuple[str, int], set[str]] = {}
        for event in result.trace:
            if event["event"] == "append" and event["role"] == "leader":
                at = (event["partition"], event["base_offset"])
                written.setdefault(at, set()).add(event["hash"])
        return any(len(hashes) > 1 for hashes in written.values())

    assert any(map(differ, _drawn(_BY_NAME[name], "high-watermark", 10, monkeypatch)))


def test_a_follower_of_kip_101_may_find_no_batch_that_begins_at_its_log_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """KIP-279, scenario 1, n = 15: it is stuck, and its log never ends where the leader's does."""

    def is_stuck(schedule: Schedule) -> bool:
        result = simulate(schedule, seed=schedule.workload.seed, stop_at="never")
        return LIVENESS in visibly_broken(result)

    assert any(map(is_stuck, _drawn(_BY_NAME["own-tails"], "kip-101", 20, monkeypatch)))


def test_votes_of_rivals_are_late_or_doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    actions = {
        fault.action
        for schedule in _drawn(_BY_NAME["rivals"], "quorum", 20, monkeypatch)
        for fault in schedule.faults
        if isinstance(fault, Link) and fault.kinds == ("vote-response",)
    }
    assert actions >= {"duplicate", "delay"}
