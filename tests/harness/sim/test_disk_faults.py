"""Each fault of disks in the simulated world: it has an effect, the broker reacts as it must, and
the verdict is the promised one."""

from __future__ import annotations

from typing import Any

import pytest

from checker.formats.verdict import Verdict
from harness.sim.run import SimResult, simulate
from nemesis.faults import (
    BitFlip,
    DiskEmptied,
    DiskFull,
    FsyncError,
    LyingFsync,
    OldCopy,
    SlowFsync,
    TornWrite,
)
from nemesis.formats.schedule import Fault
from tests.support.sim_schedules import plan


def run(*faults: Fault, duration_ms: int = 3500, **cluster: Any) -> SimResult:
    return simulate(plan(*faults, duration_ms=duration_ms, **cluster), seed=3, stop_at="never")


def effect(result: SimResult, fault: int = 0) -> Any:
    return next(f.writes for f in result.faults if f.fault == fault and f.action == "effect")


def traced(result: SimResult, event: str) -> list[dict[str, Any]]:
    return [e for e in result.trace if e["event"] == event]


def ends(result: SimResult) -> list[tuple[str, int | None, bool]]:
    return [(e.node, e.code, e.expected) for e in result.exits if e.by == "itself"]


def allowed(result: SimResult) -> set[str]:
    return {a.name for a in result.checked.anomalies if a.allowed} - {"hw-regression"}


@pytest.mark.parametrize(
    "fault",
    [
        FsyncError(on="leader", at_ms=1000, for_ms=800),
        FsyncError(on="leader", at_ms=1000, for_ms=800, written=True),
        DiskFull(on="follower", at_ms=1000, for_ms=800),
        DiskFull(on="leader", at_ms=1000, for_ms=800, limit="map"),
    ],
)
def test_a_broker_whose_disk_fails_acknowledges_nothing_and_ends(fault: Fault) -> None:
    result = run(fault)
    assert result.verdict is Verdict.VALID, result.sentence
    assert result.info.promise.disks_kept
    [(node, code, expected)] = ends(result)
    assert (code, expected) == (74, True)
    assert effect(result) == 1
    [ended_us] = [e.t_us for e in result.exits if e.by == "itself"]
    again = next(
        e for e in traced(result, "started") if e["node"] == node and e["incarnation"] == 2
    )
    acks = [e["t_us"] for e in traced(result, "ack") if e["node"] == node]
    assert not [t_us for t_us in acks if ended_us <= t_us < again["t_us"]]


def test_a_slow_disk_delays_what_leaves() -> None:
    result = run(SlowFsync(on="leader", at_ms=1000, for_ms=1500, delay_ms=400))
    assert result.verdict is Verdict.VALID, result.sentence
    assert effect(result) >= 3
    assert not ends(result)


@pytest.mark.parametrize(
    "fault",
    [
        BitFlip(on="leader", at_ms=1500, for_ms=300, part="payload"),
        BitFlip(on="n3", at_ms=1500, for_ms=300, part="header"),
        BitFlip(on="leader", at_ms=1500, for_ms=300, part="chain"),
        TornWrite(on="leader", at_ms=1500, for_ms=300),
        TornWrite(on="n3", at_ms=1500, for_ms=300, keep_percent=0),
    ],
)
@pytest.mark.parametrize("protocol", ["kafka", "quorum"])
def test_a_damaged_batch_is_named_and_fetched_again(fault: Fault, protocol: str) -> None:
    result = run(fault, protocol=protocol)
    assert result.verdict is Verdict.VALID, result.sentence
    [named] = traced(result, "damaged")
    [repaired] = [e for e in traced(result, "truncated") if e["reason"] == "damaged"]
    assert named["node"] == repaired["node"]
    assert repaired["leo"] == named["offset"]
    assert not allowed(result) - {"offset-hole"}


@pytest.mark.parametrize("protocol", ["kafka", "quorum"])
def test_an_emptied_disk_is_noticed(protocol: str) -> None:
    result = run(DiskEmptied(on="leader", at_ms=1500, for_ms=300), protocol=protocol)
    assert result.verdict is Verdict.VALID, result.sentence
    [named] = traced(result, "damaged")
    assert named["what"] == "the disk is empty, and this is process 2"


@pytest.mark.parametrize("kind", [LyingFsync, OldCopy])
@pytest.mark.parametrize("protocol", ["kafka", "kip-279"])
def test_a_rolled_back_disk_is_outside_the_promise(kind: Any, protocol: str) -> None:
    result = run(kind(on="leader", at_ms=1000, for_ms=800), protocol=protocol)
    assert not result.info.promise.disks_kept
    assert effect(result) > 10
    assert result.verdict is Verdict.VALID, result.sentence
    assert ("vanished" in allowed(result)) is (protocol == "kip-279")


class TestBeyondThePromise:
    """The verdict is valid and says what it allows: never invalid, never silent."""

    def test_the_last_copy(self) -> None:
        result = run(
            BitFlip(on="n1", at_ms=1500, for_ms=300, part="payload"),
            replication_factor=1,
            min_isr=1,
        )
        assert result.verdict is Verdict.NOT_EXERCISED, "nothing is acknowledged any more"
        assert {"no-progress", "corrupt-batch", "vanished"} <= allowed(result)
        assert "more disks lost what they had synced than the promise covers" in result.sentence
        assert traced(result, "damaged")
        served = [e for e in traced(result, "role") if (e["node"], e["role"]) == ("n1", "leader")]
        assert len(served) == 1, "it never leads again"

    def test_all_disks_emptied(self) -> None:
        result = run(DiskEmptied(on="n1,n2,n3", at_ms=1500, for_ms=300))
        assert result.verdict is Verdict.VALID, result.sentence
        assert "vanished" in allowed(result)

    @pytest.mark.parametrize(
        ("fault", "said"),
        [
            (DiskEmptied(on="v1", at_ms=1500, for_ms=300), "the disk was emptied"),
            (BitFlip(on="v1", at_ms=1500, for_ms=300, part="payload"), "is the only voter"),
            (
                BitFlip(
                    on="v1", at_ms=1500, for_ms=300, part="value", key="vote/__cluster_metadata-0"
                ),
                "its checksum does not match",
            ),
        ],
    )
    def test_the_only_voter(self, fault: Fault, said: str) -> None:
        result = run(fault)
        assert result.verdict is Verdict.VALID, result.sentence
        assert set(ends(result)) == {("v1", 74, True)}
        assert said in traced(result, "damaged")[-1]["what"]

    def test_two_of_three_voters(self) -> None:
        faults = [BitFlip(on=v, at_ms=1500, for_ms=300, part="chain") for v in ("v1", "v2")]
        result = run(*faults, voters=3)
        assert not result.info.promise.disks_kept
        assert result.verdict is Verdict.VALID, result.sentence


@pytest.mark.parametrize(
    ("fault", "bug", "protocol", "property_"),
    [
        (
            BitFlip(on="leader", at_ms=1500, for_ms=100, part="payload"),
            *("serve-unchecked", "kafka", "log-and-metadata"),
        ),
        (
            FsyncError(on="leader", at_ms=1500, for_ms=300),
            *("retry-fsync", "quorum", "committed-prefix-agreement"),
        ),
    ],
)
def test_the_bugs_of_disks(fault: Fault, bug: str, protocol: str, property_: str) -> None:
    assert property_ not in run(fault, protocol=protocol).broken
    assert property_ in run(fault, protocol=protocol, bugs=(bug,)).broken
