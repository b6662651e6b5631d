"""Histories of a log that works: whatever clients do and whatever form records it, nothing counts.

The generator knows no check. A verdict of unknown needs a reason that docs/checks.md gives."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from checker.engine.local import check_run
from checker.formats.verdict import Verdict
from tests.support.checker.agreed import budget
from tests.support.checker.correct_history import History
from tests.support.checker.history_forms import FORMS, written


def wrong(history: History, form: str) -> str:
    """Say what is wrong with the verdict on a correct history; "" if nothing is."""
    with tempfile.TemporaryDirectory() as name:
        promise = history.traits.promise()
        folder = written(form, Path(name) / "history", history.ops, promise, history.seeks)
        result = check_run(folder)
    acks = sum(op.type == "ok" and bool(op.sends) for op in history.ops)
    match result.verdict:
        case Verdict.VALID:
            return "" if acks >= 10 else "it is too short to prove anything"
        case Verdict.NOT_EXERCISED:
            return "" if acks < 10 else result.sentence
        case Verdict.UNKNOWN:
            # Nothing in a history says where a log begins, or what is the newest of a key.
            return "" if history.traits.deletes and not result.problems else result.sentence
    return result.sentence


@pytest.mark.parametrize("form", FORMS)
def test_a_correct_history_is_never_invalid(form: str) -> None:
    found = []
    for seed in range(budget().max_examples):
        history = History(seed, jepsen=form in ("json", "edn"))
        if said := wrong(history, form):
            found.append(f"seed {seed}: {said}")
    assert found == []
