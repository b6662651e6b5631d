"""What an operator does, in the simulated world: each fault shows what it changed."""

from __future__ import annotations

from typing import Any

import pytest

from harness.sim.run import SimResult, simulate
from nemesis.faults import ElectPreferred, ElectUnclean, Kill, Reassign, SetMinIsr, Stop, Upgrade
from nemesis.formats.schedule import Fault
from tests.support.sim_schedules import plan, storm

ROTATE = Reassign(partition="log-0", replicas="rotate", at_ms=600)
PREFERRED = ElectPreferred(partition="log-0", at_ms=500)


def run(*faults: Fault, **settings: Any) -> SimResult:
    result = simulate(plan(*faults, **settings), seed=1)
    assert result.verdict == "valid", result.sentence
    injected = [line.fault for line in result.faults if line.action == "inject"]
    assert injected == list(range(len(faults)))
    return result


def partitions(result: SimResult) -> list[dict[str, Any]]:
    """The controller's decisions in the storm, in their order."""
    phases = result.info.phases
    return [
        event
        for event in result.trace
        if event["event"] == "partition" and phases.storm_us <= event["t_us"] < phases.final_us
    ]


def test_the_preferred_leader_is_elected_again() -> None:
    result = run(
        Kill(on="n1", at_ms=500, for_ms=2500), ElectPreferred(partition="log-0", at_ms=4000)
    )
    assert [event["leader"] for event in partitions(result)] == ["n2", "n2", "n1"]


@pytest.mark.parametrize(
    ("faults", "protocol", "why"),
    [
        ((PREFERRED,), "kafka", "n1 leads log-0 already"),
        ((PREFERRED,), "quorum", "votes decide who leads"),
        (
            (Kill(on="v1", at_ms=500, for_ms=3000), ROTATE),
            "kafka",
            "no controller answered 'reassign' in 2 s",
        ),
    ],
)
def test_a_command_that_cannot_be_carried_out_is_missed(
    faults: tuple[Fault, ...], protocol: str, why: str
) -> None:
    result = simulate(plan(*faults, protocol=protocol), seed=1)
    (missed,) = [line for line in result.faults if line.fault == len(faults) - 1]
    assert missed.action == "missed"
    assert why in missed.detail
    assert len(faults) > 1 or result.verdict == "not-exercised"


def test_an_unclean_leader_is_elected_where_nobody_leads() -> None:
    """n1 alone is in sync, and down; the two others are asked to go on without it."""
    result = run(
        Kill(on="n2,n3", at_ms=500, for_ms=5500),
        Kill(on="n1", at_ms=3500),
        ElectUnclean(partition="log-0", at_ms=9000),
        duration_ms=10_000,
        protocol="kip-279",
        min_isr=1,
    )
    assert [(e["leader"], e["unclean"]) for e in partitions(result)][1:4] == [
        ("", False),
        ("n2", True),
        ("n2", False),
    ]
    assert result.info.promise.unclean_election


def test_replicas_move_to_the_next_brokers_and_the_run_ends_there() -> None:
    result = run(ROTATE, brokers=4)
    begun, completed = partitions(result)
    assert (begun["adding"], begun["removing"]) == (["n4"], ["n1"])
    assert (completed["leader"], completed["replicas"]) == ("n2", ["n2", "n3", "n4"])
    assert result.info.partitions == {"log-0": ("n2", "n3", "n4")}


def test_writes_go_on_with_a_lower_min_isr() -> None:
    """Two of three are down: nothing is acknowledged, until one copy is said to be enough."""
    result = run(
        Kill(on="n2,n3", at_ms=500, for_ms=6000), SetMinIsr(min_isr=1, at_ms=4000), duration_ms=6000
    )
    phases = result.info.phases
    # A little later than the fall of the session, and a little earlier than the command.
    acks = [e["t_us"] - phases.storm_us for e in result.trace if e["event"] == "ack"]
    assert not any(2_500_000 < at_us < 4_000_000 for at_us in acks)
    assert any(4_000_000 < at_us < 6_000_000 for at_us in acks)
    assert [e["min_isr"] for e in partitions(result)][-1] == 1


def test_a_leader_that_is_shut_down_hands_over_at_once() -> None:
    result = run(Stop(on="leader:log-0", at_ms=500, for_ms=1000))
    first = partitions(result)[0]
    assert first["leader"] == "n2"
    assert first["t_us"] - result.info.phases.storm_us < 510_000, "not after the session timeout"
    end = result.exits[0]
    assert (end.node, end.by, end.code) == ("n1", "stop", 0)


def test_one_broker_after_the_other_runs_the_other_protocol() -> None:
    faults = [Upgrade(on=f"n{i}", protocol="kip-279", at_ms=1000 * i) for i in (1, 2, 3)]
    result = run(*faults, Kill(on="n3", at_ms=4000, for_ms=500), protocol="kip-101")
    begun = [(e["node"], e["protocol"]) for e in result.trace if e["event"] == "started"]
    assert begun[4:] == [(node, "kip-279") for node in ("n1", "n2", "n3", "n3")]


@pytest.mark.parametrize("seed", range(4))
def test_storms_with_an_operator_in_them(seed: int) -> None:
    kinds = ("kill", "stop", "reassign", "elect-preferred")
    for cluster in ({"protocol": "kafka", "brokers": 4}, {"protocol": "kip-279"}):
        result = simulate(storm(seed, kinds=kinds, **cluster), seed=seed)
        assert result.verdict == "valid", result.sentence
