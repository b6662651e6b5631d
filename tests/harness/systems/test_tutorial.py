"""The log of docs/tutorial.md loses what it acknowledged, and the command there finds it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.command import exit_code
from tests.support.paths import ROOT

TUTORIAL = ROOT / "docs" / "tutorial.md"


@pytest.mark.integration
def test_the_command_of_the_tutorial_finds_a_lost_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = TUTORIAL.read_text("utf-8").replace("\\\n", " ")
    (words,) = re.findall(r"floodmark (run .*--schedule.*kill-leader.json)$", text, re.MULTILINE)
    monkeypatch.chdir(ROOT)
    code = exit_code([*words.split(), *f"--store {tmp_path} --no-spark --no-report --json".split()])
    told = json.loads(capsys.readouterr().out)
    kinds = {anomaly["name"] for anomaly in told["result"]["anomalies"]}
    assert (code, told["result"]["verdict"]) == (1, "invalid"), told["result"]
    assert kinds & {"lost", "vanished"}, kinds
