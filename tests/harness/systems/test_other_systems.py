"""The failure of somebody else's system is shown, judged and run again as that system's."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from harness.cli.main import main
from harness.formats.run_info import RunInfo, SystemVersion
from harness.runs import program, storm
from harness.runs.baseline import make_baseline
from harness.runs.options import system_of
from node.formats.errors import UsageError
from tests.support import trial_systems

FORGETFUL = f"{trial_systems.__name__}:ForgetfulLog"


def floodmark(line: str) -> int:
    """The exit code of a command line."""
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(line))
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a log that forgets its last records, in a store whose name needs quotes."""
    store = tmp_path_factory.mktemp("my store")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("LEAST_RECOVERY_S", "STOP_MARGIN_S", "CATCH_UP_S"):
            patch.setattr(storm, name, 0.0)
        line = "--partitions 1 --time-limit 0.3 --seed 1 --no-spark --quiet"
        assert floodmark(f"run --system {FORGETFUL} {line} --store {shlex.quote(str(store))}") == 1
    (folder,) = {file.parent.resolve() for file in store.glob("*/*/run.json")}
    return folder


def test_its_replay_line_names_the_system_and_can_be_copied(failed: Path) -> None:
    info = json.loads((failed / "run.json").read_bytes())
    words = ["floodmark", "run", "--system", FORGETFUL, "--schedule", str(failed)]
    assert shlex.split(info["replay"]) == words
    text = (failed / "report.html").read_text("utf-8")
    assert f"run --system {FORGETFUL}" in text


def test_its_page_has_no_baseline_and_offers_no_simulated_replay(
    failed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert floodmark(f"report {shlex.quote(str(failed))}") == 0
    assert not (failed / "baseline.json").exists()
    assert make_baseline(failed, lambda sentence: None) is None
    text = (failed / "report.html").read_text("utf-8")
    for word in ("Baseline", "floodmark replay", "Minimal reproduction", "high-watermark"):
        assert word not in text


def test_its_schedule_is_replayed_on_the_system_itself(
    failed: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LEAST_RECOVERY_S", "STOP_MARGIN_S", "CATCH_UP_S"):
        monkeypatch.setattr(storm, name, 0.0)
    at, store = shlex.quote(str(failed)), shlex.quote(str(failed.parent.parent / "again"))
    assert floodmark(f"replay {at} --quiet --json --keep {store}") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["world"], told["runs"][0]["verdict"]) == ("real", "invalid")
    info = json.loads((Path(told["runs"][0]["folder"]) / "run.json").read_bytes())
    assert info["system"]["name"] == FORGETFUL
    assert floodmark(f"replay {at} --world simulated") == 64
    assert "has no simulated world; use --world real" in capsys.readouterr().err


@pytest.mark.parametrize("which", ["", "schedule.json"])
def test_a_schedule_of_its_run_folder_never_storms_our_brokers(failed: Path, which: str) -> None:
    assert system_of(failed / which).name == FORGETFUL
    assert system_of(failed / which, "floodmark").name == "floodmark"


def test_a_folder_that_cannot_name_its_system_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(UsageError, match="the system of this run is not known"):
        system_of(tmp_path)


def test_runs_of_before_were_of_our_brokers() -> None:
    assert RunInfo().system == SystemVersion(name="floodmark", simulated=True)


@pytest.mark.parametrize(
    ("original", "argv", "on_path", "words"),
    [
        (["/x/python3", "/x/bin/floodmark"], "/x/bin/floodmark", "/x/bin/floodmark", "floodmark"),
        (["/x/python3", ".venv/bin/floodmark"], ".venv/bin/floodmark", None, ".venv/bin/floodmark"),
        (["py", "my venv/bin/floodmark"], "my venv/bin/floodmark", None, "'my venv/bin/floodmark'"),
        (["py", "-m", "harness.cli", "run"], "/x/cli/__main__.py", None, "py -m harness.cli"),
        (["py", "-m", "pytest"], "/x/pytest/__main__.py", None, "floodmark"),
    ],
)
def test_suggested_commands_begin_as_this_program_was_called(
    original: list[str], argv: str, on_path: str | None, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.orig_argv", original)
    monkeypatch.setattr("sys.argv", [argv])
    monkeypatch.setattr("shutil.which", lambda name: on_path)
    assert program.program() == words
    assert program.command_line("check", "a b") == f"{words} check 'a b'"
