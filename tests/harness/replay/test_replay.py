"""`floodmark replay` in the simulated world: what it prints, and its exit code."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from harness.replay.replay import requested_schedule
from harness.runs import storm
from harness.runs.requests import ReplayRequest
from nemesis.faults import Kill
from nemesis.formats.schedule import Expectation, Schedule, Timings, load
from tests.support.command import exit_code
from tests.support.harness_fakes import FakeSystem
from tests.support.sim_schedules import plan


def replay(*words: str) -> int:
    return exit_code(["replay", *words])


def saved(tmp_path: Path, schedule: Schedule, **expected: str) -> str:
    file = tmp_path / "schedule.json"
    wanted = Expectation(**expected)  # type: ignore[arg-type]
    file.write_bytes(msgspec.structs.replace(schedule, expectation=wanted).to_json())
    return str(file)


def test_a_ready_made_failure_fails_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert replay("kip-101-scenario-1", "--times", "3") == 0
    told = capsys.readouterr().out.splitlines()
    assert told[-1] == "failed 3 of 3; expected invalid (no-lost-acknowledged-write): met"
    assert [line.split(":")[0] for line in told[:-1]] == ["1/3 seed 1", "2/3 seed 2", "3/3 seed 3"]
    # Nothing is expected of another protocol.
    assert replay("kip-101-scenario-1", "--protocol", "kip-101", "--json") == 0
    told_json = json.loads(capsys.readouterr().out)
    assert (told_json["failed"], told_json["met"]) == (0, True)


def test_an_expectation_that_is_not_met_is_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calm = plan(Kill(at_ms=1000, on="n1", for_ms=500))
    assert replay(saved(tmp_path, calm, verdict="invalid")) == 1
    assert "failed 0 of 1; expected invalid: not met" in capsys.readouterr().out
    assert replay(saved(tmp_path, calm, verdict="valid")) == 0


def test_the_trace_is_a_list_of_steps_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calm = plan(Kill(at_ms=1000, on="n1", for_ms=500), duration_ms=2000)
    assert replay(saved(tmp_path, calm), "--trace") == 0
    lines = capsys.readouterr().out.splitlines()
    steps = [" ".join(line.split()) for line in lines]
    assert "1.000000 fault inject kill n1" in steps
    assert any(step.endswith("n1 starts again (process 2)") for step in steps)
    times = [float(line.split()[0]) for line in lines[:-2]]
    assert times == sorted(times)


def test_a_kept_run_can_be_replayed_from_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    used = [tmp_path / "simulated-4" / name for name in ("trace/n9.jsonl", "history.edn", "tables")]
    used[0].parent.mkdir(parents=True)
    for path in used:
        path.write_text("of an earlier run")
    replay("kip-101-scenario-1", "--seed", "4", "--json", "--keep", str(tmp_path))
    assert not any(path.is_file() for path in used)
    first = json.loads(capsys.readouterr().out)
    folder = tmp_path / "simulated-4"
    there = {path.name for path in folder.iterdir()}
    assert {"report.html", "run.json", "history.jsonl", "results.json", "trace", "logs"} <= there
    assert replay(str(folder), "--json") == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["digest"] == first["runs"][0]["digest"]


@pytest.fixture
def finding(tmp_path: Path) -> Path:
    """Return a finding of a search: a simulated schedule, and a form for real processes."""
    folder = tmp_path / "findings" / "kafka-1"
    folder.mkdir(parents=True)
    timings = Timings(heartbeat_ms=1, session_ms=20, lag_ms=1)
    calm = plan(duration_ms=60)
    for name, seed in (("schedule.json", 5), ("drawn.json", 6), ("real.json", 7)):
        made = msgspec.structs.replace(
            calm,
            cluster=msgspec.structs.replace(calm.cluster, timings=timings),
            workload=msgspec.structs.replace(calm.workload, seed=seed),
        )
        (folder / name).write_bytes(made.to_pretty_json())
    (folder / "explain.json").write_text('{"bucket": "b"}')
    return folder


def test_a_finding_is_replayed_in_the_form_of_each_world(
    finding: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Real processes are stood in for by a cluster made of nothing."""
    for name in ("LEAST_RECOVERY_S", "STOP_MARGIN_S", "CATCH_UP_S"):
        monkeypatch.setattr(storm, name, 0.0)
    monkeypatch.setattr("harness.systems.floodmark.system.SYSTEM", FakeSystem())
    replay(str(finding), "--json")
    assert json.loads(capsys.readouterr().out)["runs"][0]["seed"] == 5
    replay(str(finding), "--world", "real", "--quiet", "--json", "--keep", str(tmp_path / "kept"))
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["seed"] == 7
    folder = Path(run["folder"])
    assert load(folder / "schedule.json") == load(finding / "real.json")
    # Why it fails comes along, for the page.
    assert (folder / "finding" / "explain.json").is_file()
    # Without a form for real processes it is replayed as it is.
    (finding / "real.json").unlink()
    wanted = requested_schedule(ReplayRequest(file=finding, world="real"))
    assert wanted == load(finding / "schedule.json")
