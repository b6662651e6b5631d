"""The comparison of engines by their time to known bugs."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

from harness.runs.progress import Progress
from harness.search import bug_search, known_bugs
from harness.search.bug_search import BugSearchRequest, compare_engines
from harness.search.choice_source import RandomChoices
from harness.search.delivery import choose_delivery
from harness.search.generator import draw_schedule
from harness.search.time_to_bug import (
    SearchTime,
    as_markdown,
    compared,
    engines_of,
    time_to_bug,
    version,
)
from harness.sim.run import simulate
from nemesis.formats.schedule import parse
from node.formats.errors import UsageError

TARGETS = {target.code: target for target in known_bugs.search_targets()}


def searched(
    engine: str, seed: int, seconds: float, *, found: bool = True, code: str = "M8"
) -> SearchTime:
    return SearchTime(
        code=code,
        engine=engine,
        seed=seed,
        found=found,
        seconds=seconds,
        schedules=10,
        budget_s=60,
        version=version(engine),
    )


def test_a_search_ends_with_its_find() -> None:
    made = time_to_bug(TARGETS["M19"], "random", 0, 3600)
    assert made.found
    assert made.seconds < 3600
    assert made.schedules < 200
    assert made.is_current(7200)


def test_a_search_without_a_find_uses_its_budget() -> None:
    """The bug M7b is rare, and half a second is little."""
    made = time_to_bug(TARGETS["M7b"], "pct", 0, 0.5)
    assert not made.found
    assert made.seconds >= 0.5
    assert made.is_current(0.5)
    assert not made.is_current(60)


def test_times_are_compared_on_the_seeds_that_all_have() -> None:
    times = [
        *(searched("random", seed, 40) for seed in range(4)),
        *(searched("pct", seed, 10) for seed in range(3)),
        *(searched("random", seed, 60, found=False, code="M5") for seed in range(2)),
        *(searched("pct", seed, 30, code="M5") for seed in range(2)),
        searched("random", 0, 60, found=False, code="R1"),
        searched("pct", 0, 60, found=False, code="R1"),
    ]
    rows, (whole,) = compared(times, ("random", "pct"))
    assert [each.seeds for each in rows["M8"]] == [3, 3]
    assert rows["M8"][1].faster == 4
    # Nothing was found in 120 s: the mean time is at least that.
    assert rows["M5"][1].faster == 4
    assert (whole.rows, whole.faster) == (2, pytest.approx(4))
    assert whole.p < 0.01
    text = as_markdown(times, ("random", "pct"))
    assert "| M5 | random | 0 of 2 | - | over 120 | 1.00 | 1 |" in text
    assert "pct: 4.00 times as fast as random (geometric mean of 2 rows)" in text


@pytest.mark.parametrize("found", [24, 25])
def test_one_engine_gives_a_table_of_its_own(found: int) -> None:
    """A bug is often found when 25 of 30 seeds found it."""
    times = [searched("random", seed, 7, found=seed < found) for seed in range(30)]
    text = as_markdown(times, engines_of("random"))
    assert f"| M8 | random | {found} of 30 | 7 |" in text
    often = found // 25
    line = f"* random: {often} of 1 rows found by at least 5/6 of the seeds (seeds a row: 30).\n"
    assert text.endswith(line)


@pytest.mark.parametrize("text", ["x", "random,x"])
def test_an_unknown_engine_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="'x'"):
        engines_of(text)


def test_what_was_searched_is_not_searched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[str, int, float]] = []

    def search(target: known_bugs.SearchTarget, engine: str, seed: int, seconds: float) -> object:
        made.append((engine, seed, seconds))
        one = searched(engine, seed, 5, found=engine == "pct", code=target.code)
        return msgspec.structs.replace(one, budget_s=seconds)

    monkeypatch.setattr(bug_search, "time_to_bug", search)
    request = BugSearchRequest(only=("M8",), seconds=20, seeds=2, store=tmp_path)
    engines = ("random", "pct")
    progress = Progress(quiet=True)
    assert len(compare_engines(request, engines, progress)) == 4
    assert len(compare_engines(request, engines, progress)) == 4
    assert len(made) == 4
    # What was found stays; a longer budget repeats the others.
    longer = msgspec.structs.replace(request, seconds=40)
    assert len(compare_engines(longer, engines, progress)) == 4
    assert made[4:] == [("random", 0, 40), ("random", 1, 40)]


@pytest.mark.parametrize("protocol", ["kafka", "quorum", "liftbridge"])
def test_late_links_are_part_of_the_schedule(protocol: str) -> None:
    kinds = set()
    for seed in range(6):
        choose = RandomChoices(random.Random(seed))
        drawn = draw_schedule(choose, protocol)
        late = choose_delivery(choose, drawn)
        assert late.faults[: len(drawn.faults)] == drawn.faults
        kinds.add(len(late.faults) - len(drawn.faults))
        read = parse(late.to_pretty_json())
        runs = [simulate(each, seed=seed, stop_at="never") for each in (late, read)]
        assert runs[0].digest == runs[1].digest
        assert not runs[0].violations
    assert len(kinds) > 1
