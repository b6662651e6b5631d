"""Storms on real servers of other people's systems, which wheels bring."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.cli.main import main
from harness.systems.external import guardian
from nemesis.formats.schedule import Cluster, Schedule, Workload
from nemesis.links import namespaces
from node.formats.errors import UsageError
from tests.support.paths import ROOT
from tests.support.running_harness import (
    acknowledged,
    descendants,
    lives,
    problems,
    start,
    wait_until,
)
from tests.support.waiting import until

OUTPUT = "--no-spark --no-report --quiet --json"
KERNEL = "--partitions 1 --faults cut,kill --time-limit 12 --seed 1 --clients 3 --consumers 1"
STORM = "--partitions 1 --faults kill --time-limit 6 --seed 1 --clients 3 --consumers 1"


@pytest.mark.parametrize(
    ("system", "settings", "version"),
    [
        ("nats", {"sync": "always"}, "2."),
        ("redis", {"wait": "2", "fsync": "always"}, "6."),
        ("pysyncobj", {"files": "dump", "compact": "5000"}, "0.3."),
        pytest.param(
            "kafka",
            {"acks": "all", "min_isr": "2", "unclean": "false", "home": ""},
            "0.9.0.1",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_is_acknowledged_outlives_a_kill(
    system: str,
    settings: dict[str, str],
    version: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    given = " ".join(f"--set {name}={value}" for name, value in settings.items())
    with pytest.raises(SystemExit):
        main(f"run --system {system} {given} {STORM} {OUTPUT}".split())
    told = json.loads(capsys.readouterr().out)
    broken = [p["property"] for p in told["result"]["properties"] if p["verdict"] == "invalid"]
    info = json.loads((Path(told["path"]) / "run.json").read_text())
    assert (broken, problems(info)) == ([], []), told["result"]["sentence"]
    assert info["system"]["version"].startswith(version)
    assert info["system"]["settings"] == settings
    acknowledged = (
        (Path(told["path"]) / "history.jsonl").read_text().count('"type":"ok","f":"send"')
    )
    logs = [
        sum(json.loads(line)["count"] for line in file.open())
        for file in (Path(told["path"]) / "logs").glob("*.jsonl")
    ]
    # The probe aimed, the log of each server was read, and all of them have all of it.
    assert len(logs) == 3
    assert acknowledged > 0
    assert min(logs) >= acknowledged


def why_not() -> str:
    """Why there can be no network namespaces here."""
    try:
        namespaces.check_possible()
    except UsageError as error:
        return str(error)
    return ""


@pytest.mark.skipif(bool(why_not()), reason=why_not() or "possible here")
@pytest.mark.parametrize(
    ("system", "setting"),
    [("nats", "sync=always"), pytest.param("redis", "wait=2", marks=pytest.mark.slow)],
)
def test_what_is_acknowledged_outlives_cuts_of_the_kernel(
    system: str, setting: str, tmp_path: Path
) -> None:
    # A process of its own: it moves into a namespace.
    words = f"run --system {system} --set {setting} --links kernel {KERNEL} --store {tmp_path}"
    done = subprocess.run(
        [sys.executable, "-m", "harness.cli", *words.split(), *OUTPUT.split()],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout, done.stderr
    told = json.loads(done.stdout)
    broken = [p["property"] for p in told["result"]["properties"] if p["verdict"] == "invalid"]
    info = json.loads((Path(told["path"]) / "run.json").read_text())
    assert (broken, problems(info)) == ([], []), told["result"]["sentence"]
    assert info["system"]["links"] == "kernel"
    lines = [json.loads(line) for line in (Path(told["path"]) / "faults.jsonl").open()]
    cuts = [line for line in lines if line["what"] == "cut" and line["action"] == "inject"]
    assert any(cut["links"] for cut in cuts), lines


def servers(pid: int) -> dict[int, bool]:
    """The Redis processes below `pid`, and whether the environment of each says whose it is."""
    found = {}
    for child in descendants(pid):
        with contextlib.suppress(OSError):
            if "redis" in Path(f"/proc/{child}/comm").read_text():
                environment = Path(f"/proc/{child}/environ").read_bytes()
                found[child] = guardian.MARK.encode() in environment
    return found


def test_servers_that_overwrite_their_environment_end_with_a_killed_harness(tmp_path: Path) -> None:
    """Redis writes its title over its environment, as Sentinel, the child of the node, does too."""
    schedule = Schedule(
        cluster=Cluster(partitions=1, min_isr=1),
        workload=Workload(seed=1, clients=1, consumers=1, rate=20, batch=1, duration_ms=60_000),
    )
    harness = start(tmp_path, schedule, "--system", "redis", *OUTPUT.split())
    wait_until(lambda: acknowledged(tmp_path) > 0, harness)
    found = servers(harness.pid)
    assert len(found) == 6
    assert not all(found.values()), "no title was written over an environment"
    harness.kill()
    harness.communicate()
    until(lambda: not any(map(lives, found)))
