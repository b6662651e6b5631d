"""Groups of systems that are right are never accused, and planted mistakes are found; in each case
the checks say what the slow definitions say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from msgspec.structs import replace

from checker.engine.local import check_run
from checker.formats.anomalies import CATALOGUE, DELIVERY, OF_GROUPS, OWNERSHIP
from checker.formats.verdict import Verdict
from checker.ingest.external_history import run_folder_of
from harness.formats.history import GroupState, Op, encode_numbered
from harness.formats.run_info import GroupPromise
from tests.support.checker import group_definitions
from tests.support.checker.group_definitions import OF_VALUES
from tests.support.checker.group_histories import (
    ACKS,
    LIMIT,
    LIMITED,
    PLANTS,
    POSITIONS,
    coordinator,
    queue,
    states,
)
from tests.support.checker.group_intervals import intervals
from tests.support.checker.group_noise import Noise

SYSTEMS: Final[dict[str, tuple[Callable[..., tuple[list[Op], bool]], GroupPromise]]] = {
    "acks": (queue, ACKS),
    "limited": (partial(queue, limit=LIMIT), LIMITED),
    "cut": (partial(queue, cut=True), replace(ACKS, order="none")),
    "positions": (coordinator, POSITIONS),
    "equal": (partial(intervals, interval=False), POSITIONS),
    "interval": (intervals, POSITIONS),
}
RIGHT: Final = (*SYSTEMS, "states")
SENT: Final = queue(0)[0][:2]
OF_STATES: Final = {"replay-differs", "group-replicas-differ"}
INFORMATION: Final = {"early-redelivery", "stale-position"}
RARE: Final = {"group-stuck"}
"""Not in every few histories that no system wrote."""


def judged_alike(lines: list[Op], promise: GroupPromise, folder: Path) -> tuple[set[str], set[str]]:
    """Return the anomalies of groups, and of values that they got, that the checks and the slow
    definitions find alike, and what is unknown."""
    file = folder / "history.jsonl"
    file.write_bytes(encode_numbered(lines, 0))
    stated: dict[str, Any] = {"groups": msgspec.to_builtins(promise)}
    result = check_run(run_folder_of(file, stated))
    slow, unknown = group_definitions.judge(lines, promise)
    fast = {a.name for a in result.anomalies if a.property in OF_GROUPS or a.name == "group-stuck"}
    assert fast == slow
    values = Counter(a.name for a in result.anomalies for _ in range(a.count))
    due = group_definitions.of_values(lines)
    assert [values[name] for name in OF_VALUES] == [due[name] for name in OF_VALUES]
    of = {"drain": DELIVERY, "polls": DELIVERY, "positions": OWNERSHIP}
    unsure = {of[each.partition(":")[0]] for each in unknown}
    said = {p.property: p.verdict for p in result.properties if p.property in OF_GROUPS}
    broken = {name for name, verdict in said.items() if verdict is Verdict.INVALID}
    assert unsure - broken == {n for n, verdict in said.items() if verdict is Verdict.UNKNOWN}
    return fast | {*due}, unknown


def found(lines: list[Op], promise: GroupPromise, folder: Path) -> set[str]:
    """Return the anomalies of a history of which nothing is unknown."""
    anomalies, unknown = judged_alike(lines, promise, folder)
    assert not unknown
    return anomalies - INFORMATION


def of_states(lines: list[GroupState], folder: Path) -> set[str]:
    """Return the anomalies of states that the checks and the slow definitions find alike."""
    (folder / "states").mkdir(exist_ok=True)
    text = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    (folder / "states/history.jsonl").write_bytes(text)
    (folder / "history.jsonl").write_bytes(encode_numbered(SENT, 0))
    result = check_run(run_folder_of(folder / "history.jsonl", {"groups": {}}))
    fast = {a.name for a in result.anomalies} & OF_STATES
    assert fast == group_definitions.of_states(text)
    return fast


def judged(system: str, seed: int, plant: str, folder: Path) -> tuple[set[str], bool]:
    """Return what is found in a history, and whether what was planted can be seen in it."""
    if system == "states":
        replicas, shown = states(seed, plant)
        return of_states(replicas, folder), shown
    make, promise = SYSTEMS[system]
    lines, shown = make(seed, plant) if plant else make(seed)
    return found(lines, promise, folder), shown


def all_judged_alike(histories: int, folder: Path) -> None:
    """Judge histories that no system wrote; each anomaly is in some of them."""
    every: set[str] = set()
    for seed in range(histories):
        noise = Noise(seed)
        every |= judged_alike(noise.lines, noise.promise, folder)[0]
    planted = {name for plants in PLANTS.values() for name in plants.values()}
    assert every >= (planted | {*OF_VALUES}) - OF_STATES - RARE


def none_accused(system: str, histories: int, folder: Path) -> None:
    accused = [seed for seed in range(histories) if judged(system, seed, "", folder)[0]]
    assert not accused


def planted_found(system: str, plant: str, histories: int, folder: Path) -> None:
    seen, caught = 0, 0
    for seed in range(histories):
        anomalies, shown = judged(system, seed, plant, folder)
        seen += shown
        caught += shown and PLANTS[system][plant] in anomalies
    assert seen >= histories / 8
    assert caught >= 0.95 * seen


def test_every_anomaly_of_groups_is_planted() -> None:
    planted = {anomaly for plants in PLANTS.values() for anomaly in plants.values()}
    named = {k.name for k in CATALOGUE if k.property in OF_GROUPS} | {"group-stuck"}
    assert planted == named - INFORMATION


@pytest.mark.parametrize("system", RIGHT)
def test_a_group_that_is_right_is_not_accused(system: str, tmp_path: Path) -> None:
    none_accused(system, 60, tmp_path)


@pytest.mark.parametrize(("system", "plant"), [(s, p) for s, each in PLANTS.items() for p in each])
def test_a_planted_mistake_is_found(system: str, plant: str, tmp_path: Path) -> None:
    planted_found(system, plant, 5, tmp_path)


def test_histories_of_no_system_are_judged_as_defined(tmp_path: Path) -> None:
    all_judged_alike(150, tmp_path)


@pytest.mark.nightly
def test_many_histories_of_no_system_are_judged_as_defined(tmp_path: Path) -> None:
    all_judged_alike(10_000, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("system", RIGHT)
def test_many_groups_that_are_right_are_not_accused(system: str, tmp_path: Path) -> None:
    none_accused(system, 1_000, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize(("system", "plant"), [(s, p) for s, each in PLANTS.items() for p in each])
def test_many_planted_mistakes_are_found(system: str, plant: str, tmp_path: Path) -> None:
    planted_found(system, plant, 300, tmp_path)
