"""Scenarios of the documents on real processes: broken where they say so, and nowhere else.

About 15 s a row on two cores, 30 s for the last five; 5 minutes in all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.runs.options import to_schedule
from harness.runs.requests import RunRequest
from harness.sim.run import simulate
from nemesis import ready_made
from nemesis.formats.schedule import Expectation
from node.formats.errors import UsageError
from tests.support.paths import ROOT
from tests.support.running_harness import broken_properties, ran, told

LOSS = "no-lost-acknowledged-write"
AGREEMENT = "committed-prefix-agreement"


SCENARIOS = [
    ("kip-101-scenario-1", "high-watermark", LOSS),
    ("kip-101-scenario-1", "kip-101", ""),
    ("kip-101-scenario-1", "kip-279", ""),
    ("kip-101-scenario-1", "kafka", ""),
    ("kip-101-scenario-2", "high-watermark", AGREEMENT),
    ("kip-101-scenario-2", "kip-101", ""),
    ("kip-101-scenario-2", "kip-279", ""),
    ("kip-279-scenario-1", "kip-101", AGREEMENT),
    ("kip-279-scenario-1", "kip-279", ""),
    ("kip-279-scenario-1", "kafka", ""),
    ("raft-figure-8", "quorum-naive", LOSS),
    ("raft-figure-8", "quorum", ""),
    ("stale-high-watermark", "quorum-naive", LOSS),
    ("stale-high-watermark", "quorum", ""),
    ("rolling-upgrade", "kip-101", ""),
    ("liftbridge-walk-through", "liftbridge", ""),
    ("voters-in-turn", "kafka", ""),
]


@pytest.mark.nightly
@pytest.mark.parametrize(("schedule", "protocol", "broken"), SCENARIOS)
def test_a_scenario_breaks_the_protocols_it_is_about_and_no_other(
    tmp_path: Path, schedule: str, protocol: str, broken: str
) -> None:
    check(tmp_path, ["--schedule", schedule, "--protocol", protocol], broken)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("bugs", "broken"), [(["liftbridge-epoch-offset"], "committed-prefix-agreement"), ([], "")]
)
def test_the_second_successor_answers_wrong_with_the_defect_only(
    tmp_path: Path, bugs: list[str], broken: str
) -> None:
    schedule = json.loads((ROOT / "nemesis/schedules/second-successor.json").read_text())
    assert schedule["cluster"]["bugs"] == ["liftbridge-epoch-offset"]
    schedule["cluster"]["bugs"] = bugs
    schedule["expectation"] = {}
    (tmp_path / "schedule.json").write_text(json.dumps(schedule))
    check(tmp_path, ["--schedule", "schedule.json"], broken)


def test_a_follower_that_gives_up_asking_loses_and_one_that_asks_on_does_not() -> None:
    found = ready_made.load("kip-279-fallback")
    asks_on = msgspec.structs.replace(found.cluster, bugs=())
    for seed in range(3):
        assert LOSS in simulate(found, seed=seed, stop_at="never").broken
        again = msgspec.structs.replace(found, cluster=asks_on)
        assert simulate(again, seed=seed, stop_at="never").broken == ()


FOUND = [
    ("found-kip-101-scenario-1", {"protocol": "kip-101"}, LOSS),
    ("found-kip-279-scenario-1", {"protocol": "kip-279"}, AGREEMENT),
    ("found-figure-8", {"bugs": ()}, LOSS),
]
"""What searches found and shrank, in the form for real processes, and what mends it."""


@pytest.mark.parametrize(("name", "mended", "broken"), FOUND)
def test_what_a_search_found_fails_until_it_is_mended(
    name: str, mended: dict[str, Any], broken: str
) -> None:
    found = ready_made.load(name)
    assert found.expectation.property == broken
    cluster = msgspec.structs.replace(found.cluster, **mended)
    better = msgspec.structs.replace(found, cluster=cluster)
    for seed in range(3):
        assert broken in simulate(found, seed=seed, stop_at="never").broken
        assert simulate(better, seed=seed, stop_at="never").broken == ()


@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name, _, _ in FOUND])
def test_what_a_search_found_fails_in_real_processes(tmp_path: Path, name: str) -> None:
    told(tmp_path, "replay", name, "--world", "real", "--times", "3", "--quiet")


def check(folder: Path, words: list[str], broken: str) -> None:
    """Run it: the verdict is invalid, for this property among others, or valid."""
    _, result = ran(folder, "run", *words, verdict="invalid" if broken else "valid")
    assert not broken or broken in broken_properties(result), result["sentence"]


@pytest.mark.parametrize(("schedule", "protocol", "broken"), SCENARIOS)
def test_the_same_files_do_the_same_in_the_simulated_world(
    schedule: str, protocol: str, broken: str
) -> None:
    found = ready_made.load(schedule)
    cluster = msgspec.structs.replace(found.cluster, protocol=protocol)
    for seed in range(3):
        run = msgspec.structs.replace(found, cluster=cluster)
        result = simulate(run, seed=seed, stop_at="never")
        assert result.checked.verdict == ("invalid" if broken else "valid"), result.sentence
        assert not broken or broken in result.broken


def test_a_ready_made_schedule_is_run_by_its_name_and_under_another_protocol() -> None:
    name = Path("kip-101-scenario-1")
    asis = to_schedule(RunRequest(schedule=name))
    assert asis == ready_made.load("kip-101-scenario-1")
    other = to_schedule(RunRequest(schedule=name, protocol="kip-101"))
    assert other.cluster.protocol == "kip-101"
    assert other.faults == asis.faults
    assert other.expectation == Expectation()
    with pytest.raises(UsageError, match=r"no ready-made schedule 'kip-0' .*leader-bounce"):
        to_schedule(RunRequest(schedule=Path("kip-0")))
