"""Clocks of nodes that run fast or slow: timeouts end sooner or later, and nothing else changes."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from harness.sim.run import SimResult, simulate
from nemesis.faults import ClockRate, Isolate, Kill
from nemesis.formats.schedule import Cluster, Fault, Schedule, Workload

CLUSTER = Cluster(partitions=1)
WORKLOAD = Workload(seed=3, clients=2, consumers=1, duration_ms=6000)


def run(*faults: Fault, protocol: str = "kafka") -> SimResult:
    schedule = Schedule(
        cluster=replace(CLUSTER, protocol=protocol), workload=WORKLOAD, faults=faults
    )
    return simulate(schedule, seed=3, stop_at="never")


def events(result: SimResult, name: str, **fields: Any) -> list[int]:
    """Times of the events of the storm that have these fields, ms since it began."""
    began_us, ended_us = result.info.phases.storm_us, result.info.phases.heal_us
    return [
        (e["t_us"] - began_us) // 1000
        for e in result.trace
        if e["event"] == name
        and began_us <= e["t_us"] < ended_us
        and all(e.get(field) == value for field, value in fields.items())
    ]


def test_a_clock_at_the_true_rate_changes_nothing() -> None:
    nodes = (*CLUSTER.broker_names(), *CLUSTER.voter_names())
    right = [ClockRate(on=name, at_ms=100, for_ms=2000, percent=100) for name in nodes]
    assert run(*right).trace == run().trace


def test_a_broker_whose_clock_hardly_moves_is_fenced_for_its_silence() -> None:
    """At a tenth of the rate a heartbeat comes every 2 s; the session is 1.5 s."""
    assert not events(run(), "broker", state="fenced")
    slow = run(ClockRate(on="n2", at_ms=500, percent=10))
    fenced = events(slow, "broker", state="fenced", broker="n2")
    assert fenced[0] > 1500
    assert events(slow, "broker", state="unfenced", broker="n2")
    assert slow.verdict == "valid"


def test_a_controller_whose_clock_runs_too_fast_fences_everybody() -> None:
    """A session of 1.5 s is over in 150 ms, and heartbeats come every 200 ms."""
    fast = run(ClockRate(on="v1", at_ms=500, for_ms=2500, percent=1000))
    fenced = {
        broker
        for broker in CLUSTER.broker_names()
        if events(fast, "broker", state="fenced", broker=broker)
    }
    assert fenced == set(CLUSTER.broker_names())
    assert fast.verdict == "valid"


def test_a_fast_voter_of_a_data_partition_stands_for_election_where_a_slow_one_waits() -> None:
    """The leader is cut off; the first to notice is the one whose clock is fastest."""
    for fast, slow in (("n2", "n3"), ("n3", "n2")):
        result = run(
            ClockRate(on=fast, at_ms=500, percent=300),
            ClockRate(on=slow, at_ms=500, percent=30),
            Isolate(on="leader:log-0", at_ms=2000, for_ms=1500),
            protocol="quorum",
        )
        assert result.verdict == "valid"
        role = {"role": "candidate", "partition": "log-0"}
        times = {name: events(result, "role", node=name, **role) for name in (fast, slow)}
        assert len(times[fast]) >= len(times[slow]), times


def test_the_rate_holds_for_later_processes_until_the_heal() -> None:
    faults = (
        ClockRate(on="n2", at_ms=500, for_ms=3500, percent=10),
        Kill(on="n2", at_ms=700, for_ms=100),
    )
    result = run(*faults)
    fenced = events(result, "broker", state="fenced", broker="n2")
    assert any(1000 < ms < 4500 for ms in fenced), fenced
    assert not [ms for ms in fenced if ms > 5800]
    assert result.verdict == "valid"
