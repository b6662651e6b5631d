"""Histories that say less than they could: no verdict is better founded than what is left."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from checker.formats.anomalies import CATALOGUE, Knows
from checker.formats.verdict import Verdict
from tests.support.checker.story import Story, against, one
from tests.support.checker.weakened import campaign
from tests.support.paths import ROOT

SAMPLE = 25
"""How many weakened histories the first tier judges; nightly tests judge 2,000."""


def test_a_sample_of_weakened_histories() -> None:
    assert campaign(SAMPLE)[1] == []


@pytest.mark.nightly
def test_many_weakened_histories() -> None:
    tried, wrong = campaign(2_000)
    assert wrong == []
    assert min(tried[f"form {form}"] for form in ("own", "edn", "jsonl")) > 500


def test_the_document_says_what_each_anomaly_must_know() -> None:
    text = (ROOT / "docs" / "checks.md").read_text().partition("| it must say |")[2]
    said: dict[str, set[str]] = {}
    for line in text.partition("\n\n")[0].splitlines()[2:]:
        name, names = line.strip("|").split("|")
        said.setdefault(name.strip(), set()).update(each.strip() for each in names.split(","))
    assert said == {
        known.value: {kind.name for kind in CATALOGUE if known in kind.knows} for known in Knows
    }


# -- one specimen of each class


def test_order_is_that_of_time_and_not_of_numbers(tmp_path: Path) -> None:
    s = Story(capabilities=[])
    s.busy()
    s.final((0, 1_000_000, 12))
    whole = s.check(tmp_path / "rising")
    s.history = [replace(op, op=999 - op.op) for op in s.history]
    s.run["source"] = "own"
    falling = s.check(tmp_path / "falling")
    assert whole.verdict is falling.verdict is Verdict.VALID


def test_an_operation_of_its_own_may_read_uncommitted(tmp_path: Path) -> None:
    s = Story(capabilities=[])
    s.send(10, outcome="fail")
    s.poll((0, 10), start=0)
    s.history[-1] = replace(s.history[-1], isolation="read_uncommitted")
    assert one(s.check(tmp_path), "aborted-read").allowed


def test_a_completion_of_sends_of_another_operation_ends_nothing(tmp_path: Path) -> None:
    """A process whose end is lost, and with it its next invocation."""
    s = Story(capabilities=[])
    s.send(20, at=0)
    s.send(10, at=1)
    del s.history[1:3]
    s.history[1] = replace(s.history[1], op=0)
    result = s.check(tmp_path)
    assert (against(result), result.verdict) == ({}, Verdict.UNKNOWN)
    assert "operation 0 ends with sends that it did not invoke" in result.problems[0]
