"""The checks against slow definitions that follow docs/checks.md word by word.

Hypothesis writes tiny runs that say anything. The definitions expand every record and compare every
pair."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.checker import log_histories
from tests.support.checker.agreed import agreed, budget
from tests.support.checker.correct_history import History
from tests.support.checker.histories import Around, Step, around, surrounded, wild
from tests.support.checker.life_histories import (
    Change,
    Life,
    Silence,
    changes,
    led,
    lives,
    silences,
    silent,
    tell,
)

slow_but_sure = budget()


# The second answer of a poll states that it starts at 0, and passes over the record there.
@slow_but_sure
@example(
    steps=[
        Step("send", 1, "ok", 0, 1, sends=((0, 1, 0, -1),)),
        Step("poll", 1, "ok", 0, 1, reads=((0, 0, 0, ((0, 0, 0, 1),)), (0, 0, 0, ((1, 0, 0, 1),)))),
    ],
    known=Around(0, True, False, None, (None, None, None)),
)
@given(wild(transactions=False), around)
def test_histories_of_single_steps(steps: list[Step], known: Around) -> None:
    agreed(surrounded(steps, known))


@slow_but_sure
@given(wild(transactions=True), around)
def test_histories_of_transactions(steps: list[Step], known: Around) -> None:
    agreed(surrounded(steps, known))


@slow_but_sure
@given(log_histories.runs)
def test_logs_and_traces(run: log_histories.Run) -> None:
    agreed(log_histories.tell(*run))


@slow_but_sure
@given(lives)
def test_phases_faults_and_exits(life: Life) -> None:
    agreed(tell(life))


@slow_but_sure
@given(silences)
def test_majorities_that_stay_silent(silence: Silence) -> None:
    agreed(silent(silence))


@slow_but_sure
@given(changes)
def test_leadership(told: list[Change]) -> None:
    agreed(led(told))


@slow_but_sure
@given(st.integers(0, 1 << 32))
def test_histories_of_a_correct_log(seed: int) -> None:
    agreed(History(seed, turns=(10, 60)).story())
