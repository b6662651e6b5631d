"""A nightly run: its jobs, its end, and what it remembers. On a clock that its jobs move."""

from __future__ import annotations

from collections import Counter

import pytest

from harness.formats import nightly_journal
from harness.formats.nightly_journal import Searched
from harness.formats.nightly_run import Bucket
from node.core.protocol import REGISTRY
from tests.support.nightly_fakes import LOST, FakeEnvironment, Killed, NightlyRuns
from tests.support.scripts import Case, beside, proves


def test_a_killed_nightly_run_resumes_and_counts_nothing_twice(store: NightlyRuns) -> None:
    def dies(environment: FakeEnvironment) -> None:
        raise Killed

    with pytest.raises(Killed):
        store.nightly(at={12: dies})
    before = store.journal()
    assert nightly_journal.state_of(before) == "running"
    # It died in the middle of a line.
    with nightly_journal.journal_of(store.store, 1).open("ab") as file:
        file.write(b'{"what":"search","protocol":"kaf')

    assert store.nightly() == 0
    after = store.journal()
    assert after[: len(before)] == before
    keys = Counter(
        row.key for row in after if row.key and not isinstance(row, nightly_journal.Judged)
    )
    assert max(keys.values()) == 1
    numbers = sorted(int(k.split("/")[1]) for k in keys if k.startswith("search/"))
    assert numbers == list(range(len(numbers))), "what was lost was done again, with its seed"
    nightly = store.last
    assert (nightly.number, nightly.state) == (1, "finished")
    searched = [row for row in after if isinstance(row, Searched)]
    assert nightly.totals.schedules == sum(row.schedules for row in searched)
    assert nightly.used_s <= 600 + 3 * 30, "the time before it died counts"


def test_failures_of_protocols_that_may_fail_are_not_red(store: NightlyRuns) -> None:
    storms = {name: "lost" for name, p in REGISTRY.items() if (LOST, "violable") in p.expected}
    # Protocols that should hold have their turn with each kind of fault first.
    nights, found = 0, list[Bucket]()
    while len(found) < 2 and nights < 30:
        nights += 1
        assert store.nightly(storms=storms, budget_s=900.0) in (0, 2)
        assert store.last.red == []
        found = [b for nightly in store.all for b in nightly.buckets]
    assert found
    assert all(bucket.expected and bucket.world == "real" for bucket in found)
    # Two such runs and the canary's stay of each nightly run.
    runs = list(store.store.glob("nightly-*/*/run.json"))
    assert len([r for r in runs if not r.parent.is_symlink()]) <= nights * 2


@pytest.mark.parametrize("case", beside(__file__), ids=lambda case: case.name)
def test_script(case: Case) -> None:
    proves(case)
