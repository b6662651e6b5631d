"""The checks against slow definitions that follow docs/checks.md word by word.

Hypothesis writes tiny runs that say anything. The definitions expand every record and compare every
pair."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from harness.formats.history import Read, RecordRun
from tests.support.checker import life_histories, log_histories
from tests.support.checker.agreed import agreed, budget
from tests.support.checker.correct_history import History
from tests.support.checker.histories import wild
from tests.support.checker.story import P, Story

slow_but_sure = budget()


def two_answers() -> Story:
    """Return a poll whose second answer states that it starts at 0, and passes over the record
    there."""
    s = Story(capabilities=[])
    s.send(0, at=0)
    answers = [Read(partition=P, start=0, hw=0, records=(RecordRun(at, 0),)) for at in (0, 1)]
    s.op("poll", "ok", reads=answers, process=1)
    return s


@slow_but_sure
@example(two_answers())
@given(wild(transactions=False))
def test_histories_of_single_steps(story: Story) -> None:
    agreed(story)


@slow_but_sure
@given(wild(transactions=True))
def test_histories_of_transactions(story: Story) -> None:
    agreed(story)


@slow_but_sure
@given(log_histories.runs())
def test_logs_and_traces(story: Story) -> None:
    agreed(story)


@slow_but_sure
@given(life_histories.lives())
def test_phases_faults_and_exits(story: Story) -> None:
    agreed(story)


@slow_but_sure
@given(life_histories.silences())
def test_majorities_that_stay_silent(story: Story) -> None:
    agreed(story)


@slow_but_sure
@given(life_histories.changes())
def test_leadership(story: Story) -> None:
    agreed(story)


@slow_but_sure
@given(st.integers(0, 1 << 32))
def test_histories_of_a_correct_log(seed: int) -> None:
    agreed(History(seed, turns=(10, 60)).story())
