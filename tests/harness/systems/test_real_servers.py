"""Storms on real servers of other people's systems, which wheels bring."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.cli.main import main

STORM = "--partitions 1 --faults kill --time-limit 6 --seed 1 --clients 3 --consumers 1"


@pytest.mark.parametrize(
    ("system", "settings", "version"),
    [("nats", {"sync": "always"}, "2."), ("redis", {"wait": "2", "fsync": "always"}, "6.")],
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
    output = "--no-spark --no-report --quiet --json"
    with pytest.raises(SystemExit):
        main(f"run --system {system} {given} {STORM} {output}".split())
    told = json.loads(capsys.readouterr().out)
    broken = [p["property"] for p in told["result"]["properties"] if p["verdict"] == "invalid"]
    info = json.loads((Path(told["path"]) / "run.json").read_text())
    assert (broken, info["problems"]) == ([], []), told["result"]["sentence"]
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
