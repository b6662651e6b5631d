"""A disk whose syncs are slow: the turn waits first, and is on the disk afterwards."""

from __future__ import annotations

import pytest

from checker.formats.verdict import Verdict
from harness.sim.run import simulate
from nemesis.faults import PowerCut, SlowFsync, Stop
from tests.support.sim_schedules import plan


@pytest.mark.parametrize("protocol", ["kafka", "kip-279", "quorum"])
def test_a_slow_sync_of_the_leader_delays_its_acknowledgements(protocol: str) -> None:
    """Whether or not the records leave before the commit."""
    slow = SlowFsync(on="leader", at_ms=1000, for_ms=2000, delay_ms=200)
    result = simulate(plan(slow, protocol=protocol), seed=1)
    assert result.verdict is Verdict.VALID
    storm_us = result.faults[0].t_us - 1_000_000
    took_us: dict[bool, list[int]] = {True: [], False: []}
    begun = {}
    for op in result.ops:
        if op.type == "invoke" and op.f == "send":
            begun[op.op] = op.t_us
        elif op.type == "ok" and op.op in begun:
            start_ms = (begun[op.op] - storm_us) // 1000
            if start_ms < 900 or 1000 < start_ms < 2700:
                took_us[start_ms > 1000].append(op.t_us - begun[op.op])
    assert max(took_us[False]) < 200_000 <= min(took_us[True])


def test_a_power_cut_during_a_slow_sync_loses_it() -> None:
    slow = SlowFsync(on="n1", at_ms=1000, for_ms=2500, delay_ms=2000)
    cut = PowerCut(on="n1", at_ms=2500, for_ms=100, keep_percent=100)
    result = simulate(plan(slow, cut, brokers=1, min_isr=1, replication_factor=1), seed=1)
    assert result.verdict is Verdict.VALID
    began_us, cut_us = (each.t_us for each in result.faults if each.action == "inject")
    of_log = [e for e in result.trace if e.get("partition") == "log-0"]
    appended = [e for e in of_log if e["event"] == "append"]
    assert not any(began_us < each["t_us"] < cut_us for each in appended)
    before = max(each["leo"] for each in appended if each["t_us"] < cut_us)
    led = next(e for e in of_log if e["event"] == "role" and e["t_us"] > cut_us)
    assert led["leo"] == before


def test_a_stop_during_a_slow_sync_waits_for_it() -> None:
    slow = SlowFsync(on="n1", at_ms=1000, for_ms=2500, delay_ms=5000)
    stop = Stop(on="n1", at_ms=1500, for_ms=100)
    result = simulate(plan(slow, stop, brokers=1, min_isr=1, replication_factor=1), seed=1)
    assert result.verdict is Verdict.VALID
    (end,) = (each for each in result.exits if each.node == "n1" and each.incarnation == 1)
    assert (end.code, end.expected) == (0, True)
