"""`floodmark search --system`: from nothing to a finding of the naive log, on real processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.search import findings
from tests.support.command import exit_code
from tests.support.paths import ROOT

pytestmark = pytest.mark.integration

NAIVE = ROOT / "examples" / "naive_log" / "adapter.py"


def test_a_real_search_finds_that_the_naive_log_loses_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = f"search --system {NAIVE}:NaiveLog --seed 1 --schedules 20 --until-failure --jobs 1"
    code = exit_code(f"{words} --no-shrink --json --quiet --store {tmp_path}".split())
    told = json.loads(capsys.readouterr().out)
    assert code == 1, told
    (folder,) = map(Path, told["folders"])
    finding = findings.load(folder)
    assert len(finding.drawn.faults) == len(finding.faults) > 0
    assert (Path(finding.run) / "history.jsonl").is_file()
    results = json.loads((Path(finding.run) / "results.json").read_text())
    assert results["verdict"] == "invalid"
    assert len(list(tmp_path.glob("search-*/*T*/run.json"))) == 1
