"""A simulated run is judged by what it recorded, as it would be by its files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from checker.engine.local import check_files
from checker.formats.verdict import RunResult
from harness.search.catalogue.known_bugs import search_targets
from harness.search.worlds.simulated import BugSubject
from harness.sim import folder
from harness.sim.run import simulate
from nemesis import ready_made
from nemesis.formats.schedule import Schedule, load

CORPUS = sorted((Path(__file__).parents[2] / "corpus").glob("*.json"))
TARGETS = list(search_targets())
OURS = [name for name in ready_made.names() if not ready_made.load(name).cluster.spares]
"""The ready-made schedules that our brokers can take: nothing joins them."""


def judged_both_ways(schedule: Schedule, monkeypatch: pytest.MonkeyPatch) -> RunResult:
    """Return the verdict of a run by what it recorded, which must be that of its lines."""

    def check(run: folder.RunFiles, keep: Path | None) -> RunResult:
        checked = judge(run, keep)
        assert checked == check_files(folder.files(run))
        return checked

    judge = folder.check
    monkeypatch.setattr(folder, "check", check)
    checked = simulate(schedule, seed=schedule.workload.seed, stop_at="visible").checked
    monkeypatch.setattr(folder, "check", judge)
    return checked


@pytest.mark.parametrize("name", [*OURS, *(str(file) for file in CORPUS)])
def test_a_schedule_is_judged_from_memory_as_from_files(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = load(Path(name)) if name.endswith(".json") else ready_made.load(name)
    assert judged_both_ways(schedule, monkeypatch).properties


@pytest.mark.nightly
def test_drawn_schedules_are_judged_from_memory_as_from_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    verdicts = Counter(
        judged_both_ways(BugSubject.of(target).draw(0, number), monkeypatch).verdict.value
        for target in TARGETS
        for number in (4, 5)
    )
    assert verdicts["invalid"] >= 5
