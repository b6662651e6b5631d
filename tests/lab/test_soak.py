"""A soak says what grows, and leaves no valid run behind."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from harness.formats.run_info import Phases
from harness.runs.interrupts import Interrupts
from harness.runs.progress import Progress
from node.formats.errors import StorageError
from tests.lab import soak
from tests.lab.soak import BrokerUse, Growth, PeakMonitor, SoakRequest, StormSample

MB = 1 << 20
HARNESS = "harness: memory after a storm"
BROKER = "broker: most memory"
FILES = "broker: most descriptors"


def sample(
    number: int, *, rss: int = 100 * MB, broker: int = 30 * MB, fds: int = 20
) -> StormSample:
    return StormSample(
        number=number,
        verdict="valid",
        ended_s=60.0 * number,
        measures={
            HARNESS: rss,
            "harness: descriptors after a storm": 8,
            "run folder of a storm": MB,
            BROKER: broker,
            FILES: fds,
        },
    )


def grown(samples: list[StormSample]) -> dict[str, Growth]:
    return {each.what: each for each in soak.growth(samples)}


@pytest.mark.parametrize(
    ("samples", "grow"),
    [
        ([sample(n) for n in range(20)], []),
        ([sample(n, rss=(50 if n < 3 else 100) * MB) for n in range(20)], []),
        ([sample(n, rss=100 * MB + n * MB // 10) for n in range(30)], []),
        ([sample(n, rss=(100 + 2 * n) * MB) for n in range(30)], [HARNESS]),
        ([sample(n, broker=(30 + n) * MB, fds=20 + n) for n in range(30)], [BROKER, FILES]),
    ],
    ids=["constant", "a warm-up", "slowly", "harness", "brokers"],
)
def test_memory_that_grows_from_storm_to_storm_is_named(
    samples: list[StormSample], grow: list[str]
) -> None:
    found = grown(samples)
    assert [what for what, each in found.items() if not each.is_flat] == grow
    assert grown(samples[: soak.LEAST_STORMS - 1]) == {}, "too few storms say nothing"


@pytest.mark.parametrize(("late_mb", "is_flat"), [(11, True), (20, False)])
def test_a_storm_has_a_middle_and_an_end(tmp_path: Path, late_mb: int, is_flat: bool) -> None:
    monitor = PeakMonitor(tmp_path)
    phases = Phases(storm_us=100, heal_us=400)
    assert monitor.inside(phases) == {}
    monitor.moments = [BrokerUse(t, t, 2 * t) for t in range(0, 500, 10)]
    assert monitor.inside(phases) == {"memory": (245, 345), "disk": (490, 690)}

    inside = {"memory": (50.0, 50.0), "disk": (10.0 * MB, float(late_mb * MB))}
    samples = [
        msgspec.structs.replace(sample(n), inside=inside, deletions=n, deleted_records=7)
        for n in range(4, 14)
    ]
    uses = grown(samples)
    assert uses["all brokers: disk in a storm"].is_flat is is_flat
    assert uses["all brokers: memory in a storm"].is_flat
    told = soak.table(soak.summed_up(SoakRequest(store=Path()), samples))
    assert "log heads deleted in a storm: 4 at least, 8 in the middle; 70 records in all" in told
    assert "deleted" not in soak.table(soak.summed_up(SoakRequest(store=Path()), [sample(1)]))


def test_deletions_are_counted(tmp_path: Path) -> None:
    (tmp_path / "n1.jsonl").write_text(
        '{"event":"deleted","from_start":2,"start":7}\n{"event":"append","base_offset":7}\n'
        '{"event":"refused","reason":"deleted"}\n'
    )
    (tmp_path / "n2.jsonl").write_text('{"event":"deleted","from_start":5,"start":0}\n')
    assert soak.deletions_in(tmp_path) == (2, 5)


@pytest.mark.parametrize("fails", [1, soak.MOST_UNSTARTED])
def test_a_cluster_that_does_not_start_is_not_the_end(
    fails: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupts, asked = Interrupts(), []

    def one_storm(settings: SoakRequest, number: int, *_: object) -> StormSample:
        asked.append(number)
        if number < fails:
            raise StorageError("no broker is there")
        interrupts.asked = True
        return sample(number)

    monkeypatch.setattr(soak, "one_storm", one_storm)
    settings = SoakRequest(store=Path(), budget_s=600, storm_s=10)
    if fails == soak.MOST_UNSTARTED:
        with pytest.raises(StorageError):
            soak.run_soak(settings, Progress(quiet=True), interrupts)
        return
    soaked = soak.run_soak(settings, Progress(quiet=True), interrupts)
    assert (soaked.storms, soaked.unstarted, asked) == (1, 1, [0, 1])
    assert "; 1 more did not start" in soak.table(soaked)


@pytest.mark.nightly
def test_a_soak_of_two_storms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "EVERY_S", 0.2)
    lines = tmp_path / "samples.jsonl"
    settings = SoakRequest(
        samples=lines, store=tmp_path / "store", budget_s=12, storm_s=3, brokers=3, partitions=4
    )
    with Interrupts() as interrupts, Progress(quiet=True) as progress:
        soaked = soak.run_soak(settings, progress, interrupts)
    assert soaked.storms == lines.read_bytes().count(b"\n") >= 1
    one = msgspec.json.decode(lines.read_bytes().splitlines()[0], type=StormSample)
    for kind in ("harness", "broker", "voter", "hub", "clients"):
        assert one.measures[f"{kind}: most memory"] > MB
        assert one.measures[f"{kind}: most descriptors"] > 3
    assert min(v for what, v in one.measures.items() if "processes" not in what) > 0
    left = [each for each in (tmp_path / "store" / "soak").iterdir() if not each.is_symlink()]
    failed = soaked.storms - soaked.verdicts.get("valid", 0)
    assert len([each for each in left if each.is_dir()]) == failed
