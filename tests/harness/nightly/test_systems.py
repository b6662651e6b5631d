"""Third-party systems in a nightly run: their share, their buckets, their versions."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from harness.formats.nightly_journal import Judged, Lost, Ran
from harness.formats.nightly_run import SystemStorms
from harness.nightly import plan
from harness.nightly.verdicts import KEPT_EXPECTED
from harness.search.real.storms import StormSubject
from nemesis.formats import schedule as schedules
from node.formats.errors import UsageError
from reports.nightly_page import index_model
from tests.support import trial_adapters
from tests.support.nightly_fakes import LOST, NightlyRuns, nightly_run

TRIAL = f"{trial_adapters.__name__}:Trial"
SAFE = f"{trial_adapters.__name__}:SafeTrial"


def subject(speed: str, system: str = TRIAL, **settings: str) -> StormSubject:
    """Return a system for storms; the fake environment takes `speed` for a protocol."""
    return StormSubject(system=system, settings={"speed": speed, **settings})


def rows(store: NightlyRuns) -> list[Ran]:
    return [row for row in store.journal() if isinstance(row, Ran) and row.why == plan.SYSTEM]


def test_systems_have_a_share_and_alternate(
    store: NightlyRuns, capsys: pytest.CaptureFixture[str]
) -> None:
    two = (subject("fast"), subject("slow"))
    assert store.nightly(systems=two, systems_share=40, budget_s=900.0) == 0
    (nightly,) = store.all
    assert nightly.spent[plan.SYSTEM] >= 0.4 * 900 * 0.4
    assert nightly.shares[plan.SYSTEM] == 40
    assert sum(nightly.shares.values()) == pytest.approx(100)
    counts = {one.name: one.runs for one in nightly.systems}
    assert counts.keys() == {"Trial 1.0 speed=fast", "Trial 1.0 speed=slow"}
    assert max(counts.values()) - min(counts.values()) <= 1
    said = capsys.readouterr().out
    assert f"system      Trial 1.0 speed=fast: {counts['Trial 1.0 speed=fast']} storms: " in said


def test_all_versions_get_the_same_storms(store: NightlyRuns) -> None:
    kept: dict[str, dict[str, str]] = {}

    store.nightly(
        storms={"fast": "lost", "slow": "lost"},
        systems=(subject("fast"), subject("slow")),
        systems_share=60,
    )
    for row in rows(store):
        _, at, number = row.key.split("/")
        folder = store.store / row.folder
        if folder.is_dir():
            kept.setdefault(number, {})[at] = schedules.load(folder / "schedule.json").digest()
    pairs = [digests for digests in kept.values() if len(digests) == 2]
    assert pairs
    assert all(len(set(digests.values())) == 1 for digests in pairs)


def test_a_version_without_answer_costs_no_run(
    store: NightlyRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def version(self: trial_adapters.Trial) -> str:
        asked.append(len(asked))
        if len(asked) % 2:
            return "1.0"
        raise UsageError("the server does not answer")

    monkeypatch.setattr(trial_adapters.Trial, "version", version)
    store.nightly(systems=(subject("fast"),), systems_share=60)
    lost = [row for row in store.journal() if isinstance(row, Lost)]
    assert {row.sentence for row in lost} == {"the server does not answer"}
    assert store.environment is not None
    of_systems = [folder for folder in store.environment.made if "trial" in folder.parent.name]
    assert len(rows(store)) == len(of_systems) > 0


@pytest.mark.parametrize(
    ("system", "settings", "expected"),
    [(TRIAL, {}, False), (SAFE, {"sync": "never"}, True), (SAFE, {"sync": "always"}, False)],
    ids=["declares no safe configuration", "unsafe", "safe"],
)
def test_a_failure_is_filed_under_the_system_and_its_version(
    store: NightlyRuns,
    capsys: pytest.CaptureFixture[str],
    system: str,
    settings: dict[str, str],
    expected: bool,
) -> None:
    two = (subject("fast", system, **settings), subject("slow", system, **settings))
    code = store.nightly(storms={"slow": "lost"}, systems=two, systems_share=60)
    (nightly,) = store.all
    (bucket,) = [b for b in nightly.buckets if "Trial" in b.protocol]
    assert "1.0 speed=slow" in bucket.protocol
    assert (bucket.world, bucket.name, bucket.expected) == ("real", f"{LOST}: lost", expected)
    assert (code == 1) is not expected
    failed = next(one for one in nightly.systems if "speed=slow" in one.given)
    assert failed.buckets == {bucket.name: failed.runs}
    assert "Other systems" in store.index
    assert "speed=slow" in store.index
    assert (f"{bucket.protocol} broke" in capsys.readouterr().out) is not expected


def test_each_version_keeps_failing_runs_that_can_be_run_again(store: NightlyRuns) -> None:
    two = [subject(speed, SAFE, sync="never") for speed in ("fast", "slow")]
    store.nightly(storms={"fast": "lost", "slow": "lost"}, systems=tuple(two), systems_share=60)
    (nightly,) = store.all
    found = {b.protocol: b for b in nightly.buckets if b.protocol.startswith("SafeTrial")}
    assert len(found) == 2
    for speed in ("fast", "slow"):
        bucket = next(b for label, b in found.items() if speed in label)
        kept = Path(bucket.schedule).parent
        assert (store.store / kept).is_dir()
        words = shlex.split(bucket.replay)
        assert words[:4] == ["floodmark", "run", "--system", SAFE]
        assert words[-2:] == ["--schedule", str(kept)]
        assert f"speed={speed}" in words
    assert len({b.schedule for b in found.values()}) == 2
    kept_runs = [
        row.kept for row in store.journal() if isinstance(row, Judged) and "safe" in row.kept
    ]
    assert len(kept_runs) == 2 * KEPT_EXPECTED


def version(number: str, runs: int, **buckets: int) -> SystemStorms:
    return SystemStorms(system="nats", version=number, runs=runs, buckets=buckets)


def test_versions_are_compared_over_all_nightly_runs() -> None:
    stormed = (
        [version("2.15.1", 3, lost=1), version("2.9.10", 2, lost=1)],
        [version("2.15.1", 1, stuck=2), version("2.12.1", 4, lost=1, apart=1)],
    )
    nights = [nightly_run(number, systems=systems) for number, systems in enumerate(stormed, 1)]
    first, second = index_model.versions_compared(nights)
    assert (first.older, first.newer, first.both) == ("2.9.10", "2.12.1", ("lost",))
    assert (second.older, second.newer, second.runs) == ("2.12.1", "2.15.1", (4, 4))
    assert (second.went, second.came, second.both) == (("apart",), ("stuck",), ("lost",))
    assert second.words == (
        "nats: 2.12.1 (4 storms) to 2.15.1 (4 storms): gone: apart (1 of 4); "
        "new: stuck (2 of 4); in both: lost (1 of 4, then 1 of 4)"
    )


def test_systems_are_written_with_their_settings() -> None:
    first, second = plan.systems_of(f"{TRIAL}, {SAFE}+sync=always+speed=slow")
    assert (first.system, first.settings) == (TRIAL, {})
    assert (second.system, second.settings) == (SAFE, {"sync": "always", "speed": "slow"})
    for text, sentence in (
        ("floodmark", "stormed anyway"),
        ("nosuch", "unknown system 'nosuch'"),
        (f"{TRIAL}+colour=red", "has no setting 'colour'"),
        (f"{TRIAL}+colour", "must be written name=value"),
        (" , ", "names no system"),
    ):
        with pytest.raises(UsageError, match=sentence):
            plan.systems_of(text)
