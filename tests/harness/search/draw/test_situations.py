"""Situations: their faults happen, they ask for what they are named after, and a third have one."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from unittest import mock

import pytest

from checker.formats.anomalies import LIVENESS
from harness.search.draw import generator
from harness.search.draw.choice_source import RandomChoices
from harness.search.draw.situations import PERCENT, SITUATIONS, Situation, draw_situation
from harness.search.worlds.outcome import visibly_broken
from harness.sim import compiled
from harness.sim.run import SimResult, SimRun, no_collections, simulate
from nemesis.faults import Kill, Link, PowerCut, Reassign
from nemesis.formats.schedule import Schedule, check
from node.core.api import Deliver, Effects, Event
from node.core.broker import Broker
from node.core.protocol import LeaderBy
from node.core.protocol import protocol as protocol_of
from node.formats.messages import RegisterBroker, RegisterBrokerResponse

compiled.leave()


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


Run = tuple[Schedule, SimResult]


def dies_again(run: Run) -> bool:
    """Return whether a process that lost data dies before it is registered."""
    schedule, _ = run
    assert (schedule.cluster.flush, schedule.cluster.min_isr >= 2) == ("async", True)
    unclean: dict[str, bool] = {}
    for event in run[1].trace:
        if event["event"] == "started":
            if unclean.get(event["node"]):
                return True
            unclean[event["node"]] = not event["clean"]
        elif event["event"] == "registered":
            unclean[event["node"]] = False
    return False


def outlives(run: Run) -> bool:
    """Return whether a registration outlives the process that it was for."""
    schedule, _ = run
    assert any(isinstance(fault, PowerCut) for fault in schedule.faults)
    again, step, late = SimRun(schedule, schedule.workload.seed, stop_at="visible"), Broker.step, 0

    def counted(node: Broker, now_us: int, event: Event) -> Effects:
        nonlocal late
        if isinstance(event, Deliver) and event.source in again.cluster.nodes:
            message, sender = event.message, again.cluster.nodes[event.source]
            if isinstance(message, RegisterBroker):
                late += message.incarnation < sender.incarnation
            elif isinstance(message, RegisterBrokerResponse):
                late += message.incarnation < node.ctx.config.incarnation
        return step(node, now_us, event)

    with no_collections(), mock.patch.object(Broker, "step", counted):
        again.execute()
    return late > 0


def comes_back(run: Run) -> bool:
    """Return whether a dropped replica is taken in again."""
    schedule, result = run
    assert sum(isinstance(fault, Reassign) for fault in schedule.faults) == 2
    sizes = [len(e["replicas"]) for e in result.trace if e["event"] == "partition"]
    return any(a > b < c for a, b, c in zip(sizes, sizes[1:], sizes[2:], strict=False))


def leads_on(run: Run) -> bool:
    """Return whether a broker registers at once and its new process leads in the same epoch."""
    schedule, result = run
    assert any(isinstance(fault, Kill | PowerCut) for fault in schedule.faults)
    led = Counter(
        (event["node"], event["partition"], event["leader_epoch"])
        for event in result.trace
        if event["event"] == "role" and event["role"] == "leader"
    )
    return any(count > 1 and at != "@metadata" for (_, at, _), count in led.items())


def differ(run: Run) -> bool:
    """Leaders write different records at one offset."""
    written: dict[tuple[str, int], set[str]] = {}
    for event in run[1].trace:
        if event["event"] == "append" and event["role"] == "leader":
            at = (event["partition"], event["base_offset"])
            written.setdefault(at, set()).add(event["hash"])
    return any(len(hashes) > 1 for hashes in written.values())


def is_stuck(run: Run) -> bool:
    """KIP-279, scenario 1, n = 15: no batch of the leader begins where this log ends."""
    return LIVENESS in visibly_broken(run[1])


def votes(action: str, run: Run) -> bool:
    """Votes of rivals are late, or doubled."""
    of_votes = [f for f in run[0].faults if isinstance(f, Link) and f.kinds == ("vote-response",)]
    return action in {fault.action for fault in of_votes}


@pytest.mark.parametrize(
    ("name", "protocol", "within", "is_so"),
    [
        ("dies-again", "kafka", 12, dies_again),
        ("late-registration", "kafka", 8, outlives),
        ("comes-back", "kafka", 8, comes_back),
        ("leads-on", "kip-279", 12, leads_on),
        ("own-tails", "high-watermark", 10, differ),
        ("unequal-remains", "high-watermark", 10, differ),
        ("own-tails", "kip-101", 20, is_stuck),
        ("rivals", "quorum", 20, partial(votes, "delay")),
        ("rivals", "quorum", 20, partial(votes, "duplicate")),
    ],
)
def test_a_situation_brings_about_what_it_is_named_after(
    name: str,
    protocol: str,
    within: int,
    is_so: Callable[[Run], bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    situation = next(each for each in SITUATIONS if each.name == name)
    for schedule in _drawn(situation, protocol, within, monkeypatch):
        if is_so((schedule, simulate(schedule, seed=schedule.workload.seed, stop_at="never"))):
            return
    pytest.fail(f"not within {within} schedules")
