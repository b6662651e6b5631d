"""Histories that say less than they could: no verdict is better founded than what is left."""

from __future__ import annotations

import pytest

from checker.formats.anomalies import CATALOGUE, Knows
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
    assert min(tried[f"form {form}"] for form in ("own", "edn", "json")) > 500


def test_the_document_says_what_each_anomaly_must_know() -> None:
    text = (ROOT / "docs" / "checks.md").read_text().partition("| it must say |")[2]
    said: dict[str, set[str]] = {}
    for line in text.partition("\n\n")[0].splitlines()[2:]:
        name, names = line.strip("|").split("|")
        said.setdefault(name.strip(), set()).update(each.strip() for each in names.split(","))
    assert said == {
        known.value: {kind.name for kind in CATALOGUE if known in kind.knows} for known in Knows
    }
