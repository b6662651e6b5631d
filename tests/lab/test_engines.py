"""The comparison of engines by their time to known bugs."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.search import known_bugs
from node.formats.errors import UsageError
from tests.lab import engines
from tests.lab.engines import SearchTime, as_markdown, compared, engines_of, time_to_bug

pytestmark = pytest.mark.nightly

TARGETS = {target.code: target for target in known_bugs.search_targets()}


def made(
    engine: str, seed: int, seconds: float, *, found: bool = True, code: str = "M8"
) -> SearchTime:
    return SearchTime(
        code=code, engine=engine, seed=seed, found=found, seconds=seconds, schedules=10, budget_s=60
    )


def test_a_search_ends_with_its_find() -> None:
    ended = time_to_bug(TARGETS["M19"], "random", 0, 3600)
    assert ended.found
    assert ended.seconds < 3600
    assert ended.is_current(7200)


def test_a_search_without_a_find_uses_its_budget() -> None:
    """The bug M7b is rare, and half a second is little."""
    ended = time_to_bug(TARGETS["M7b"], "plain", 0, 0.5)
    assert not ended.found
    assert ended.seconds >= 0.5
    assert ended.is_current(0.5)
    assert not ended.is_current(60)


def test_times_are_compared_on_the_seeds_that_all_engines_have() -> None:
    times = [
        *(made("drawn", seed, 40) for seed in range(4)),
        *(made("random", seed, 10) for seed in range(3)),
        *(made("drawn", seed, 60, found=False, code="M5") for seed in range(2)),
        *(made("random", seed, 30, code="M5") for seed in range(2)),
        made("drawn", 0, 60, found=False, code="R1"),
        made("random", 0, 60, found=False, code="R1"),
    ]
    rows, (whole,) = compared(times, ("drawn", "random"))
    assert [each.seeds for each in rows["M8"]] == [3, 3]
    assert rows["M8"][1].faster == 4
    # Nothing was found in 120 s: the mean time is at least that.
    assert rows["M5"][1].faster == 4
    assert (whole.rows, whole.faster) == (2, pytest.approx(4))
    assert whole.p < 0.01
    text = as_markdown(times, ("drawn", "random"))
    assert "| M5 | drawn | 0 of 2 | - | over 120 | 1.00 | 1 |" in text
    assert "random: 4.00 times as fast as drawn (geometric mean of 2 rows)" in text


@pytest.mark.parametrize("found", [24, 25])
def test_a_bug_is_often_found_when_25_of_30_seeds_find_it(found: int) -> None:
    times = [made("random", seed, 7, found=seed < found) for seed in range(30)]
    text = as_markdown(times, engines_of("random"))
    assert f"| M8 | random | {found} of 30 | 7 |" in text
    assert f"* random: {found // 25} of 1 rows found by at least 5/6 of the seeds" in text


@pytest.mark.parametrize("text", ["guided", "random,guided"])
def test_an_unknown_engine_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"'guided' .known: random, drawn, plain"):
        engines_of(text)


def test_the_journal_saves_searches(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"

    def search(seeds: int, seconds: float) -> list[SearchTime]:
        return engines.searched(
            [TARGETS["M19"]], ("random",), seeds, seconds, jobs=1, journal=journal
        )

    first = search(1, 20)
    assert first[0].found
    assert len(search(2, 30)) == 2
    # A find stays, whatever the budget is.
    assert search(2, 40)[0] == first[0]
    assert len(journal.read_bytes().splitlines()) == 2
