"""A simulated run is judged by what it recorded, as it would be by its files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from checker.engine.local import check_files
from checker.formats.verdict import RunResult
from harness.search.catalogue.known_bugs import search_targets
from harness.search.worlds.simulated import BugSubject
from harness.sim.run import simulate
from nemesis import ready_made
from nemesis.formats.schedule import Schedule, load

CORPUS = sorted((Path(__file__).parents[2] / "corpus").glob("*.json"))
TARGETS = list(search_targets())
OURS = [name for name in ready_made.names() if not ready_made.load(name).cluster.spares]
"""The ready-made schedules that our brokers can take: nothing joins them."""


def judged_both_ways(schedule: Schedule) -> RunResult:
    """Return the verdict of a run by what it recorded, which must be that of its lines."""
    run = simulate(schedule, seed=schedule.workload.seed, stop_at="visible")
    assert run.checked == check_files(run.encoded())
    return run.checked


@pytest.mark.parametrize("name", [*OURS, *(str(file) for file in CORPUS)])
def test_a_schedule_is_judged_from_memory_as_from_files(name: str) -> None:
    schedule = load(Path(name)) if name.endswith(".json") else ready_made.load(name)
    assert judged_both_ways(schedule).properties


@pytest.mark.nightly
def test_drawn_schedules_are_judged_from_memory_as_from_files() -> None:
    verdicts = Counter(
        judged_both_ways(BugSubject.of(target).draw(0, number)).verdict.value
        for target in TARGETS
        for number in (4, 5)
    )
    assert verdicts["invalid"] >= 5
