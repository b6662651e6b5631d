"""The form of a finding for real processes: slower, tied to events, and sure in rough weather."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from test_search_attempt import LOST, bitten

from harness.search import real_form as forms
from harness.search.attempt import attempt
from harness.search.drawing import TIMINGS
from harness.search.moments import before, following, moments
from harness.search.steady import jittered, steadiness
from harness.sim.run import simulate
from harness.sim.weather import ROUGH
from nemesis.schedule import After, Schedule


def told(*events: tuple[int, str, str, int]) -> list[dict[str, Any]]:
    """Appends and cuts of log-0: (time in us, node, event, incarnation)."""
    return [
        {"t_us": t_us, "node": node, "event": event, "incarnation": number, "partition": "log-0",
         "role": "follower"}
        for t_us, node, event, number in events
    ]  # fmt: skip


def test_moments_are_counted_for_each_process_apart() -> None:
    events = told(
        (5, "n1", "append", 1), (10, "n2", "append", 1), (20, "n2", "append", 1),
        (30, "n2", "append", 2), (40, "v1", "broker", 1),
    )  # fmt: skip
    copied = {"node": "n2", "partition": "log-0", "role": "follower"}
    assert [moment.after for moment in moments(events, storm_us=6)] == [
        After(event="append", match=copied, nth=1),
        After(event="append", match=copied, nth=2),
        After(event="append", match=copied | {"incarnation": 2}, nth=1),
    ]


def test_the_nearest_moments_come_first_and_each_kind_once() -> None:
    events = told(
        (10, "n1", "append", 1), (20, "n2", "append", 1), (30, "n1", "append", 1),
        (40, "n2", "truncated", 1), (50, "n1", "append", 1), (60, "n1", "append", 1),
    )  # fmt: skip
    made = list(moments(events, storm_us=0))
    assert [m.t_us for m in before(made, 40, most=2)] == [40, 30]
    assert [m.t_us for m in before(made, 40, most=9)] == [40, 30, 20]
    assert [m.t_us for m in following(made, 40, most=9)] == [50]


def test_slow_motion_fails_alike() -> None:
    schedule, bucket = bitten()[0]
    slow = forms.slow_motion(schedule, 6)
    assert slow.cluster.timings.session_ms == 6 * TIMINGS.session_ms
    assert attempt(slow).bucket == bucket


def test_what_lasts_about_a_session_lasts_for_two() -> None:
    schedule = forms.slow_motion(bitten()[0][0], 6)
    session_ms = schedule.cluster.timings.session_ms
    assert [fault.for_ms for fault in forms.patient(schedule).faults] == [6, 2 * session_ms]


def test_rough_weather_is_rough_and_the_same_each_time() -> None:
    schedule = forms.slow_motion(bitten()[0][0], 6)
    runs = [simulate(schedule, seed=1, stop_at="never", weather=ROUGH) for _ in range(2)]
    assert runs[0].digest == runs[1].digest
    restarted = next(
        e["t_us"] for e in runs[0].trace if e["event"] == "started" and e["incarnation"] == 2
    )
    ended = next(line["t_us"] for line in runs[0].faults if line["action"] == "heal")
    assert ROUGH.boot_us[0] <= restarted - ended <= ROUGH.boot_us[1]


def test_moods_of_the_network_leave_the_faults_their_numbers() -> None:
    schedule, _ = bitten()[0]
    assert jittered(schedule).faults[:2] == schedule.faults
    tried: list[int] = []

    def fails_alike(_: Schedule, seed: int) -> bool:
        tried.append(seed)
        return len(tried) < 3

    assert steadiness(schedule, fails_alike, 10, above=7) == 2
    # Given up as soon as eight of ten were out of reach.
    assert len(tried) == 5


@pytest.mark.slow
def test_kip_101_s_loss_becomes_a_matter_of_events() -> None:
    schedule, _ = bitten()[0]
    form = forms.real_form(schedule, LOST)
    assert form is not None
    assert form.surely >= 10
    assert not any(fault.at_ms for fault in form.schedule.faults)


def test_a_moment_is_stood_still_at_in_the_process_it_belongs_to() -> None:
    (cut,) = moments(told((10, "n2", "truncated", 2)), storm_us=0)
    stand = forms.standing_at(cut)
    assert stand is not None
    assert (stand.on, stand.event, stand.nth, stand.before) == ("n2", "truncated", 1, "send")
    assert stand.match == {"partition": "log-0", "incarnation": 2}


def test_a_failure_that_never_comes_has_no_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "WORLDS", 2)
    monkeypatch.setattr(forms, "SLOWER", (6,))
    schedule = replace(bitten()[0][0], faults=())
    assert forms.real_form(schedule, LOST) is None
