"""Scenarios of the documents on real processes: lost where they say so, and not elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.slow
@pytest.mark.parametrize(
    ("schedule", "protocol", "broken"),
    [
        ("kip-101-scenario-1", "high-watermark", "no-lost-acknowledged-write"),
        ("kip-101-scenario-1", "kip-101", ""),
        ("kip-101-scenario-1", "kip-279", ""),
        ("kip-101-scenario-1", "kafka", ""),
    ],
)
def test_a_scenario_breaks_the_protocols_it_is_about_and_no_other(
    tmp_path: Path, schedule: str, protocol: str, broken: str
) -> None:
    check(tmp_path, ["--schedule", schedule, "--protocol", protocol], broken)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("switches", "broken"),
    [(["liftbridge-epoch-offset"], "committed-prefix-agreement"), ([], "")],
)
def test_the_second_successor_answers_wrong_with_the_defect_only(
    tmp_path: Path, switches: list[str], broken: str
) -> None:
    schedule = json.loads((ROOT / "nemesis/schedules/second-successor.json").read_text())
    assert schedule["cluster"]["switches"] == ["liftbridge-epoch-offset"]
    schedule["cluster"]["switches"] = switches
    schedule["expectation"] = {}
    (tmp_path / "schedule.json").write_text(json.dumps(schedule))
    check(tmp_path, ["--schedule", "schedule.json"], broken)


def check(folder: Path, words: list[str], broken: str) -> None:
    """Run it: the verdict is invalid, for this property among others, or valid."""
    done = subprocess.run(
        [sys.executable, "-m", "harness.cli", "run", *words, "--no-spark", "--no-report", "--json"],
        cwd=folder, capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    result = json.loads(done.stdout)["result"]
    verdicts = {each["property"]: each["verdict"] for each in result["properties"]}
    assert result["verdict"] == ("invalid" if broken else "valid"), result["sentence"]
    if broken:
        assert verdicts[broken] == "invalid", result["sentence"]
