"""Schedules that once found a bug of ours stay here, and find it no more.

Each file in `corpus/` is as the search shrunk it; its expectation names the property that it broke
before the bug was fixed. `corpus.txt` says what each of them was."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from harness.sim.run import simulate
from nemesis.formats.schedule import load
from tests.support.paths import ROOT

CORPUS = ROOT / "tests/corpus"
TOLD = (Path(__file__).parent / "corpus.txt").read_text().split("== ")[1:]
WAS = {name: words.strip() for name, _, words in (part.partition("\n") for part in TOLD)}

BUGS = {
    "a-failed-sync-tried-again": "retry-fsync",
    "damaged-batches-served-unchecked": "serve-unchecked",
}
"""Schedules of which a known bug still breaks the property."""


@pytest.mark.parametrize("name", BUGS)
def test_a_known_bug_of_disks_breaks_it_still(name: str) -> None:
    schedule = load(CORPUS / f"{name}.json")
    cluster = replace(schedule.cluster, bugs=(BUGS[name],))
    result = simulate(replace(schedule, cluster=cluster), seed=schedule.workload.seed)
    assert schedule.expectation.property in result.broken, result.checked.sentence


@pytest.mark.parametrize("name", sorted(path.stem for path in CORPUS.iterdir()))
def test_what_once_broke_a_property_breaks_it_no_more(name: str) -> None:
    assert WAS[name]
    schedule = load(CORPUS / f"{name}.json")
    broken = schedule.expectation.property
    assert broken
    result = simulate(schedule, seed=schedule.workload.seed)
    assert broken not in result.broken, result.checked.sentence
