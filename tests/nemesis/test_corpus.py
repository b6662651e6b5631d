"""Schedules that once found a bug of ours stay here, and find it no more.

Each file in `corpus/` is as the search shrunk it; its expectation names the property that it broke
before the bug was mended. What each of them was is told here.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from harness.sim.run import simulate
from nemesis.formats.schedule import load
from tests.support.paths import ROOT

CORPUS = ROOT / "tests/corpus"
WAS = {
    "a-failed-sync-tried-again": "What the bug retry-fsync (fsyncgate) is found with: a sync "
    "of the leader fails, and the power goes. A broker ends at the first sync that fails.",
    "brokers-stopped-one-by-one": "The simulated cluster stopped its brokers one by one; those who "
    "were left elected a leader meanwhile and appended its record, which looked as if the "
    "replicas had not converged.",
    "committed-and-deleted-in-one-turn": "A leader deleted the head of its log in the turn in "
    "which it committed what was in it. Nobody could look up the batches between, and the "
    "invariant checker took another replica's commit of one of them for another record.",
    "damaged-batches-served-unchecked": "What the bug serve-unchecked is found with: a batch is "
    "torn on a disk, and its broker leads next. A broker checks what its disk gives back.",
    "empty-common-prefix": "KIP-279 by its letter: a leader that knows no epoch as old as the one "
    "asked about says nothing, and replicas whose first records differ keep them. Replicas took "
    "turns at leading, each election clean. `kip-279` has KAFKA-7415's answer since.",
    "late-copies-hold-up-a-link": "Late copies of messages kept their place in the order of the "
    "link, so that each waited for the one before, and the link was busy for seconds after its "
    "rule had gone: a follower seemed not to catch up. Found by the first nightly run.",
    "moved-to-one-broker-that-loses-power": "The partition was moved to a single broker, and that "
    "lost its power. The promise of the run counted MinISR as it was set, not the one replica "
    "there was: it held the loss against the protocol.",
    "power-cut-with-weak-acknowledgements": "The only replica lost unsynced writes in a power cut. "
    "With acks=1 the promise of a run had no word for it that committed records may go then.",
}

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
