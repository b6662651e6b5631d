"""Classes of wrong histories, and near misses, in every form: each is distinguished from the other.

Members of each class are made by the hundred by a model that knows
no check (`wrong_histories`)."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from checker.engine.local import check_run
from checker.formats.verdict import Verdict
from tests.support.checker.agreed import budget
from tests.support.checker.history_forms import FORMS, written
from tests.support.checker.wrong_histories import CLASSES, Told, draw

OPEN = (Verdict.VALID, Verdict.UNKNOWN)
EXCUSED = {"retention": OPEN, "subscriber": OPEN, "nothing": (Verdict.UNKNOWN,)}
"""Near misses of which the history does not say enough: where the log begins, or what became of a
record that was never read."""


def mistaken(name: str, told: Told, form: str) -> str:
    """Say what is wrong with the verdict; "" if nothing is."""
    with tempfile.TemporaryDirectory() as folder:
        result = check_run(
            written(form, Path(folder) / "history", told.ops, told.promise, told.seeks)
        )
    due = (Verdict.INVALID,) if told.wrong else EXCUSED.get(name, (Verdict.VALID,))
    return "" if result.verdict in due else f"{result.verdict}: {result.sentence}"


@pytest.mark.parametrize("wrong", [True, False])
@pytest.mark.parametrize("name", CLASSES)
def test_a_class_is_told_from_its_near_miss(name: str, wrong: bool) -> None:
    found = []
    forms = FORMS if CLASSES[name][1] else FORMS[:2]
    for seed in range(budget().max_examples):
        form = forms[seed % len(forms)]
        told = draw(name, seed, wrong=wrong, jepsen=form in ("json", "edn"))
        if said := mistaken(name, told, form):
            found.append(f"{form}, seed {seed}: {said}")
    assert found == []
