"""Third-party systems in a nightly run: their share, their buckets, their versions."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from harness.formats.journal import Lost
from harness.formats.nightly_journal import Ran
from harness.formats.nightly_run import SystemStorms, label_of
from harness.nightly import plan
from harness.nightly.requests import NightlyRequest
from harness.nightly.summary import EXIT_GREEN, EXIT_RED
from nemesis.formats import schedule as schedules
from node.formats.errors import UsageError
from reports.nightly_page import index_model
from tests.support import trial_adapters
from tests.support.nightly_fakes import FakeEnvironment, NightlyRuns, nightly_run

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


@pytest.mark.parametrize("drawn", range(6))
def test_a_night_that_goes_on_with_other_systems_credits_each_with_its_own_storms(
    drawn: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sessions of one night, each with some of the systems in an order of its own."""
    rng = random.Random(drawn)
    named = {f"{TRIAL}+speed=fast": "fast", f"{TRIAL}+speed=slow": "slow", f"{SAFE}+speed=fast": ""}
    store, sessions = NightlyRuns(tmp_path / "store"), rng.randint(2, 4)

    def stops(environment: FakeEnvironment) -> None:
        environment._interrupts.asked = True

    for left in reversed(range(sessions)):
        systems = rng.sample(sorted(named), rng.randint(1, len(named)))
        # Each session adds to the budget of the one before it.
        budget_s = 600.0 * (sessions - left)
        stop = {rng.randint(6, 12): stops} if left else {}
        store.nightly(systems=",".join(systems), systems_share=60, at=stop, budget_s=budget_s)
    ran = {plan_key(row.key) for row in rows(store)}
    open_systems = {label_of(name) for name in systems if name not in ran}
    told = " ".join(line for line in store.last.uncovered if "on real processes" in line)
    for name in named:
        assert (f" {label_of(name)}" in f"{told},".replace(",", " ,")) is (
            label_of(name) in open_systems
        )
    numbers: dict[str, list[int]] = {}
    for row in rows(store):
        numbers.setdefault(plan_key(row.key), []).append(int(row.key.rpartition("/")[2]))
    assert all(each == list(range(len(each))) for each in numbers.values()), "none is left out"


def plan_key(key: str) -> str:
    """Return the system that the key of a storm names."""
    return key.partition("/")[2].rpartition("/")[0]


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


def test_a_night_for_one_log_storms_only_that_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = NightlyRuns(tmp_path / "store")
    assert store.nightly(systems_only=f"{TRIAL}+speed=fast") == EXIT_GREEN
    kinds = {row.key.partition("/")[0] for row in store.journal() if row.key}
    assert kinds == {plan.CANARY, plan.SYSTEM}
    assert len(rows(store)) > 3
    said = capsys.readouterr().out
    assert "not covered" not in said
    assert f"{len(rows(store))} valid; fails in 0 of {len(rows(store))} (95 %: 0 to " in said
    assert "schedules" not in said, "nothing is said of work that was not wanted"
    others: tuple[dict[str, Any], ...] = ({"systems": TRIAL}, {"real": False})
    for other in others:
        with pytest.raises(UsageError, match=r"--systems-only and --.* exclude each other"):
            NightlyRequest(systems_only=TRIAL, **other).check()


def test_an_accepted_bucket_makes_no_night_red(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = NightlyRuns(tmp_path / "store")
    asked = {"systems_only": f"{TRIAL}+speed=fast", "storms": {"fast": "lost"}}
    assert store.nightly(**asked) == EXIT_RED
    (bucket,) = store.last.buckets
    known = tmp_path / "accepted.txt"
    known.write_text(f"{bucket.key} loses what it acknowledged, issue 12\n\n")
    assert store.nightly(**asked, accepted=known) == EXIT_GREEN
    (again,) = store.last.buckets
    assert (again.key, again.expected, bucket.expected) == (bucket.key, True, False)
    # It is open no more in a night that does not meet it.
    assert store.nightly(systems_only=f"{TRIAL}+speed=fast", accepted=known) == EXIT_GREEN
    with pytest.raises(UsageError, match=r"missing.txt: cannot be read: there is no such file"):
        store.nightly(**asked, accepted=tmp_path / "missing.txt")
    capsys.readouterr()
