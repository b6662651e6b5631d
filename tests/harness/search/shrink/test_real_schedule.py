"""The form of a finding for real processes: slower, and reliable on busy hosts."""

from __future__ import annotations

import pytest

from harness.search.grammar.conditions import TIMINGS
from harness.search.shrink import real_schedule
from harness.search.shrink.real_schedule import Conditions
from harness.search.worlds.outcome import run_simulated
from harness.sim.node import BUSY_HOST, OVERLOADED_HOST
from harness.sim.run import simulate
from nemesis.formats.schedule import Schedule
from tests.harness.search.worlds.test_outcome import LOST, bitten


def test_the_form_that_fails_most_often_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = bitten()[0][0]
    # As it is, then six, ten and sixteen times as slow.
    fails = {1: "x...", 6: "x..x", 10: ".xxx", 16: "..x."}
    tried: list[tuple[int, int]] = []

    def tries(form: Schedule, broken: str, under: Conditions) -> bool:
        factor = form.cluster.timings.session_ms // TIMINGS.session_ms
        tried.append((factor, under.seed))
        return fails[factor][under.seed] == "x"

    conditions = tuple(Conditions(seed, BUSY_HOST, 1) for seed in range(4))
    monkeypatch.setattr(real_schedule, "CONDITIONS", conditions)
    monkeypatch.setattr(real_schedule, "RUNS", 4)
    monkeypatch.setattr(real_schedule, "fails", tries)
    found = real_schedule.real_schedule(schedule, LOST)
    assert found == (real_schedule.slow_motion(schedule, 10), 3)
    # What cannot fail more often any more is given up.
    assert tried[12:] == [(16, 0)]
    fails |= dict.fromkeys(fails, "....")
    assert real_schedule.real_schedule(schedule, LOST) is None


def test_runs_on_busy_hosts_are_slow_and_deterministic() -> None:
    drawn, bucket = bitten()[0]
    schedule = real_schedule.slow_motion(drawn, 6)
    session_ms = schedule.cluster.timings.session_ms
    assert session_ms == 6 * TIMINGS.session_ms
    assert run_simulated(schedule).bucket == bucket, "slow motion fails alike"
    longer = [fault.for_ms for fault in schedule.faults]
    assert longer == [6, 2 * session_ms], "a fault of about a session lasts for two"
    runs = {
        host: [simulate(schedule, seed=1, stop_at="never", latency=host) for _ in range(2)]
        for host in (BUSY_HOST, OVERLOADED_HOST)
    }
    digests = [{run.digest for run in both} for both in runs.values()]
    assert [len(each) for each in digests] == [1, 1]
    assert digests[0] != digests[1]
    run = runs[BUSY_HOST][0]
    again = (e for e in run.trace if e["event"] == "started" and e["incarnation"] == 2)
    ended = next(line.t_us for line in run.faults if line.action == "heal")
    assert BUSY_HOST.boot_us[0] <= next(again)["t_us"] - ended <= BUSY_HOST.boot_us[1]


@pytest.mark.nightly
def test_kip_101_s_loss_has_a_form_that_fails_in_most_runs() -> None:
    schedule, _ = bitten()[0]
    form = real_schedule.real_schedule(schedule, LOST)
    assert form is not None
    assert form.failures >= real_schedule.RUNS / 2
