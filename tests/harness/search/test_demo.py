"""`floodmark demo` and `floodmark shrink`, in the simulated world."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.formats.finding import SCHEDULE
from nemesis.formats import schedule as schedules
from tests.support.command import exit_code
from tests.support.paths import ROOT


def floodmark(*words: str) -> int:
    return exit_code(words)


@pytest.mark.integration
def test_the_demo_loses_a_write_shows_how_and_the_repaired_protocol_keeps_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert floodmark("demo", "--store", str(tmp_path), "--quiet", "--jobs", "1") == 0
    said = capsys.readouterr().out
    (page,) = tmp_path.glob("findings/*/simulated/report.html")
    assert str(page) in said
    readme = (ROOT / "README.md").read_text("utf-8")
    (shown,) = re.findall(r"\n```\n(no-lost.*?)\n```\n", readme, re.DOTALL)
    for line in shown.splitlines():
        assert without_seconds(line.removesuffix("...")) in without_seconds(said)


def without_seconds(text: str) -> str:
    """Return the text without how long a search took."""
    return re.sub(r"after \d+\.\d s", "after", text)


@pytest.mark.integration
def test_a_failed_run_is_shrunk_in_the_simulated_world(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    floodmark("replay", "kip-101-scenario-1", "--keep", str(kept), "--quiet")
    (run,) = kept.iterdir()
    larger = schedules.load(run)
    assert floodmark("shrink", str(run), "--store", str(tmp_path), "--quiet") == 0
    (smallest,) = tmp_path.glob(f"findings/*/{SCHEDULE}")
    assert len(schedules.load(smallest).faults) <= len(larger.faults)
    assert floodmark("replay", str(smallest.parent), "--quiet") == 0
