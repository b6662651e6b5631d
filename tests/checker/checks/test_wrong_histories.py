"""Classes of wrong histories and run folders, and near misses, in every form: each is distinguished
from the other.

Members of each class are made by the hundred by models that know no check (`history_classes`,
`odd_evidence`), and every other one is written as another tool would (`disguise`)."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from checker.engine.local import check_run
from checker.formats.verdict import RunResult, Verdict
from harness.formats.seal import seal_run
from tests.support.checker import odd_evidence
from tests.support.checker.agreed import budget
from tests.support.checker.disguise import Disguise
from tests.support.checker.history_classes import CLASSES, draw
from tests.support.checker.history_forms import written

FIRST_TIER, NIGHTLY = 12, 300
"""How many of each class the first tier judges, and the nightly tests."""


def judged(name: str, seed: int, *, wrong: bool) -> RunResult:
    """Judge a history of a class; every other one in disguise."""
    told, form = draw(name, seed, wrong=wrong)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "history"
        if seed // len(CLASSES[name].forms) % 2:
            disguise = Disguise(seed, jepsen=told.jepsen, splits=CLASSES[name].splits)
            return check_run(disguise.written(form, place, told.ops, told.promise, told.seeks))
        return check_run(written(form, place, told.ops, told.promise, told.seeks))


def number() -> int:
    """Return how many of a class are judged."""
    return min(budget(FIRST_TIER).max_examples, NIGHTLY)


@pytest.mark.parametrize("wrong", [True, False])
@pytest.mark.parametrize("name", CLASSES)
def test_a_class_is_told_from_its_near_miss(name: str, wrong: bool) -> None:
    due = CLASSES[name].wrong if wrong else CLASSES[name].near
    found = []
    for seed in range(number()):
        result = judged(name, seed, wrong=wrong)
        if result.verdict not in due:
            found.append(f"seed {seed}: {result.sentence}")
    assert found == []


@pytest.mark.parametrize("wrong", [True, False])
@pytest.mark.parametrize("name", odd_evidence.CLASSES)
def test_what_replicas_left_is_told_from_its_near_miss(name: str, wrong: bool) -> None:
    due = odd_evidence.CLASSES[name][1] if wrong else Verdict.VALID
    found = []
    for seed in range(number()):
        with tempfile.TemporaryDirectory() as folder:
            made = odd_evidence.draw(name, seed, wrong=wrong).write(Path(folder) / "run")
            seal_run(made)
            result = check_run(made)
        if result.verdict is not due:
            found.append(f"seed {seed}: {result.sentence}")
    assert found == []
