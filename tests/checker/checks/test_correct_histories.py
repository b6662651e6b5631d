"""Histories of a log that works: whatever clients do and whatever form records it, nothing counts.

The generator knows no check. A verdict of unknown needs a reason that docs/checks.md gives."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from checker.engine.local import check_run
from checker.formats.verdict import RunResult, Verdict
from tests.support.checker.agreed import budget
from tests.support.checker.correct_history import History
from tests.support.checker.history_forms import FORMS, written

ONCE_WRONG: Final = (
    ("own", 195),
    ("json", 1032),
    ("edn", 50004),
    ("own", 50122),
    ("tables", 50127),
    ("tables", 90017),
)
"""Forms and seeds of histories that were invalid."""


def judged(history: History, form: str, promise: Mapping[str, Any] | None = None) -> RunResult:
    """Judge a history by the promise of its system, or by another."""
    with tempfile.TemporaryDirectory() as name:
        promise = history.traits.promise() if promise is None else promise
        folder = written(form, Path(name) / "history", history.ops, promise, history.seeks)
        return check_run(folder)


def wrong(history: History, form: str) -> str:
    """Say what is wrong with the verdict on a correct history; "" if nothing is."""
    result = judged(history, form)
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


@pytest.mark.parametrize(("form", "seed"), ONCE_WRONG)
def test_a_history_that_was_invalid_is_not(form: str, seed: int) -> None:
    assert wrong(History(seed, jepsen=form in ("json", "edn")), form) == ""


def lost(history: History) -> bool:
    """Return whether the log lacks a record that was acknowledged."""
    there = {(name, slot.value) for name, one in history.partitions.items() for slot in one.slots}
    acked = (send for op in history.ops if op.type == "ok" for send in op.sends)
    return any((s.partition, s.value + k) not in there for s in acked for k in range(s.count))


@pytest.mark.parametrize("form", FORMS)
def test_a_promise_without_durable_acks_excuses_each_form_of_a_loss(form: str) -> None:
    """The same history is invalid by the strict promise, if anything was lost."""
    fixed: dict[str, Any] = {"dirty": "", "deletes": "", "retries": "", "transactions": False}
    for seed in range(budget().max_examples):
        history = History(seed, jepsen=form in ("json", "edn"), weak="promise", **fixed)
        found = judged(history, form)
        assert found.verdict in (Verdict.VALID, Verdict.NOT_EXERCISED), (seed, found.sentence)
        strict = judged(history, form, {})
        # If a final reader got nothing at all, nothing shows that a record is gone.
        counts = strict.verdict in (Verdict.INVALID, Verdict.UNKNOWN)
        assert counts or not lost(history), (seed, strict.sentence)
