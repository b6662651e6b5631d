"""A failure of a third-party system is shown, judged and run again as that system's."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from harness.formats.history import LogRun, encode
from harness.replay.pages import make_baseline
from harness.runs import program
from harness.search import findings
from harness.search.shrink import shrink_run
from harness.search.worlds.real import StormJob, StormSubject
from harness.search.worlds.subject import RunFolders
from harness.systems import registry
from harness.systems.setup import Setup, setup_of
from nemesis.formats.schedule import Schedule
from node.formats.errors import UsageError
from reports import summary
from tests.support import trial_systems
from tests.support.command import exit_code
from tests.support.harness_fakes import virtual_time
from tests.support.kept_findings import kept_finding
from tests.support.local_pool import LocalPool

FORGETFUL = f"{trial_systems.__name__}:ForgetfulLog"


def floodmark(line: str) -> int:
    """Return the exit code of a command line."""
    return exit_code(shlex.split(line))


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run of a log that forgets its last records, in a store whose name needs quotes."""
    store = tmp_path_factory.mktemp("my store")
    with pytest.MonkeyPatch.context() as patch:
        virtual_time(patch)
        line = "--partitions 1 --time-limit 0.3 --seed 1 --no-spark --quiet"
        assert floodmark(f"run --system {FORGETFUL} {line} --store {shlex.quote(str(store))}") == 1
    (folder,) = {file.parent.resolve() for file in store.glob("*/*/run.json")}
    return folder


def test_its_replay_line_names_the_system_and_can_be_copied(failed: Path) -> None:
    info = json.loads((failed / "run.json").read_bytes())
    words = ["floodmark", "run", "--system", FORGETFUL, "--schedule", str(failed)]
    assert shlex.split(info["replay"]) == words
    for which in ("", "schedule.json"):
        assert setup_of(failed / which, FORGETFUL).find().name == FORGETFUL
        assert setup_of(failed / which, "floodmark") == Setup()


def test_its_page_says_what_was_tested_and_nothing_of_our_brokers(
    failed: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(failed, tmp_path / "run")
    # Logs that the system does not declare are not on its page.
    line = LogRun(node="n1", partition="log-0", offset=0, count=0, hw=3, leo=3)
    (run / "logs" / "n1.jsonl").write_bytes(encode(line))
    assert floodmark(f"report {run}") == 0
    assert not (run / "baseline.json").exists()
    assert make_baseline(run, lambda sentence: None) is None
    text = (run / "report.html").read_text("utf-8")
    for word in ("Baseline", "floodmark replay", "Minimal reproduction", "high-watermark"):
        assert word not in text
    assert "No replica logs were collected" in text
    assert f"run --system {FORGETFUL}" in text
    about, _, _ = text[text.index('class="facts"') :].partition("</dl>")
    assert f"{FORGETFUL} 7.1" in about
    for word in ("voter", "flush", "min ISR", "bugs"):
        assert word not in about
    assert f"  run         {FORGETFUL} 7.1, disk plain, seed 1, schedule " in summary(failed)


def test_its_schedule_is_replayed_on_the_system_itself(
    failed: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    virtual_time(monkeypatch)
    at, store = shlex.quote(str(failed)), shlex.quote(str(failed.parent.parent / "again"))
    assert floodmark(f"replay {at} --system {FORGETFUL} --quiet --json --keep {store}") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["world"], told["runs"][0]["verdict"]) == ("real", "invalid")
    info = json.loads((Path(told["runs"][0]["folder"]) / "run.json").read_bytes())
    assert info["system"]["name"] == FORGETFUL
    assert floodmark(f"replay {at} --system {FORGETFUL} --world simulated") == 64
    assert "has no simulated world; use --world real" in capsys.readouterr().err


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


def test_a_system_in_a_file_and_its_settings_are_in_the_replay_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my log.py").write_text("from tests.support.trial_adapters import Trial as Mine")
    system = registry.find("my log.py:Mine", {"speed": "slow"})
    line = program.command_line("run", *system.run_options(), "--schedule", "x")
    assert line == "floodmark run --system 'my log.py:Mine' --set speed=slow --schedule x"
    # The run folder says the same to `floodmark replay` and `run --schedule`.
    about = {"system": {"name": system.name, "settings": {"speed": "slow"}, "simulated": False}}
    Path("run.json").write_text(json.dumps(about))
    again = setup_of(Path("."), system.name).find()
    assert (again.run_options(), again.simulated) == (system.run_options(), False)


RUN = {"system": {"settings": {"speed": "slow"}, "links": "none", "disk": "plain"}}
FINDING = {"world": "real", "settings": {"speed": "slow"}, "links": "none", "disk": "plain"}


@pytest.mark.parametrize("named", ["my log.py:Mine", "/else/where/my log.py", "os:Mine"])
@pytest.mark.parametrize("record", ["run.json", "finding.json"])
@pytest.mark.parametrize("inside", ["", "schedule.json"])
def test_a_file_chooses_no_code_that_is_not_installed(
    named: str, record: str, inside: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found: dict[str, Any] = {"run.json": RUN, "finding.json": FINDING}[record]
    if record == "run.json":
        found = {"system": {**found["system"], "name": named}}
    (tmp_path / record).write_text(json.dumps({**found, "subject": named}))
    (tmp_path / "schedule.json").write_bytes(Schedule().to_pretty_json())
    (tmp_path / "results.json").write_text('{"run": "a", "verdict": "invalid", "sentence": "b"}')
    with pytest.raises(UsageError, match="confirm it with --system"):
        setup_of(tmp_path / inside)
    at = shlex.quote(str(tmp_path / inside))
    for command in ("run --schedule", "replay", *(() if inside else ("shrink",))):
        assert floodmark(f"{command} {at} --quiet") == 64
        assert f"--system {shlex.quote(named)}" in capsys.readouterr().err
    with_it = setup_of(tmp_path / inside, f"other/{named.rpartition('/')[2]}", {"more": "1"})
    if "." in named:  # The same file in another folder; elsewhere the prefix is another module.
        assert with_it.settings == {"speed": "slow", "more": "1"}
        assert (with_it.links, with_it.disk) == ("none", "plain")
    assert setup_of(tmp_path / inside, "nats", {"more": "1"}) == Setup(
        system="nats", settings={"more": "1"}
    )


@pytest.mark.parametrize(
    ("system", "setting"),
    [("nats", "server"), ("nats", "servers"), ("kafka", "server"), ("rabbitmq", "home")],
)
def test_a_file_chooses_no_program(
    system: str, setting: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither as a server, nor as the folder of a server."""
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o755)
    given = {setting: str(program)}
    (tmp_path / "schedule.json").write_bytes(Schedule().to_pretty_json())
    records: list[dict[str, Any]] = [
        {"system": {"name": system, "settings": given}},
        {"world": "real", "subject": system, "settings": given},
    ]
    for record, name in zip(records, ("run.json", "finding.json"), strict=True):
        (tmp_path / name).write_text(json.dumps(record))
        for command in ("run --schedule", "replay"):
            assert floodmark(f"{command} {shlex.quote(str(tmp_path))} --quiet") == 64
            assert f"confirm it with --set {setting}={program}" in capsys.readouterr().err
        assert setup_of(tmp_path, settings=given).settings == given
        (tmp_path / name).unlink()
    assert not (tmp_path / "ran").exists()


@pytest.fixture
def finding(failed: Path, tmp_path: Path) -> Path:
    """Return the folder of a finding that the failed run shows, in a store of its own."""
    run = shutil.copytree(failed, tmp_path / "search-1" / "20260101T000000")
    return kept_finding(StormSubject(system=FORGETFUL), run)


def test_a_finding_is_run_again_from_its_folder(
    finding: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    virtual_time(monkeypatch)
    at, store = shlex.quote(str(finding)), shlex.quote(str(finding.parent / "again"))
    line = f"{at} --system {FORGETFUL} --quiet --json"
    for name in ("", "/drawn.json"):
        assert floodmark(f"replay {at}{name} --system {FORGETFUL} --quiet --keep {store}") == 0
        assert "invalid" in capsys.readouterr().out
    assert floodmark(f"run --schedule {line} --no-spark --store {store}") == 1
    told = json.loads(capsys.readouterr().out)
    info = json.loads((Path(told["path"]) / "run.json").read_bytes())
    assert info["system"]["name"] == FORGETFUL
    text = (finding / "README.md").read_text()
    assert f"run --system {FORGETFUL} --schedule {at}" in text


def test_a_finding_is_shrunk_from_its_folder(
    finding: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    virtual_time(monkeypatch)
    monkeypatch.setattr(shrink_run, "storm_pool", lambda *_: LocalPool())

    def in_process(of: StormSubject, schedule: Schedule, stop: object, at: RunFolders) -> Any:
        return StormJob(subject=of, schedule=schedule, store=at.store, name=at.run_name).do()

    monkeypatch.setattr(StormSubject, "in_process", in_process)
    store = finding.parent.parent
    line = f"shrink {shlex.quote(str(finding))} --system {FORGETFUL} --quiet"
    assert floodmark(f"{line} --store {shlex.quote(str(store))}") == 0
    told = capsys.readouterr().out
    shrunk = findings.load(finding)
    assert (shrunk.shrunk, shrunk.smallest.faults) == (True, ())
    assert f"replay: floodmark run --system {FORGETFUL} --schedule" in told
    # Beside the run that was there, one shows it, and `latest` is that.
    (shown,) = [file.parent for file in store.glob("shrink-*/*T*/run.json")]
    assert shown == Path(shrunk.run)
    assert (shown.parent / "latest").resolve() == shown.resolve()


def test_the_page_of_a_finding_is_that_of_the_run_that_shows_it(
    finding: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moved = tmp_path / "elsewhere"
    shutil.copytree(tmp_path / "findings", moved / "findings")
    shutil.copytree(tmp_path / "search-1", moved / "search-1", symlinks=True)
    folder = moved / "findings" / finding.name
    assert floodmark(f"report {shlex.quote(str(folder))}") == 0
    page = Path(capsys.readouterr().out.strip())
    assert page == moved / "search-1" / "20260101T000000" / "report.html"
    assert f"run --system {FORGETFUL}" in page.read_text("utf-8")
    shutil.rmtree(moved / "search-1")
    shutil.rmtree(tmp_path / "search-1")
    assert floodmark(f"report {shlex.quote(str(folder))}") == 64
    assert "no run that shows it is kept; to make one: " in capsys.readouterr().err
