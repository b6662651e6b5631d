"""The time that blind search needs for known bugs."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.search import known_bugs
from tests.lab import time_to_bug

pytestmark = pytest.mark.nightly

TARGETS = {target.code: target for target in known_bugs.search_targets()}


def test_a_search_without_a_find_uses_its_budget() -> None:
    """The bug M7b is rare, and half a second is little."""
    ended = time_to_bug.time_to_bug(TARGETS["M7b"], "plain", 0, 0.5)
    assert not ended.found
    assert ended.seconds >= 0.5
    assert (ended.is_current(0.5), ended.is_current(60)) == (True, False)


def test_the_journal_saves_searches(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"

    def search(seeds: int, seconds: float) -> list[time_to_bug.SearchTime]:
        return time_to_bug.searched(
            [TARGETS["M19"]], "random", seeds, seconds, jobs=1, journal=journal
        )

    first = search(1, 20)
    assert first[0].found
    assert len(search(2, 30)) == 2
    # A find stays, whatever the budget is.
    both = search(2, 40)
    assert both[0] == first[0]
    assert len(journal.read_bytes().splitlines()) == 2
    (row,) = time_to_bug.rows([TARGETS["M19"]], both)
    assert row.startswith("| M19 | kafka | reads-below-hw | 2 of 2 | ")
