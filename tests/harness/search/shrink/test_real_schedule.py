"""The form of a finding for real processes: slower, tied to events, and reliable on busy hosts."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from harness.search.draw.generator import TIMINGS
from harness.search.shrink import evaluation
from harness.search.shrink import real_schedule as forms
from harness.search.shrink.evaluation import Conditions, Evaluation, jittered
from harness.search.shrink.to_script import one_client_per_send, to_script
from harness.search.worlds.outcome import run_simulated
from harness.sim.latency_profile import BUSY_HOST, OVERLOADED_HOST
from harness.sim.run import simulate
from nemesis.faults import Kill, Link, Release
from nemesis.formats.schedule import After, Schedule, check
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
    slow = forms.slow_motion(script, 6).workload
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


def test_the_surest_form_keeps_what_it_has_and_wins_what_it_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = bitten()[0][0]
    one, two, three = (replace(schedule, name=name) for name in ("one", "two", "three"))
    fails = {"one": "x..x", "two": ".xxx", "three": "x.x."}
    worlds = [Conditions(number, BUSY_HOST, 1) for number in range(4)]
    tried: list[tuple[str, int]] = []

    def tries(self: Evaluation, form: Schedule, world: Conditions) -> bool:
        tried.append((form.name, world.seed))
        return fails[form.name][world.seed] == "x"

    monkeypatch.setattr(evaluation, "WORLDS", tuple(worlds))
    monkeypatch.setattr(Evaluation, "fails", tries)
    assert Evaluation("anything").best(one, [two, three]) is two
    # What cannot be surer any more is given up.
    tried.clear()
    assert Evaluation("anything").failing_worlds(three, above=3) == 1
    assert tried == [("three", 0), ("three", 1)]


def test_a_fault_may_last_and_one_with_a_limit_may_wait_from_the_beginning() -> None:
    ack = After(event="ack", match={})
    link = {"on": "n1", "to": "n2", "action": "delay", "delay_ms": 9, "limit": 2}
    late = Link(**link, for_ms=20, after=ack)  # type: ignore[arg-type]
    schedule = replace(bitten()[0][0], faults=(late,))
    lasting, waiting, longer = list(forms._ended_elsewhere(schedule, 0, []))
    assert [form.faults[0].for_ms for form in (lasting, waiting, longer)] == [None, None, 60]
    assert (waiting.faults[0].at_ms, waiting.faults[0].after) == (0, None)


def test_runs_on_busy_hosts_are_slow_and_deterministic() -> None:
    drawn, bucket = bitten()[0]
    schedule = forms.slow_motion(drawn, 6)
    session_ms = schedule.cluster.timings.session_ms
    assert session_ms == 6 * TIMINGS.session_ms
    assert run_simulated(schedule).bucket == bucket, "slow motion fails alike"
    longer = [fault.for_ms for fault in forms.with_longer_faults(schedule).faults]
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
def test_kip_101_s_loss_becomes_a_matter_of_events() -> None:
    schedule, _ = bitten()[0]
    form = forms.real_schedule(schedule, LOST)
    assert form is not None
    assert form.failing_worlds >= 27
    assert not any(fault.at_ms for fault in form.schedule.faults)


def test_a_failure_that_never_comes_has_no_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "WORLDS", evaluation.WORLDS[:2])
    monkeypatch.setattr(forms, "SLOWER", (6,))
    schedule = replace(bitten()[0][0], faults=())
    assert forms.real_schedule(schedule, LOST) is None
