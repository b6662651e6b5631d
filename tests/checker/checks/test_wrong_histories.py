"""Wrong histories and run folders in every form are distinguished from near misses.

A machine tells lies of histories of a log that works (`lies`), and models of replicas that know no
check leave what is wrong, or nearly so (`odd_evidence`)."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from checker.engine.local import check_run
from checker.formats.verdict import Verdict
from harness.formats.seal import seal_run
from tests.support.checker import odd_evidence
from tests.support.checker.agreed import budget
from tests.support.checker.lies import LIES, judge

SAMPLE, MANY = 20, 10_000
"""How many histories the first tier tells each lie of, and the nightly tests tell a lie of."""


def told(name: str, seeds: range) -> int:
    """Tell a lie of histories, and return how many had room for it."""
    said = {seed: judge(name, seed) for seed in seeds}
    assert {seed: wrong for seed, wrong in said.items() if wrong} == {}
    return sum(wrong is not None for wrong in said.values())


@pytest.mark.parametrize("first", range(0, 4 * SAMPLE, SAMPLE))
@pytest.mark.parametrize("name", LIES)
def test_a_lie_is_found_and_a_history_that_is_right_is_not_accused(name: str, first: int) -> None:
    if not first or name == "nothing_is_told":
        told(name, range(first, first + SAMPLE))


@pytest.mark.nightly
@pytest.mark.parametrize("name", LIES)
def test_many_lies(name: str) -> None:
    each = MANY // len(LIES) + 1
    assert told(name, range(SAMPLE, SAMPLE + each)) > each / 40


@pytest.mark.parametrize("wrong", [True, False])
@pytest.mark.parametrize("name", odd_evidence.CLASSES)
def test_what_replicas_left_is_told_from_its_near_miss(name: str, wrong: bool) -> None:
    due = odd_evidence.CLASSES[name][1] if wrong else Verdict.VALID
    found = []
    for seed in range(min(budget(12).max_examples, 300)):
        with tempfile.TemporaryDirectory() as folder:
            made = odd_evidence.draw(name, seed, wrong=wrong).write(Path(folder) / "run")
            seal_run(made)
            result = check_run(made)
        if result.verdict is not due:
            found.append(f"seed {seed}: {result.sentence}")
    assert found == []
