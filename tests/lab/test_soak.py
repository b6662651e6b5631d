"""A soak says what grows, and leaves no valid run behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from harness.formats.run_info import Phases
from harness.runs.interrupts import Interrupts
from harness.runs.progress import Progress
from tests.lab import soak
from tests.lab.soak import BrokerMonitor, BrokerUse, Growth, StormSample

MB = 1 << 20
HARNESS = "harness: memory after a storm"
FILES = "harness: descriptors after a storm"


def sample(*, rss: int = 100 * MB, fds: int = 20) -> StormSample:
    return StormSample("valid", {HARNESS: rss, FILES: fds, "run folder of a storm": MB}, {})


def grown(samples: list[StormSample]) -> dict[str, Growth]:
    return {each.what: each for each in soak.growth(samples)}


@pytest.mark.parametrize(
    ("samples", "grow"),
    [
        ([sample() for n in range(20)], []),
        ([sample(rss=(50 if n < 3 else 100) * MB) for n in range(20)], []),
        ([sample(rss=100 * MB + n * MB // 10) for n in range(30)], []),
        ([sample(rss=(100 + 2 * n) * MB) for n in range(30)], [HARNESS]),
        ([sample(fds=20 + n) for n in range(30)], [FILES]),
    ],
    ids=["constant", "a warm-up", "slowly", "memory", "descriptors"],
)
def test_what_grows_from_storm_to_storm_is_named(
    samples: list[StormSample], grow: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    found = grown(samples)
    assert [what for what, each in found.items() if not each.is_flat] == grow
    soak.print_growth([*found.values()])
    assert capsys.readouterr().out.count("grows") == len(grow)
    assert grown(samples[: soak.LEAST_STORMS - 1]) == {}, "too few storms say nothing"


@pytest.mark.parametrize(("late_mb", "is_flat"), [(11, True), (20, False)])
def test_a_storm_has_a_middle_and_an_end(tmp_path: Path, late_mb: int, is_flat: bool) -> None:
    monitor = BrokerMonitor(tmp_path)
    phases = Phases(storm_us=100, heal_us=400)
    assert monitor.inside(phases) == {}
    monitor.moments = [BrokerUse(t, t, 2 * t) for t in range(0, 500, 10)]
    assert monitor.inside(phases) == {"memory": (245, 345), "disk": (490, 690)}

    inside = {"memory": (50.0, 50.0), "disk": (10.0 * MB, float(late_mb * MB))}
    uses = grown([sample()._replace(inside=inside) for n in range(10)])
    assert uses["all brokers: disk in a storm"].is_flat is is_flat
    assert uses["all brokers: memory in a storm"].is_flat


@pytest.mark.nightly
def test_a_soak_of_a_storm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "EVERY_S", 0.2)
    request = replace(soak.STORM, seed=1, store=tmp_path, brokers=3, partitions=4, time_limit=4.0)
    with Interrupts() as interrupts, Progress(quiet=True) as progress:
        (one,) = soak.run_soak(request, 1.0, progress, interrupts)
    assert min(v for what, v in one.measures.items() if "processes" not in what) > 0
    assert min(one.inside["memory"]) > MB
    left = [each for each in (tmp_path / "soak").iterdir() if not each.is_symlink()]
    assert len([each for each in left if each.is_dir()]) == (one.verdict != "valid")
