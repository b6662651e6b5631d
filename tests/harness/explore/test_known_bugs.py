"""The table of explored bugs: made in parts, kept, and nothing is explored twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.explore import known_bugs
from harness.explore.explorer import ExplorationLimits
from harness.explore.known_bugs import as_markdown, explore_bugs, targets
from harness.formats.finding import SCHEDULE
from harness.search.attempt import attempt
from nemesis.formats.schedule import load
from node.core.bugs import KNOWN_BUGS
from node.formats.errors import UsageError


def test_a_row_is_explored_once_and_its_schedule_fails_in_the_simulated_world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (row,) = explore_bugs(("ack-on-demotion",), ExplorationLimits(), tmp_path)
    assert row.explored.confirmed
    tried = attempt(load(Path(row.explored.folder, SCHEDULE)))
    assert row.breaks in tried.broken

    monkeypatch.setattr(known_bugs, "explore", lambda *_, **__: pytest.fail("explored again"))
    assert explore_bugs(("M17",), ExplorationLimits(), tmp_path) == [row]
    page = as_markdown([row])
    assert "1 of 1 bugs" in page
    assert "| M17 | ack-on-demotion |" in page


def test_a_record_that_is_sent_again_is_so_in_the_schedule(tmp_path: Path) -> None:
    """Followers hear of nothing until the client has lost patience."""
    (row,) = explore_bugs(("I1",), ExplorationLimits(), tmp_path)
    assert row.explored.confirmed
    made = load(Path(row.explored.folder, SCHEDULE))
    assert made.workload.idempotent
    assert [fault.what for fault in made.faults] == ["link", "kill"]


def test_a_row_that_ended_at_a_limit_is_explored_again(tmp_path: Path) -> None:
    (row,) = explore_bugs(("M17",), ExplorationLimits(memory_mb=1), tmp_path)
    assert row.explored.result.outcome == "memory"
    (row,) = explore_bugs(("M17",), ExplorationLimits(), tmp_path)
    assert row.explored.result.outcome == "violation"


def test_a_bug_without_bounds_is_refused() -> None:
    missing = next(bug for bug in KNOWN_BUGS if bug.code not in known_bugs.BOUNDS)
    with pytest.raises(UsageError, match=missing.name):
        targets((missing.name,))


def test_bounds_are_those_of_known_bugs() -> None:
    assert set(known_bugs.BOUNDS) <= {bug.code for bug in KNOWN_BUGS}
