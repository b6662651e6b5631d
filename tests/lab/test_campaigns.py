"""A sample of each campaign of the laboratory."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.sim.run import simulate
from nemesis.formats.schedule import Cluster, Schedule, Workload
from tests.lab.__main__ import main

pytestmark = pytest.mark.nightly


def test_damaged_copies_of_a_run_are_never_judged_better(tmp_path: Path) -> None:
    schedule = Schedule(cluster=Cluster(), workload=Workload(duration_ms=500, rate=20))
    simulate(schedule, seed=1, keep=tmp_path / "run")
    assert main(["damage", "--copies", "100", str(tmp_path / "run")]) == 0


def test_both_judges_agree_on_drawn_schedules() -> None:
    assert main(["judges", "--schedules", "200"]) == 0
    assert main(["judges", "--schedules", "60", "--bug", "M2"]) == 0


def test_hostile_stores_reach_nothing_outside() -> None:
    assert main(["hostile", "--cases", "340"]) == 0


def test_many_partitions_cost_no_more_than_their_share() -> None:
    assert main(["partitions"]) == 0
