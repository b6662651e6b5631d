"""Groups of systems that are right are never accused, and planted mistakes are found; in each case
the checks say what the slow definitions say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from checker.engine.local import check_run
from checker.formats.anomalies import OF_GROUPS
from checker.ingest.external_history import run_folder_of
from harness.formats.history import Op, encode_numbered
from harness.formats.run_info import GroupPromise
from tests.support.checker import group_definitions
from tests.support.checker.group_histories import ACKS, PLANTS, POSITIONS, coordinator, queue

SYSTEMS: Final[dict[str, tuple[Callable[..., tuple[list[Op], bool]], GroupPromise]]] = {
    "acks": (queue, ACKS),
    "positions": (coordinator, POSITIONS),
}
INFORMATION: Final = {"early-redelivery", "stale-position"}


def found(lines: list[Op], promise: GroupPromise, folder: Path) -> set[str]:
    """Return the anomalies of groups that the checks and the slow definitions find alike."""
    file = folder / "history.jsonl"
    file.write_bytes(encode_numbered(lines, 0))
    stated: dict[str, Any] = {"groups": msgspec.to_builtins(promise)}
    result = check_run(run_folder_of(file, stated))
    slow, unknown = group_definitions.judge(lines, promise)
    fast = {a.name for a in result.anomalies if a.property in OF_GROUPS or a.name == "group-stuck"}
    assert (fast, unknown) == (slow, set())
    return fast - INFORMATION


def none_accused(system: str, histories: int, folder: Path) -> None:
    make, promise = SYSTEMS[system]
    accused = [seed for seed in range(histories) if found(make(seed)[0], promise, folder)]
    assert not accused


def planted_found(system: str, plant: str, histories: int, folder: Path) -> None:
    make, promise = SYSTEMS[system]
    seen, caught = 0, 0
    for seed in range(histories):
        lines, shown = make(seed, plant)
        anomalies = found(lines, promise, folder)
        seen += shown
        caught += shown and PLANTS[system][plant] in anomalies
    assert seen >= histories / 8
    assert caught >= 0.95 * seen


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_group_that_is_right_is_not_accused(system: str, tmp_path: Path) -> None:
    none_accused(system, 100, tmp_path)


@pytest.mark.parametrize(("system", "plant"), [(s, p) for s, each in PLANTS.items() for p in each])
def test_a_planted_mistake_is_found(system: str, plant: str, tmp_path: Path) -> None:
    planted_found(system, plant, 5, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("system", SYSTEMS)
def test_many_groups_that_are_right_are_not_accused(system: str, tmp_path: Path) -> None:
    none_accused(system, 2_500, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize(("system", "plant"), [(s, p) for s, each in PLANTS.items() for p in each])
def test_many_planted_mistakes_are_found(system: str, plant: str, tmp_path: Path) -> None:
    planted_found(system, plant, 300, tmp_path)
