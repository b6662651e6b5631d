"""Conditions that authors of models of Kafka marked, each with a schedule that blind search found.

`tests/outside/CODE.json` is a schedule as `floodmark bugs find` drew it, with the condition left
out. docs/outside-judge.md has the table."""

from __future__ import annotations

from typing import Final

import pytest
from msgspec.structs import replace

from harness.search.catalogue.known_bugs import search_targets
from harness.sim.run import simulate
from nemesis.formats.schedule import Schedule, load
from tests.lab.outside_judge.judge import judge_trace
from tests.support.paths import ROOT

FOLDER: Final = ROOT / "tests/outside"
BREAKS: Final = {target.code: target.breaks for target in search_targets()}
# The invariants of the model that the run breaks. It is of another protocol than M28's.
MODEL: Final = {
    "M7b": {"LeaderCandidateCompleteness", "LeaderCompleteness", "NoCommittedRecordLostGlobally"},
    "M13": {"LeaderCandidateCompleteness", "LeaderCompleteness", "NoCommittedRecordLostGlobally"},
    "M21": {"LeaderCandidateCompleteness", "LeaderCompleteness"},
    "M27": {"LeaderCandidateCompleteness", "LeaderCompleteness", "NoCommittedRecordLostGlobally"},
    "M28": set[str](),
    "M29": {"LeaderCandidateCompleteness", "LeaderCompleteness"},
}


def found(code: str, schedule: Schedule) -> tuple[set[str], set[str]]:
    """Return what our checks and the outside judge find broken."""
    run = simulate(schedule, seed=schedule.workload.seed, stop_at="never")
    outside = judge_trace(run.trace).broken if MODEL[code] else []
    return set(run.broken), {each.invariant for each in outside}


@pytest.mark.parametrize("code", sorted(path.stem for path in FOLDER.iterdir()))
def test_a_condition_of_the_outside_model_left_out_loses_data(code: str) -> None:
    schedule = load(FOLDER / f"{code}.json")
    ours, outside = found(code, schedule)
    assert BREAKS[code] in ours
    assert MODEL[code] <= outside
    with_it = replace(schedule, cluster=replace(schedule.cluster, bugs=()))
    assert found(code, with_it) == (set(), set())
