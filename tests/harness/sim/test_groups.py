"""Simulated runs whose members consume: the coordinator keeps its promise, and each known bug of it
breaks that in the smallest schedule that a search found (`group_bugs/`)."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from msgspec.structs import replace

from checker.formats.anomalies import OWNERSHIP
from checker.formats.verdict import Verdict
from harness.formats.history import GROUP_STATES
from harness.search.worlds.outcome import failure_of
from harness.sim.run import simulate
from nemesis.faults import Kill, Link, Pause
from nemesis.formats.schedule import Cluster, Schedule, Workload, load
from node.core.bugs import KNOWN_BUGS, KnownBug

SCHEDULES = Path(__file__).parent / "group_bugs"
BUGS = [bug for bug in KNOWN_BUGS if bug.breaks == OWNERSHIP]
STORM = Schedule(
    cluster=Cluster(partitions=2),
    workload=Workload(clients=2, consumers=0, members=3, duration_ms=8000, seed=2),
    faults=(
        Kill(on="leader:group:log-0", at_ms=1500, for_ms=1500),
        Pause(on="leader:group:log-0", at_ms=4000, for_ms=800),
        Link(on="c3", to="all", action="drop", at_ms=5500, for_ms=2000),
    ),
)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.code)
def test_a_known_bug_of_groups_shows(bug: KnownBug) -> None:
    schedule = load(SCHEDULES / f"{bug.code}.json")
    assert schedule.cluster.bugs == (bug.name,)
    assert len(schedule.faults) <= 2
    assert OWNERSHIP in simulate(schedule, seed=1).broken
    right = replace(schedule, cluster=replace(schedule.cluster, bugs=()))
    assert simulate(right, seed=1).verdict is not Verdict.INVALID


def test_members_get_everything_once_the_faults_are_over(tmp_path: Path) -> None:
    result = simulate(STORM, seed=1, keep=tmp_path)
    assert result.verdict is Verdict.VALID, result.sentence
    done = Counter((op.f, op.type) for op in result.ops if op.group)
    for kind in ("join", "assign", "poll", "commit", "position", "leave", "crash"):
        assert done[kind, "ok"], kind
    fenced = [op for op in result.ops if op.f == "commit" and op.type == "fail"]
    assert fenced, "no member tried to commit what it owned no more"
    last = max(op.op for op in result.ops if op.f == "position" and op.final)
    assert [op.type for op in result.ops if op.op == last] == ["invoke", "ok"]
    lines = (tmp_path / GROUP_STATES).read_text()
    assert '"record":' in lines
    assert '"live":' in lines


def test_without_invariants_the_checker_sees_a_state_unlike_its_log() -> None:
    result = simulate(load(SCHEDULES / "B9.json"), seed=1, check_invariants=False)
    assert "replay-differs" in {anomaly.name for anomaly in result.checked.anomalies}


def test_the_story_of_a_position_that_goes_back_has_the_commit_that_was_confirmed() -> None:
    failure = failure_of(simulate(load(SCHEDULES / "B5.json"), seed=1, stop_at="never"))
    assert failure is not None
    told = failure.story()
    said = [step.text for step in told.steps]
    assert any(re.fullmatch(r"c3-4 commits position \d+ in epoch 7: confirmed.", s) for s in said)
    assert told.steps[told.cause].text == "Fault: pause n2, the leader of __groups-0."
    assert said[told.loss] == "c3-4 is told that the group is at no position in epoch 7."
