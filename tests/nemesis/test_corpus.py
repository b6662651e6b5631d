"""Schedules that once found a bug of ours stay here, and find it no more.

Each file in `corpus/` is as the search shrunk it; its expectation names the property that it broke
before the bug was mended. What each of them was is told here.
"""

from __future__ import annotations

import pytest

from harness.sim.run import simulate
from nemesis.formats.schedule import load
from tests.support.paths import ROOT

CORPUS = ROOT / "tests/corpus"
WAS = {
    "brokers-stopped-one-by-one": "The simulated cluster stopped its brokers one by one; those who "
    "were left elected a leader meanwhile and appended its record, which looked as if the "
    "replicas had not converged.",
    "empty-common-prefix": "KIP-279 by its letter: a leader that knows no epoch as old as the one "
    "asked about says nothing, and replicas whose first records differ keep them. Replicas took "
    "turns at leading, each election clean. `kip-279` has KAFKA-7415's answer since.",
    "late-copies-hold-up-a-link": "Late copies of messages kept their place in the order of the "
    "link, so that each waited for the one before, and the link was busy for seconds after its "
    "rule had gone: a follower seemed not to catch up. Found by the first nightly run.",
    "power-cut-with-weak-acknowledgements": "The only replica lost unsynced writes in a power cut. "
    "With acks=1 the promise of a run had no word for it that committed records may go then.",
}


@pytest.mark.parametrize("name", sorted(path.stem for path in CORPUS.iterdir()))
def test_what_once_broke_a_property_breaks_it_no_more(name: str) -> None:
    assert WAS[name]
    schedule = load(CORPUS / f"{name}.json")
    broken = schedule.expectation.property
    assert broken
    result = simulate(schedule, seed=schedule.workload.seed)
    assert broken not in result.broken, result.checked.sentence
