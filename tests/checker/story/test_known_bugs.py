"""The story of each known bug names the step at which its row of the catalogue says it breaks.

A bug is shown by its script, or else by the schedule that a search or an exploration found, in
`known_bugs/`."""

from __future__ import annotations

from pathlib import Path

import pytest

from checker.engine.local import check_run
from checker.formats.anomalies import OF_GROUPS
from checker.formats.story import RULES, Story
from checker.story import evidence, story
from harness.search.worlds.outcome import failure_of
from harness.sim.run import simulate
from nemesis.formats.schedule import load
from node.core.bugs import KNOWN_BUGS, KnownBug
from tests.support.scripts import play, read

SCRIPTS = Path(__file__).parents[2] / "node/core/known_bugs"
SCHEDULES = Path(__file__).parent / "known_bugs"
WITHOUT = {"LB4": "the promise of liftbridge excuses its loss, so no run of it is invalid"}
"""Bugs that no run shows, with the reason."""


def by_script(file: Path, folder: Path) -> Story:
    """Return the story of a script that real brokers act out."""
    (case,) = read(file)
    stage, _ = play(case, **case.variants[""])
    stage.judge(folder)
    run = next(folder.rglob("run.json")).parent
    finding = story.subject(check_run(run))
    assert finding is not None
    return story.build(evidence.read(run, finding.partition), finding)


def by_schedule(file: Path) -> Story:
    """Return the story of a schedule in the simulated world."""
    schedule = load(file)
    failure = failure_of(simulate(schedule, seed=schedule.workload.seed, stop_at="never"))
    assert failure is not None
    return failure.story()


@pytest.mark.parametrize(
    "bug", [bug for bug in KNOWN_BUGS if bug.breaks not in OF_GROUPS], ids=lambda bug: bug.code
)
def test_the_cause_is_the_step_that_the_row_names(bug: KnownBug, tmp_path: Path) -> None:
    if bug.code in WITHOUT:
        assert not (SCRIPTS / f"{bug.code}.txt").exists()
        return
    script = SCRIPTS / f"{bug.code}.txt"
    if script.exists():
        made = by_script(script, tmp_path)
    else:
        made = by_schedule(SCHEDULES / f"{bug.code}.json")
    assert made.cause >= 0, [step.text for step in made.steps]
    assert made.steps[made.cause].rule == bug.breaks_at


def test_each_row_names_a_rule_that_pages_can_say() -> None:
    """A bug of groups has no step in the log of a partition: its story is that of a delivery."""
    for bug in KNOWN_BUGS:
        assert (bug.breaks_at in RULES) is (bug.breaks not in OF_GROUPS), bug


def test_a_commit_that_a_deposed_answer_undoes_is_said_too(tmp_path: Path) -> None:
    """The other script of M16: the answer brings records, not a truncation."""
    made = by_script(SCRIPTS / "M16-records.txt", tmp_path)
    assert made.steps[made.cause].rule == "log-matching"
    assert made.steps[made.cause].node == "n3"
