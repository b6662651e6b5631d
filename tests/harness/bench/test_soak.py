"""A soak says what grows, and leaves no valid run behind."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from harness.bench import soak
from harness.bench.requests import SoakRequest
from harness.bench.soak import BrokerUse, Growth, Inside, Peak, PeakMonitor, StormSample
from harness.formats.run_info import Phases
from harness.runs.interrupts import Interrupts
from harness.runs.progress import Progress
from node.formats.errors import StorageError, UsageError

MB = 1 << 20


def sample(
    number: int, *, rss: int = 100 * MB, broker: int = 30 * MB, fds: int = 20
) -> StormSample:
    return StormSample(
        number=number,
        verdict="valid",
        sentence="",
        ended_s=60.0 * number,
        operations=10,
        peaks={"broker": Peak(broker, fds)},
        run_bytes=MB,
        rss=rss,
        descriptors=8,
        threads=2,
        processes=1,
        store_bytes=0,
    )


def grown(samples: list[StormSample], **bounds: float) -> dict[str, Growth]:
    settings = SoakRequest(store=Path(), most_ratio=1.1, slack_mb=2, slack_descriptors=2)
    for name, bound in bounds.items():
        settings = msgspec.structs.replace(settings, **{name: bound})
    return {each.what: each for each in soak.growth(settings, samples)}


HARNESS = "harness: memory after a storm"


@pytest.mark.parametrize(
    ("samples", "grow"),
    [
        pytest.param([sample(n) for n in range(20)], [], id="constant"),
        pytest.param(
            [sample(n, rss=(50 if n < 3 else 100) * MB) for n in range(20)], [], id="a warm-up"
        ),
        pytest.param([sample(n, rss=100 * MB + n * MB // 10) for n in range(30)], [], id="slowly"),
        pytest.param([sample(n, rss=(100 + n) * MB) for n in range(30)], [HARNESS], id="harness"),
        pytest.param(
            [sample(n, broker=(30 + n) * MB, fds=20 + n) for n in range(30)],
            ["broker: most memory", "broker: most descriptors"],
            id="brokers",
        ),
    ],
)
def test_memory_that_grows_from_storm_to_storm_is_named(
    samples: list[StormSample], grow: list[str]
) -> None:
    found = grown(samples)
    assert found.keys() >= {HARNESS, "broker: most descriptors"}
    assert [what for what, each in found.items() if not each.is_flat] == grow
    assert all(each.is_flat for each in grown(samples, most_ratio=3).values())
    assert grown(samples[: soak.LEAST_STORMS - 1]) == {}, "too few storms say nothing"


@pytest.mark.parametrize(("late_mb", "is_flat"), [(12, True), (20, False)])
def test_a_storm_has_a_middle_and_an_end(tmp_path: Path, late_mb: int, is_flat: bool) -> None:
    monitor = PeakMonitor(tmp_path)
    phases = Phases(storm_us=100, heal_us=400)
    assert monitor.inside(phases) == Inside()
    monitor.moments = [BrokerUse(t, t, 2 * t) for t in range(0, 500, 10)]
    found = monitor.inside(phases)
    assert (found.rss_middle, found.rss_late) == (245, 345)
    assert (found.disk_middle, found.disk_late) == (490, 690)

    inside = Inside(rss_middle=50, rss_late=50, disk_middle=10 * MB, disk_late=late_mb * MB)
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


def test_operations_and_deletions_are_counted(tmp_path: Path) -> None:
    assert soak.operations_in(tmp_path) == 0
    (tmp_path / "history.jsonl").write_text("{}\n" * 6)
    assert soak.operations_in(tmp_path) == 3
    traces = tmp_path / "trace"
    traces.mkdir()
    (traces / "n1.jsonl").write_text(
        '{"event":"deleted","from_start":2,"start":7}\n{"event":"append","base_offset":7}\n'
        '{"event":"refused","reason":"deleted"}\n'
    )
    (traces / "n2.jsonl").write_text('{"event":"deleted","from_start":5,"start":0}\n')
    assert soak.deletions_in(traces) == (2, 5)


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
    too_short = msgspec.structs.replace(settings, budget_s=6)
    with pytest.raises(UsageError, match="--budget"):
        soak.run_soak(too_short, Progress(quiet=True), interrupts)
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
        samples=lines,
        store=tmp_path / "store",
        budget_s=12,
        storm_s=3,
        brokers=3,
        partitions=4,
        seed=3,
    )
    with Interrupts() as interrupts, Progress(quiet=True) as progress:
        soaked = soak.run_soak(settings, progress, interrupts)
    assert soaked.storms == lines.read_bytes().count(b"\n") >= 1
    one = msgspec.json.decode(lines.read_bytes().splitlines()[0], type=StormSample)
    assert one.peaks.keys() >= {"harness", "broker", "voter", "hub", "clients"}
    assert all(peak.rss > MB and peak.descriptors > 3 for peak in one.peaks.values())
    assert min(one.descriptors, one.threads, one.run_bytes, one.operations) > 0
    left = [each for each in (tmp_path / "store" / "soak").iterdir() if not each.is_symlink()]
    assert len([each for each in left if each.is_dir()]) == soaked.storms - soaked.verdicts.get(
        "valid", 0
    )
