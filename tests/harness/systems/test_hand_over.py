"""Brokers that stop, and brokers that all lose data, on real processes (slow)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nemesis.faults import Pause, PowerCut, Restart
from nemesis.formats.schedule import Cluster, Fault, Schedule, Workload
from tests.support.paths import ROOT

pytestmark = pytest.mark.slow


def run(folder: Path, faults: tuple[Fault, ...], **cluster: Any) -> list[dict[str, Any]]:
    """Run faults against three brokers, which must be valid; returns the controller's trace."""
    schedule = Schedule(
        name="run",
        cluster=Cluster(partitions=1, **cluster),
        faults=faults,
        workload=Workload(seed=1, clients=4, consumers=1, rate=20, duration_ms=10_000),
    )
    (folder / "schedule.json").write_bytes(schedule.to_json())
    words = ["run", "--schedule", "schedule.json", "--no-spark", "--no-report", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "harness.cli", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    result = json.loads(done.stdout)["result"]
    assert result["verdict"] == "valid", result["sentence"]
    lines = (run_folder(folder) / "trace" / "v1.jsonl").read_bytes().splitlines()
    return [json.loads(line) for line in lines]


def run_folder(folder: Path) -> Path:
    return (folder / "store" / "run" / "latest").resolve()


def test_a_broker_that_is_restarted_hands_over_unless_there_is_no_controller(
    tmp_path: Path,
) -> None:
    trace = run(
        tmp_path,
        (
            Restart(on="n1", at_ms=2000),
            Pause(on="v1", at_ms=5000, for_ms=2500),
            Restart(on="n3", at_ms=5200),
        ),
    )
    leave = [e["broker"] for e in trace if e["event"] == "broker" and e["state"] == "stopping"]
    assert leave[0] == "n1"
    for node in ("n1", "n3"):
        output = (run_folder(tmp_path) / "output" / f"{node}.txt").read_text()
        assert f"{node}/1: stopped after" in output, "in time, by itself"


def test_when_all_lose_data_the_longest_log_leads_and_the_cluster_goes_on(tmp_path: Path) -> None:
    """Every broker loses all it had not synced, and the run owes progress after that."""
    cuts = tuple(
        PowerCut(on=name, at_ms=4000, for_ms=500, keep_percent=0) for name in ("n1", "n2", "n3")
    )
    trace = run(tmp_path, cuts, flush="async", flush_interval_ms=60_000)
    changes = [e for e in trace if e["event"] == "partition"]
    recovered = [at for at, e in enumerate(changes) if e["unclean"]]
    assert recovered, "somebody was elected from the last known"
    before, after = changes[recovered[0] - 1], changes[recovered[0]]
    assert (before["isr"], before["elr"]) == ([], [])
    assert after["leader"] in before["last_known_elr"]
    assert len(before["last_known_elr"]) >= 2
