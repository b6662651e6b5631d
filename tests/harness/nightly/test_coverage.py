"""A nightly run says what it did not run, and is not green without results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree

import pytest

from harness.nightly import session
from harness.nightly.environment import NightlyEnvironment
from nemesis import wall_clocks
from nemesis.disk import control
from nemesis.formats.schedule import Schedule
from nemesis.links import namespaces
from node.formats.errors import FloodmarkError, UsageError
from tests.support.nightly_fakes import NightlyRuns

GREEN, RED, INCOMPLETE = 0, 1, 2


def junit(store: NightlyRuns, outcome: str) -> dict[str, str]:
    """Return the messages of the cases that have this outcome, by the name of the case."""
    cases = ElementTree.parse(store.store / "junit.xml").iter("testcase")
    found = [(case.get("name", ""), case.find(outcome)) for case in cases]
    return {name: part.get("message", "") for name, part in found if part is not None}


def refuse(
    sentence: str, error: type[FloodmarkError] = FloodmarkError
) -> Callable[[Schedule], None]:
    """Return a start that fails for every storm but the canary."""

    def start(schedule: Schedule) -> None:
        if schedule.name != "canary":
            raise error(sentence)

    return start


def without_clocks() -> str:
    raise UsageError("faults of clocks need libfaketime: install it")


def test_a_kind_of_fault_that_needs_a_missing_tool_is_skipped_once_with_its_reason(
    store: NightlyRuns, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(wall_clocks, "library", without_clocks)
    assert store.nightly(budget_s=3600.0) == GREEN
    nightly = store.last
    clocks = [work for work in nightly.skipped if work.endswith("/clock")]
    assert clocks
    assert set(clocks) == set(nightly.skipped)
    assert clocks == [work for work in junit(store, "skipped") if work.endswith("/clock")]
    assert nightly.problems == []
    assert not [storm for storm in nightly.storms if storm.kinds == "clock"]
    assert "faults of clocks need libfaketime" in capsys.readouterr().out
    assert not [*store.store.glob("*clock*")]


@pytest.mark.parametrize("error", [FloodmarkError, UsageError])
def test_a_nightly_run_in_which_no_storm_starts_is_not_green(
    store: NightlyRuns, capsys: pytest.CaptureFixture[str], error: type[FloodmarkError]
) -> None:
    assert store.nightly(start=refuse("no port is free", error), budget_s=3600.0) == INCOMPLETE
    nightly = store.last
    assert nightly.totals.storms == 0
    assert any("kafka" in sentence for sentence in nightly.uncovered)
    assert "coverage" in junit(store, "failure")
    said = capsys.readouterr().out
    assert "GREEN" not in said
    assert "no port is free" in said


def test_equal_problems_are_one_line_and_a_hopeless_share_is_given_up(store: NightlyRuns) -> None:
    store.nightly(start=refuse("no port is free"), budget_s=1800.0)
    nightly = store.last
    assert nightly.totals.cut_off <= 2 * session.MOST_LOSSES_IN_A_ROW
    assert len(nightly.problems) == 1
    assert nightly.problems[0].endswith("no port is free")
    assert "no port is free" in nightly.skipped["storm"]


def test_a_cell_that_does_not_start_leaves_the_others_their_turn(store: NightlyRuns) -> None:
    def start(schedule: Schedule) -> None:
        if schedule.cluster.protocol == "kip-279":
            raise FloodmarkError("kip-279 does not start")

    assert store.nightly(start=start, budget_s=1800.0) == INCOMPLETE
    nightly = store.last
    assert nightly.totals.storms > 5
    assert [s for s in nightly.uncovered if "kip-279" in s]
    assert not [s for s in nightly.uncovered if "kafka" in s]


@pytest.mark.parametrize("tool", ["FUSE", "Java", "libfaketime", "nft", "strace"])
def test_a_missing_tool_is_named_by_a_green_run(
    store: NightlyRuns, capsys: pytest.CaptureFixture[str], tool: str
) -> None:
    assert store.nightly(missing={tool: "it is not here"}) == GREEN
    assert tool in junit(store, "skipped")
    assert f"not run     {tool}: it is not here" in capsys.readouterr().out


def test_each_missing_tool_is_looked_for_on_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("FLOODMARK_JAVA", "system")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(namespaces, "_SYSTEM_FOLDERS", str(tmp_path))
    monkeypatch.setattr(wall_clocks, "library", without_clocks)
    monkeypatch.setattr(control, "why_impossible", lambda: "no FUSE")
    unused = cast("Any", None)
    found = NightlyEnvironment(tmp_path, tmp_path / "out", unused, unused, spark=False)
    missing = found.missing_tools()
    assert sorted(missing) == ["FUSE", "Java", "libfaketime", "nft", "strace"]
    assert all(missing.values())
