"""Small histories of groups, each with what is right and why (`cases/truth.json`): the checks find
what is there and nothing else, and so do the slow definitions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final

import pytest

from checker.engine.local import check_run
from checker.formats.anomalies import OF_GROUPS
from checker.formats.verdict import RunResult, Verdict
from checker.ingest.external_history import run_folder_of
from harness.formats.history import decode
from harness.formats.run_info import GroupPromise
from tests.support.checker import group_definitions

CASES: Final = Path(__file__).parent / "cases"
TRUTH: Final[dict[str, dict[str, Any]]] = json.loads((CASES / "truth.json").read_text())
OTHERS: Final = {
    *("phantom", "misrouted", "aborted-read"),
    *("divergence", "inconsistent-offsets", "unreadable-record"),
}
"""Anomalies that are not of groups."""


def judge(name: str, folder: Path, **promise: Any) -> RunResult:
    (folder / "states").mkdir(exist_ok=True)
    shutil.copyfile(CASES / f"{name}.jsonl", folder / f"{name}.jsonl")
    if (CASES / "states" / f"{name}.jsonl").exists():
        shutil.copyfile(CASES / "states" / f"{name}.jsonl", folder / "states" / f"{name}.jsonl")
    return check_run(run_folder_of(folder / f"{name}.jsonl", promise))


@pytest.mark.parametrize("name", TRUTH)
def test_a_case_is_judged_as_it_is(tmp_path: Path, name: str) -> None:
    truth = TRUTH[name]
    result = judge(name, tmp_path, **truth["promise"])
    against = {a.name for a in result.anomalies if a.verdict is Verdict.INVALID}
    allowed = {a.name for a in result.anomalies if a.verdict is Verdict.VALID}
    assert (sorted(against), sorted(allowed)) == (truth["anomalies"], truth["allowed"])
    assert str(result.verdict) == truth["verdict"]
    assert not any("failed" in problem for problem in result.problems)


@pytest.mark.parametrize("name", [name for name in TRUTH if not name.startswith("s")])
def test_the_slow_definitions_say_the_same(name: str) -> None:
    truth = TRUTH[name]
    promise = GroupPromise(**truth["promise"]["groups"])
    lines = (CASES / f"{name}.jsonl").read_bytes().splitlines()
    found, unknown = group_definitions.judge([decode(line) for line in lines], promise)
    assert sorted(found) == sorted({*truth["anomalies"], *truth["allowed"]} - OTHERS)
    assert bool(unknown) == bool(truth["unknown"])


@pytest.mark.parametrize("name", [n for n, truth in TRUTH.items() if truth["verdict"] == "invalid"])
def test_without_a_promise_groups_are_not_examined_and_that_is_said(
    tmp_path: Path, name: str
) -> None:
    result = judge(name, tmp_path)
    of_states = {"replay-differs", "group-replicas-differ"}
    assert {a.name for a in result.anomalies if a.verdict is Verdict.INVALID} <= OTHERS | of_states
    if not name.startswith("s"):
        of_groups = [p for p in result.properties if p.property in OF_GROUPS]
        assert {p.verdict for p in of_groups} == {Verdict.NOT_EXAMINED}
        assert any("promise says nothing of groups" in n for n in result.measures["notes"])
