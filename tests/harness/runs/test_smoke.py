"""A smoke of the main job: one short storm on real processes for each verdict that matters.

Everything else that starts processes is in the second tier."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nemesis.faults import PowerCut
from nemesis.formats.schedule import After, Cluster, Schedule, Timings, Workload
from tests.support.command import exit_code
from tests.support.patience import brief, patient

QUIET = "--no-spark --no-report --quiet --json"
SHORT = "--partitions 1 --faults none --time-limit 1 --seed 1 --clients 1 --consumers 1 --rate 20"
EVERY_BROKER = PowerCut(on="n1,n2,n3", after=After(event="ack", nth=10), for_ms=100, keep_percent=0)
SCHEDULE = Schedule(
    cluster=Cluster(partitions=1, timings=Timings(heartbeat_ms=100, session_ms=700, lag_ms=500)),
    workload=Workload(
        seed=1, clients=2, consumers=1, rate=40, batch=1, timeout_ms=500, duration_ms=1500
    ),
    faults=(EVERY_BROKER,),
)


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Run in a folder of its own, and let no clock decide."""
    monkeypatch.chdir(tmp_path)
    brief(monkeypatch)
    patient(monkeypatch)


def judged(words: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Return what the command prints about one run."""
    exit_code(["run", *words.split(), *QUIET.split()])
    result: dict[str, Any] = json.loads(capsys.readouterr().out)["result"]
    return result


@pytest.mark.parametrize(
    ("bug", "verdict"), [("", "valid"), ("--bug no-fsync-before-ack", "invalid")]
)
def test_brokers_that_lose_their_power_are_valid_unless_a_bug_skips_the_sync(
    capsys: pytest.CaptureFixture[str], bug: str, verdict: str
) -> None:
    Path("schedule.json").write_bytes(SCHEDULE.to_json())
    result = judged(f"--schedule schedule.json {bug}", capsys)
    assert result["verdict"] == verdict, result["sentence"]
    broken = {each["property"] for each in result["properties"] if each["verdict"] == "invalid"}
    assert ("no-lost-acknowledged-write" in broken) == (verdict == "invalid")


@pytest.mark.integration
@pytest.mark.needs("nats")
def test_a_server_from_a_wheel_is_valid(capsys: pytest.CaptureFixture[str]) -> None:
    result = judged(f"--system nats --set sync=always {SHORT}", capsys)
    assert result["verdict"] == "valid", result["sentence"]
