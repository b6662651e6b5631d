"""The form of a finding for real processes: slower, tied to events, and reliable on busy hosts."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from harness.search.grammar.conditions import TIMINGS
from harness.search.shrink import real_schedule
from harness.search.shrink.real_schedule import Conditions, Evaluation, jittered
from harness.search.shrink.to_script import one_client_per_send, to_script
from harness.search.worlds.outcome import run_simulated
from harness.sim.latency_profile import BUSY_HOST, OVERLOADED_HOST
from harness.sim.run import simulate
from nemesis.faults import Kill, Release
from nemesis.formats.schedule import Schedule, check
from tests.harness.search.worlds.test_outcome import LOST, bitten
from tests.support.scripts import beside, proving

test_script = proving(beside(__file__))


def test_a_script_does_what_the_clients_did_and_fails_alike() -> None:
    schedule, bucket = bitten()[0]
    run = simulate(schedule, seed=schedule.workload.seed, stop_at="visible")
    script = to_script(schedule, run, polls=False, leaders=False)
    assert script is not None
    check(script)
    assert script.workload.scripted
    assert not any(fault.at_ms for fault in script.faults)
    assert run_simulated(script).bucket == bucket
    acked = [op for op in run.ops if op.type == "ok" and op.f == "send"]
    assert len(script.workload.operations) >= len(acked) > 0
    apart = one_client_per_send(script)
    check(apart)
    assert len(apart.workload.scripted_clients()) == len(script.workload.operations)
    slow = real_schedule.slow_motion(script, 6).workload
    assert [o.after.delay_ms for o in slow.operations if o.after] == [
        6 * o.after.delay_ms for o in script.workload.operations if o.after
    ]


def test_a_script_ends_in_time_what_the_end_of_the_storm_would_end() -> None:
    schedule, _ = bitten()[0]
    kills = tuple(replace(fault, for_ms=None) for fault in schedule.faults)
    run = simulate(replace(schedule, faults=kills), seed=schedule.workload.seed, stop_at="visible")
    script = to_script(replace(schedule, faults=kills), run, polls=False, leaders=False)
    assert script is not None
    ends = {fault.of for fault in script.faults if isinstance(fault, Release)}
    assert ends == {fault.name for fault in script.faults if isinstance(fault, Kill)}


def test_the_variant_that_fails_most_often_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = bitten()[0][0]
    fails = {"one": "x..x", "two": ".xxx", "three": "..x."}
    one, two, three = (replace(schedule, name=name) for name in fails)
    all_conditions = tuple(Conditions(number, BUSY_HOST, 1) for number in range(4))
    tried: list[tuple[str, int]] = []

    def tries(self: Evaluation, form: Schedule, under: Conditions) -> bool:
        tried.append((form.name, under.seed))
        return fails[form.name][under.seed] == "x"

    monkeypatch.setattr(real_schedule, "CONDITIONS", all_conditions)
    monkeypatch.setattr(Evaluation, "fails", tries)
    assert real_schedule._best([one, two, three], Evaluation("anything")) is two
    # What cannot fail often enough any more is given up.
    assert tried[8:] == [("three", 0), ("three", 1)]
    # Of two that fail equally often, the one with fewer fixed times.
    timed = replace(one, faults=(Kill(on="n1", at_ms=5),))
    assert real_schedule._best([timed, replace(one, faults=())], Evaluation("anything")) != timed


def test_runs_on_busy_hosts_are_slow_and_deterministic() -> None:
    drawn, bucket = bitten()[0]
    schedule = real_schedule.slow_motion(drawn, 6)
    session_ms = schedule.cluster.timings.session_ms
    assert session_ms == 6 * TIMINGS.session_ms
    assert run_simulated(schedule).bucket == bucket, "slow motion fails alike"
    longer = [fault.for_ms for fault in real_schedule.with_longer_faults(schedule).faults]
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


def test_properties_of_the_network_leave_the_faults_their_numbers() -> None:
    schedule, _ = bitten()[0]
    assert jittered(schedule, 2).faults[:2] == schedule.faults


@pytest.mark.nightly
def test_kip_101_s_loss_has_a_form_that_fails_in_most_runs() -> None:
    schedule, _ = bitten()[0]
    form = real_schedule.real_schedule(schedule, LOST)
    assert form is not None
    assert form.failures >= real_schedule.RUNS / 2


def test_a_failure_that_never_comes_has_no_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_schedule, "CONDITIONS", real_schedule.CONDITIONS[:2])
    monkeypatch.setattr(real_schedule, "SLOWER", (6,))
    schedule = replace(bitten()[0][0], faults=())
    assert real_schedule.real_schedule(schedule, LOST) is None
