"""A nightly run: its jobs, its end, and what it remembers. On a clock that its jobs move."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from harness.formats import nightly_journal
from harness.formats.journal import SearchedRow, state_of
from tests.support.nightly_fakes import FakeEnvironment, Killed, NightlyRuns
from tests.support.scripts import beside, proving


def test_a_killed_nightly_run_resumes_and_counts_nothing_twice(tmp_path: Path) -> None:
    store = NightlyRuns(tmp_path / "store")

    def dies(environment: FakeEnvironment) -> None:
        raise Killed

    with pytest.raises(Killed):
        store.nightly(at={12: dies})
    before = store.journal()
    assert state_of(before) == "running"
    # It died in the middle of a line.
    with nightly_journal.journal_of(store.store, 1).open("ab") as file:
        file.write(b'{"what":"search","protocol":"kaf')

    assert store.nightly() == 0
    after = store.journal()
    assert after[: len(before)] == before
    keys = Counter(row.key for row in after if row.key)
    assert max(keys.values()) == 1
    numbers = sorted(int(k.split("/")[1]) for k in keys if k.startswith("search/"))
    assert numbers == list(range(len(numbers))), "what was lost was done again, with its seed"
    nightly = store.last
    assert (nightly.number, nightly.state) == (1, "finished")
    searched = [row for row in after if isinstance(row, SearchedRow)]
    assert nightly.totals.schedules == sum(
        row.runs for row in searched if row.key.startswith("search/")
    )
    assert nightly.used_s <= 600 + 3 * 30, "the time before it died counts"


test_script = proving(beside(__file__))
