"""Brokers that stop, and brokers that all lose data, on real processes (slow)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nemesis.faults import Pause, PowerCut, Restart
from nemesis.formats.schedule import Cluster, Fault, Schedule, Workload
from tests.support.running_harness import events, ran

pytestmark = pytest.mark.nightly


def run(folder: Path, faults: tuple[Fault, ...], **cluster: Any) -> Path:
    """Run faults against three brokers, which must be valid; returns the run folder."""
    schedule = Schedule(
        name="run",
        cluster=Cluster(partitions=1, **cluster),
        faults=faults,
        workload=Workload(seed=1, clients=4, consumers=1, rate=20, duration_ms=10_000),
    )
    (folder / "schedule.json").write_bytes(schedule.to_json())
    where, _ = ran(folder, "run", "--schedule", "schedule.json")
    return where


def test_a_broker_that_is_restarted_hands_over_unless_there_is_no_controller(
    tmp_path: Path,
) -> None:
    folder = run(
        tmp_path,
        (
            Restart(on="n1", at_ms=2000),
            Pause(on="v1", at_ms=5000, for_ms=2500),
            Restart(on="n3", at_ms=5200),
        ),
    )
    leave = [e["broker"] for e in events(folder, "v1", "broker") if e["state"] == "stopping"]
    assert leave[0] == "n1"
    for node in ("n1", "n3"):
        output = (folder / "output" / f"{node}.txt").read_text()
        assert f"{node}/1: stopped after" in output, "in time, by itself"


def test_when_all_lose_data_the_longest_log_leads_and_the_cluster_goes_on(tmp_path: Path) -> None:
    """Every broker loses all it had not synced, and the run owes progress after that."""
    cuts = tuple(
        PowerCut(on=name, at_ms=4000, for_ms=500, keep_percent=0) for name in ("n1", "n2", "n3")
    )
    folder = run(tmp_path, cuts, flush="async", flush_interval_ms=60_000)
    changes = events(folder, "v1", "partition")
    recovered = [at for at, e in enumerate(changes) if e["unclean"]]
    assert recovered, "somebody was elected from the last known"
    before, after = changes[recovered[0] - 1], changes[recovered[0]]
    assert (before["isr"], before["elr"]) == ([], [])
    assert after["leader"] in before["last_known_elr"]
    assert len(before["last_known_elr"]) >= 2
