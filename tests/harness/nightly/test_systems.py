"""Third-party systems in a nightly run: their share, their buckets, their versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.formats.journal import Lost
from harness.formats.nightly_journal import Ran
from harness.formats.nightly_run import SystemStorms
from harness.nightly import plan
from nemesis.formats import schedule as schedules
from node.formats.errors import UsageError
from reports.nightly_page import index_model
from tests.support import trial_adapters
from tests.support.nightly_fakes import NightlyRuns, nightly_run

TRIAL = f"{trial_adapters.__name__}:Trial"
SAFE = f"{trial_adapters.__name__}:SafeTrial"


def rows(store: NightlyRuns) -> list[Ran]:
    return [row for row in store.journal() if isinstance(row, Ran) and row.why == plan.SYSTEM]


def test_all_versions_get_the_same_storms(tmp_path: Path) -> None:
    store = NightlyRuns(tmp_path / "store")
    kept: dict[str, dict[str, str]] = {}

    store.nightly(
        storms={"fast": "lost", "slow": "lost"},
        systems=f"{TRIAL}+speed=fast,{TRIAL}+speed=slow",
        systems_share=60,
    )
    for row in rows(store):
        _, at, number = row.key.split("/")
        folder = store.store / row.kept
        if folder.is_dir():
            kept.setdefault(number, {})[at] = schedules.load(folder / "schedule.json").digest()
    pairs = [digests for digests in kept.values() if len(digests) == 2]
    assert pairs
    assert all(len(set(digests.values())) == 1 for digests in pairs)


def test_a_version_without_answer_costs_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = NightlyRuns(tmp_path / "store")
    asked: list[int] = []

    def version(self: trial_adapters.Trial) -> str:
        asked.append(len(asked))
        if len(asked) % 2:
            return "1.0"
        raise UsageError("the server does not answer")

    monkeypatch.setattr(trial_adapters.Trial, "version", version)
    store.nightly(systems=f"{TRIAL}+speed=fast", systems_share=60)
    lost = [row for row in store.journal() if isinstance(row, Lost)]
    assert {row.sentence for row in lost} == {"the server does not answer"}
    assert store.environment is not None
    of_systems = [key for key in store.environment.made if key.startswith(f"{plan.SYSTEM}/")]
    assert len(rows(store)) == len(of_systems) > 0


def version(number: str, runs: int, **buckets: int) -> SystemStorms:
    return SystemStorms(system="nats", version=number, runs=runs, buckets=buckets)


def test_versions_are_compared_over_all_nightly_runs() -> None:
    stormed = (
        [version("2.15.1", 3, lost=1), version("2.9.10", 2, lost=1)],
        [version("2.15.1", 1, stuck=2), version("2.12.1", 4, lost=1, apart=1)],
    )
    nights = [nightly_run(number, systems=systems) for number, systems in enumerate(stormed, 1)]
    first, second = index_model.versions_compared(nights)
    assert (first.older.version, first.newer.version) == ("2.9.10", "2.12.1")
    assert (second.older.version, second.newer.version) == ("2.12.1", "2.15.1")
    assert second.words == (
        "nats: 2.12.1 (4 storms) to 2.15.1 (4 storms): gone: apart (1 of 4); "
        "new: stuck (2 of 4); in both: lost (1 of 4, then 1 of 4)"
    )


def test_systems_are_written_with_their_settings() -> None:
    first, second = plan.systems_of(f"{TRIAL}, {SAFE}+sync=always+speed=slow")
    assert (first.system, first.settings) == (TRIAL, {})
    assert (second.system, second.settings) == (SAFE, {"sync": "always", "speed": "slow"})
