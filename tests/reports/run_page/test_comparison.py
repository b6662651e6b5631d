"""`floodmark compare`: facts of two runs side by side."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command import exit_code


def simulated(bugs: str, store: Path) -> Path:
    """Make a simulated run of the schedule that loses a record under an old protocol."""
    exit_code(f"replay kip-101-scenario-1{bugs} --keep {store} --quiet".split())
    (run,) = store.iterdir()
    return run


def facts(one: Path, two: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, list[str]]:
    capsys.readouterr()
    assert exit_code(["compare", str(one), str(two), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    return {row["fact"]: [row["before"], row["after"], row["differs"]] for row in rows}


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated("", tmp_path_factory.mktemp("lost"))


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated(" --protocol kip-101", tmp_path_factory.mktemp("kept"))


def test_what_differs_between_a_loss_and_the_repaired_protocol_is_marked(
    lost: Path, kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = facts(lost, kept, capsys)
    assert said["verdict"] == ["invalid", "valid", "*"]
    assert said["protocol"] == ["high-watermark", "kip-101", "*"]
    assert said["no-lost-acknowledged-write"] == ["invalid", "valid", "*"]
    findings = [row for name, row in said.items() if name.startswith("lost in ")]
    assert findings == [["1", "–", "*"]]
    assert said["harness"] == ["clean", "clean", ""]


def test_nothing_differs_between_a_run_and_itself(
    lost: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert {row[2] for row in facts(lost, lost, capsys).values()} == {""}


def test_a_folder_that_is_no_run_is_refused(
    lost: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(["compare", str(lost), str(tmp_path)]) == 64
    assert f"{tmp_path}: not a run folder" in capsys.readouterr().err
